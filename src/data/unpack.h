/* Extracts text from downloads: members of archives, segments of the SGM files of WMT test sets,
 * the two sides of a tab-separated file. Depends on libarchive (members only), input, base. */
#ifndef DATA_UNPACK_H
#define DATA_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct {
  const char *member; /* path of the member in the archive; a leading "./" is ignored */
  const char *to;     /* path of the file to write */
} UnpackPair;

/* Extracts members of a tar (plain, gz, bz2, xz, zst) or zip archive in one pass, which ends when
 * all members are found. Each file is written completely or not at all. Only regular files are
 * extracted; if a name occurs twice, the first one is used. */
NODISCARD Err unpack_members(const char *archive, const UnpackPair *pairs, size_t n);
NODISCARD Err unpack_member(const char *archive, const char *member, const char *to);
/* Returns true if the program was built with libarchive. */
bool unpack_is_built(void);

/* Writes the text of each <seg> of an SGM file as a line, with entities decoded. */
NODISCARD Err unpack_sgm(const char *sgm, const char *to);
/* Like unpack_sgm, for bytes in memory; `where` is the file name in errors. */
NODISCARD Err unpack_sgm_text(const char *bytes, size_t len, const char *where, Str *out);

/* Splits a text of "source TAB target [TAB more]" lines (plain, .gz or .zst) into four files:
 * source and target of the training pairs, and source and target of the held-out pairs. A pair is
 * held out if the first 64 bits of the SHA-256 of its source, as a big-endian number, are 0
 * modulo n. All pairs with the same source are therefore in the same part, for any order of
 * lines. A file for which to[i] is NULL is not written. */
NODISCARD Err unpack_split(const char *tsv, uint64_t n, const char *const to[4]);

#endif
