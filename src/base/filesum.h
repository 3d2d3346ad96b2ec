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

/* Computes size and CRC-32 of a file. Reads the file instead of mapping it, so that a disk error
 * becomes an error code instead of a SIGBUS. */
NODISCARD Err filesum_file(const char *path, FileSum *sum);
/* Computes size and CRC-32 of bytes in memory or in a mapping, on all cores. */
FileSum filesum_bytes(const uint8_t *bytes, size_t len);
/* Fails unless `now` equals `then`, the size and CRC-32 stored when the file was written. The
 * error names `path` and the difference. */
NODISCARD Err filesum_compare(const char *path, FileSum now, FileSum then);

#endif
