/* JSON files from untrusted sources: bounds the memory that Jansson needs before it is called,
 * and lets a document contain its own checksum. Depends on err, str, zlib. */
#ifndef BASE_JSONDOC_H
#define BASE_JSONDOC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/* Maximum number of values in a document. A parsed value needs up to 250 bytes of memory but as
 * few as three bytes in the file, so a limit on the file's size does not bound the memory. */
#define JSONDOC_VALUES ((size_t)1 << 18)

/* Returns an upper bound of the number of JSON values in a document. */
size_t jsondoc_count(const char *text, size_t len);
/* Refuses a document of more than JSONDOC_VALUES values; `where` is the file name for the
 * error. */
NODISCARD Err jsondoc_check(const char *text, size_t len, const char *where);

/* Writes the document's CRC-32 into it. Before the call the document must have the member
 * "checksum": "00000000" (JSONDOC_NO_SUM, one space after the colon); the checksum is that of the
 * document in this form. */
#define JSONDOC_NO_SUM "00000000"
void jsondoc_seal(Str *text);
/* Returns true if the document matches the checksum that it contains. */
bool jsondoc_is_sealed(const char *text, size_t len);

#endif
