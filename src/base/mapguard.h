/* A mapped file that loses its bytes while it is read (truncated by another program, a disk
 * that fails) raises SIGBUS at the next touch. Here that becomes a message with the file and
 * the byte, and exit code 1: nothing is saved, as after any sudden end. Relies on log, mem,
 * utf8. For place_local.c alone. */
#ifndef BASE_MAPGUARD_H
#define BASE_MAPGUARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* From now on a fault in these bytes, which are mapped from `offset` of the file on, is reported
 * with the file's path. Installs the signal handler. */
NODISCARD Err mapguard_add(const void *at, size_t size, uint64_t offset, const char *path);
/* Before they are unmapped. */
void mapguard_remove(const void *at);

#endif
