/* What downloads are wrapped in: members of archives, the SGM files of the WMT test
 * sets, both languages in one text. Depends on libarchive (members only), input, base. */
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

/* Members of a tar (plain, gz, bz2, xz, zst) or zip archive, in one pass that ends
 * with the last one found. Each file is complete or not there at all. Only regular
 * members are taken; where a name occurs twice, the first is. */
NODISCARD Err unpack_members(const char *archive, const UnpackPair *pairs, size_t n);
NODISCARD Err unpack_member(const char *archive, const char *member, const char *to);
/* Was the program built with libarchive? */
bool unpack_is_built(void);

/* The text of each <seg> of an SGM file, one per line, entities decoded. */
NODISCARD Err unpack_sgm(const char *sgm, const char *to);
/* The same from memory; `where` names the bytes in errors. */
NODISCARD Err unpack_sgm_text(const char *bytes, size_t len, const char *where, Str *out);

/* A text of "source TAB target [TAB more]" lines, plain, .gz or .zst, as four: source
 * and target, and source and target of the pairs held back. A pair is held back when
 * the first 64 bits of its source's SHA-256, as a number with the highest byte first,
 * are 0 modulo n: so all pairs of one source go the same way, in any order of lines.
 * Where to[i] is NULL that text is not written. */
NODISCARD Err unpack_split(const char *tsv, uint64_t n, const char *const to[4]);

#endif
