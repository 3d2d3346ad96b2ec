/* A thread that fills the slots of a ring in order, before they are used. Depends on base. */
#ifndef DATA_PREFETCH_H
#define DATA_PREFETCH_H

#include <stdint.h>

#include "base/err.h"

#define PREFETCH_SLOTS 4

typedef struct Prefetch Prefetch;

/* Fills a slot (0 to PREFETCH_SLOTS - 1) with item number n; called by the thread. */
typedef Err (*PrefetchFill)(void *context, int slot, uint64_t n);

/* Starts the thread, which fills the items 0, 1, 2 … */
NODISCARD Err prefetch_open(Prefetch **prefetch, PrefetchFill fill, void *context);
/* Returns the slot of the next item, which stays unchanged until the next call. Blocks until it is
 * filled. */
NODISCARD Err prefetch_next(Prefetch *p, int *slot);
/* Ends the thread. */
void prefetch_close(Prefetch *p);

#endif
