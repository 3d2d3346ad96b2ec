/* Size and CRC-32 of files, to detect files that changed after they were written. Depends on
 * place, crc. */
#ifndef BASE_FILESUM_H
#define BASE_FILESUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  uint64_t bytes;
  uint32_t crc;
} FileSum;

/* Reads the file instead of mapping it: a disk error is then an error code, not a SIGBUS. */
NODISCARD Err filesum_file(const char *path, FileSum *sum);
/* Computes the sum of bytes in memory or mapped, on all cores. */
FileSum filesum_bytes(const uint8_t *bytes, size_t len);
/* Fails, naming `path` and the difference, unless `now` equals the sum `then` recorded when the
 * file was written. */
NODISCARD Err filesum_compare(const char *path, FileSum now, FileSum then);

#endif
