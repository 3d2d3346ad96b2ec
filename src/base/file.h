/* Files and directories. Errors name the path and a remedy. Files that readers must never see
 * half written are written under a temporary name, synced and renamed. Depends on err, mem. */
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
/* Creates the directory and its parents; succeeds if the directory exists. */
NODISCARD Err file_mkdirs(const char *path);
/* Removes a file, or a directory with its contents. */
NODISCARD Err file_remove_all(const char *path);
/* Removes the contents of a directory. */
NODISCARD Err file_remove_inside(const char *path);
/* Renames the file and syncs its directory. */
NODISCARD Err file_rename(const char *from, const char *to);
NODISCARD Err file_sync_dir(const char *path);
/* Opens a regular file for reading. A pipe or a device is refused immediately: opening a pipe
 * would block until its writer opens it, and a pipe cannot be read twice. */
NODISCARD Err file_open(const char *path, int *fd, uint64_t *bytes);
NODISCARD Err file_read(const char *path, size_t limit, Str *into);
/* Replaces the contents of the file atomically: writes a temporary file, syncs and renames it. */
NODISCARD Err file_write(const char *path, const char *bytes, size_t len);
/* Writes an output that the user has named. A regular file is replaced as by file_write. A device, a
 * pipe or a link, such as /dev/null or /dev/stdout, is written to and stays: a rename would put a
 * regular file in its place. */
NODISCARD Err file_write_output(const char *path, const char *bytes, size_t len);
/* Fails if `bytes` do not fit into the file system of `dir`, which is one in memory (tmpfs). Some
 * space must stay free: MPI and NCCL have shared memory there, and a process that touches a page
 * for which no space is left is killed by SIGBUS. Succeeds if the space is not known. */
NODISCARD Err file_check_memory(const char *dir, uint64_t bytes);
/* Writes "dir/name" to a buffer of FILE_PATH_MAX bytes. */
#define FILE_PATH_MAX 4096
NODISCARD Err file_join(char *out, const char *dir, const char *name);
/* Writes the path of this program's executable to a buffer of FILE_PATH_MAX bytes. */
NODISCARD Err file_program(char *out);
/* Writes the directory of this program's executable to a buffer of FILE_PATH_MAX bytes. */
NODISCARD Err file_program_dir(char *out);

/* Locks the file until *fd is closed. Does not block: if another process holds the lock, sets
 * *busy and sets *fd to -1. */
NODISCARD Err file_lock(const char *path, int *fd, bool *busy);
/* Returns true if the file can be read and another process holds its lock. */
bool file_is_locked(const char *path);
/* Like file_lock, but tries for a second: another process may hold the lock for an instant, to find
 * out whether it is free. */
NODISCARD Err file_lock_soon(const char *path, int *fd, bool *busy);

/* A buffered output file that computes its checksum while it is written and is synced at the end.
 * Set crc_only after file_create for large files, for which SHA-256 is slower than the disk. */
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
/* Flushes, syncs and closes the file. `hex`, if not NULL, receives the SHA-256 of the contents,
 * or with crc_only the CRC-32 in 8 digits. */
NODISCARD Err file_finish(FileWriter *w, char hex[65]);
/* Closes the file without syncing it; has no effect after file_finish. */
void file_abandon(FileWriter *w);

#endif
