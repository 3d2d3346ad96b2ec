/* Size and CRC-32 of files, to see whether they are what was written. Depends on place, crc. */
#ifndef BASE_FILESUM_H
#define BASE_FILESUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  uint64_t bytes;
  uint32_t crc;
} FileSum;

/* Reads the file instead of mapping it: a disk that fails is then an error, not a signal. */
NODISCARD Err filesum_file(const char *path, FileSum *sum);
/* Of bytes in memory or mapped, on all cores. */
FileSum filesum_bytes(const uint8_t *bytes, size_t len);
/* Is the file `path`, whose sum is `now`, what it was? */
NODISCARD Err filesum_compare(const char *path, FileSum now, FileSum then);

#endif
