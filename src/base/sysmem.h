/* Memory that this process can still allocate: the system's available memory, limited by every
 * memory cgroup of the process. Depends on Linux's /proc and cgroup file systems (v1 and v2). */
#ifndef BASE_SYSMEM_H
#define BASE_SYSMEM_H

#include <stdint.h>

#include "base/err.h"

/* Computes two amounts in bytes. *left: memory that can be allocated without swapping and without
 * reaching a limit; page cache that the kernel can drop counts as free. *all: the system's memory
 * or the lowest limit. `root` is prepended to every path that is read: "" for the running system,
 * a directory in tests. */
NODISCARD Err sysmem_read(const char *root, uint64_t *left, uint64_t *all);

#endif
