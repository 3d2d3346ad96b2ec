/* JSON files that may be hostile or damaged: what Jansson would take of memory is bounded
 * before it is called, and a document can carry a checksum of itself. Relies on err, str,
 * zlib. */
#ifndef BASE_JSONDOC_H
#define BASE_JSONDOC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/* A value costs up to 250 bytes once it is parsed, and three bytes in the file. */
#define JSONDOC_VALUES ((size_t)1 << 18)

/* Refuses a document of more than JSONDOC_VALUES values; `where` is its file. */
NODISCARD Err jsondoc_check(const char *text, size_t len, const char *where);

/* The document's own sum is taken with JSONDOC_NO_SUM in its place: print that as the value
 * of "checksum", with one space after the colon, then seal. */
#define JSONDOC_NO_SUM "00000000"
void jsondoc_seal(Str *text);
/* Is the document as it was sealed? */
bool jsondoc_is_sealed(const char *text, size_t len);

#endif
