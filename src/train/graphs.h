/* Captured graphs (CUDA graphs) of work that is queued again and again. The first time, the work
 * is queued operation by operation, so that all memory and GEMM algorithms it needs are there; the
 * second time it is captured; from then on it is launched as one graph. A backend without graphs
 * always queues operation by operation. Depends on backend. */
#ifndef TRAIN_GRAPHS_H
#define TRAIN_GRAPHS_H

#include "backend/backend.h"

#define GRAPHS_MAX 12 /* graphs kept; the least recently used one is dropped */

/* All that the queued operations depend on. */
typedef struct {
  uint32_t kind;
  uint32_t shape[4];   /* of the batch; see Model */
  bool dropout, first; /* of the micro-batch, see StepKey */
  float scale;         /* of the loss */
} GraphKey;

typedef struct {
  struct {
    GraphKey key;
    Graph *graph;  /* NULL: the work was queued once, and not captured yet */
    uint64_t used; /* the turn of the last use; 0: the slot is free */
  } slot[GRAPHS_MAX];
  uint64_t turn;
  uint64_t captured, launched; /* so far */
} GraphCache;

/* Does work(context), by the key's graph where there is one. The work must queue the same
 * operations whenever the key is the same. */
NODISCARD Err graphs_run(GraphCache *cache, const Backend *b, GraphKey key,
                         void (*work)(void *), void *context);
void graphs_free(GraphCache *cache, const Backend *b); /* harmless when zero */

#endif
