/* CRC-32 (the polynomial of zlib, gzip and PNG). Uses CRC32X on ARM and carry-less multiplication
 * on x86-64 where the processor has them. Same values as zlib's crc32().
 * Threads: any. Depends on zlib. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Returns `crc` (0 before the first call) updated with `len` bytes; no alignment is needed. */
uint32_t crc_add(uint32_t crc, const void *bytes, size_t len);
/* Returns the CRC of the concatenation of two parts. `first` and `second` are the CRCs of the
 * parts, `len` is the size of the second part in bytes. */
uint32_t crc_join(uint32_t first, uint32_t second, size_t len);
/* Returns the name of the implementation that crc_add uses: "crc32x", "pclmulqdq" or "zlib". */
const char *crc_method(void);

#endif
