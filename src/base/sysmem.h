/* Memory that this process may still take: what the system has, bounded by every memory cgroup
 * that the process is in. Relies on Linux's /proc and its cgroup file systems (v1 and v2). */
#ifndef BASE_SYSMEM_H
#define BASE_SYSMEM_H

#include <stdint.h>

#include "base/err.h"

/* *left: bytes that can be taken without swapping and without reaching a limit; file pages that
 * the kernel can drop count as free. *all: bytes there are, or the lowest limit. `root` stands
 * before every path that is read: "" for the running system. */
NODISCARD Err sysmem_read(const char *root, uint64_t *left, uint64_t *all);

#endif
