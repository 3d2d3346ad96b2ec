/* Reading a mapped file raises SIGBUS if another program truncated it or the disk fails. The
 * signal handler here prints the file and the byte offset and ends the process with exit code 1;
 * nothing is saved. For place_local.c only. Depends on log, mem, utf8. */
#ifndef BASE_MAPGUARD_H
#define BASE_MAPGUARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Registers a mapping of `size` bytes at `at` that begins at `offset` of the file `path`. Installs
 * the signal handler. */
NODISCARD Err mapguard_add(const void *at, size_t size, uint64_t offset, const char *path);
/* Removes a mapping from the table. Call it before munmap. */
void mapguard_remove(const void *at);

#endif
