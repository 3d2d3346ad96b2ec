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
  const char *member; /* its path in the archive; a leading "./" does not matter */
  const char *to;     /* the file to write */
} UnpackPair;

/* Extracts members of a tar (plain, gz, bz2, xz, zst) or zip archive in one pass, which stops when
 * all are found. Each file is written completely or not at all. Only regular files are extracted;
 * if a name occurs twice, the first one is used. */
NODISCARD Err unpack_members(const char *archive, const UnpackPair *pairs, size_t n);
NODISCARD Err unpack_member(const char *archive, const char *member, const char *to);
/* Was the program built with libarchive? */
bool unpack_is_built(void);

/* Writes the text of each <seg> of an SGM file as a line, with entities decoded. */
NODISCARD Err unpack_sgm(const char *sgm, const char *to);
/* The same from bytes in memory; `where` is the file name in errors. */
NODISCARD Err unpack_sgm_text(const char *bytes, size_t len, const char *where, Str *out);

/* A text of "source TAB target [TAB more]" lines, plain, .gz or .zst, as four: source
 * and target, and source and target of the pairs held back. A pair is held back when
 * the first 64 bits of its source's SHA-256, as a number with the highest byte first,
 * are 0 modulo n: so all pairs of one source go the same way, in any order of lines.
 * Where to[i] is NULL that text is not written. */
NODISCARD Err unpack_split(const char *tsv, uint64_t n, const char *const to[4]);

#endif
