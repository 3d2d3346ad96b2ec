/* Files and directories: every failure names the path and says what to do; what
 * must be complete is written beside, synced and renamed. Relies on err, mem. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/sha256.h"
#include "base/str.h"

bool file_exists(const char *path);
bool file_is_dir(const char *path);
NODISCARD Err file_size(const char *path, uint64_t *bytes);
/* Makes the directory and its parents; fine if it exists. */
NODISCARD Err file_mkdirs(const char *path);
/* Removes a file, or a directory and all within. */
NODISCARD Err file_remove_all(const char *path);
NODISCARD Err file_rename(const char *from, const char *to); /* synced */
NODISCARD Err file_sync_dir(const char *path);
/* Opens a regular file for reading. A pipe or a device is an error at once: opening a pipe
 * would wait for its writer, and it cannot be read twice. */
NODISCARD Err file_open(const char *path, int *fd, uint64_t *bytes);
NODISCARD Err file_read(const char *path, size_t limit, Str *into);
/* Whole contents, atomically: written beside, synced, renamed. */
NODISCARD Err file_write(const char *path, const char *bytes, size_t len);
/* "dir/name" into a buffer of FILE_PATH_MAX bytes. */
#define FILE_PATH_MAX 4096
NODISCARD Err file_join(char *out, const char *dir, const char *name);
/* The directory in which this program lies. */
NODISCARD Err file_program_dir(char *out);

/* Holds the file's lock until *fd is closed; *busy when another process does, and
 * then *fd is -1. */
NODISCARD Err file_lock(const char *path, int *fd, bool *busy);

/* A checked, buffered output file: hashes on its way, synced at the end. Set crc_only
 * after file_create where SHA-256 would take longer than the disk. */
typedef struct {
  int fd;
  char *path;
  uint8_t *buffer;
  size_t used;
  uint64_t bytes;
  bool crc_only;
  uint32_t crc;
  Sha256 sha;
} FileWriter;
NODISCARD Err file_create(FileWriter *w, const char *path);
NODISCARD Err file_put(FileWriter *w, const void *bytes, size_t len);
/* Flush, sync, close; hex (or NULL) gets the SHA-256, or the CRC-32 in 8 digits. */
NODISCARD Err file_finish(FileWriter *w, char hex[65]);
void file_abandon(FileWriter *w); /* close; harmless when finished */

#endif
