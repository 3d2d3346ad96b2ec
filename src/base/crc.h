/* CRC-32 (the polynomial of zlib, gzip and PNG), by the processor's instructions where it has
 * them: CRC32X on ARM, carry-less multiplication on x86-64. Same values as zlib's crc32().
 * Threads: any. Depends on zlib. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the beginning) with `len` bytes at any address. */
uint32_t crc_add(uint32_t crc, const void *bytes, size_t len);
/* The CRC of two parts in a row, from those of the parts; len: bytes of the second. */
uint32_t crc_join(uint32_t first, uint32_t second, size_t len);
/* Which implementation crc_add uses: "crc32x", "pclmulqdq" or "zlib". */
const char *crc_method(void);

#endif
