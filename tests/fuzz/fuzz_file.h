/* Functions for the fuzzers of file formats: open bytes as a file, and correct the block
 * checksums, so that the checks behind them are reached. Depends on data/checked, zlib,
 * memfd. */
#ifndef FUZZ_FILE_H
#define FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "data/checked.h"

#define REQUIRE(condition)                                                                \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, err_message()); \
      abort();                                                                            \
    }                                                                                     \
  } while (0)

/* Returns a path at which the bytes can be opened until the next call. */
static inline const char *fuzz_file(const uint8_t *bytes, size_t size) {
  static int fd = -1;
  static char path[32];
  if (fd < 0) {
    fd = memfd_create("fuzz", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  }
  REQUIRE(fd >= 0 && ftruncate(fd, 0) == 0);
  REQUIRE(size == 0 || pwrite(fd, bytes, size, 0) == (ssize_t)size);
  return path;
}

/* Appends the table of checksums to a payload; `file` must have space for it. Returns the
 * size of the file. */
static inline size_t fuzz_seal(uint8_t *file, size_t payload) {
  size_t blocks = (payload + CHECKED_BLOCK - 1) / CHECKED_BLOCK;
  uint8_t *table = file + payload;
  for (size_t b = 0; b < blocks; b++) {
    size_t begin = b * CHECKED_BLOCK;
    size_t len = payload - begin < CHECKED_BLOCK ? payload - begin : CHECKED_BLOCK;
    uint32_t crc = (uint32_t)crc32(0, file + begin, (uInt)len);
    memcpy(table + 4 * b, &crc, sizeof crc);
  }
  uint32_t own = (uint32_t)crc32(0, table, (uInt)(4 * blocks));
  memcpy(table + 4 * blocks, &own, sizeof own);
  return payload + checked_table_size(payload);
}

static inline uint64_t fuzz_get64(const uint8_t *file, size_t offset) {
  uint64_t value;
  memcpy(&value, file + offset, sizeof value);
  return value;
}

static inline void fuzz_put32(uint8_t *file, size_t offset, uint32_t value) {
  memcpy(file + offset, &value, sizeof value);
}

static inline void fuzz_put64(uint8_t *file, size_t offset, uint64_t value) {
  memcpy(file + offset, &value, sizeof value);
}

#endif
