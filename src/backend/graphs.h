/* A cache of CUDA graphs for work that is queued repeatedly. At the first run with a key the
 * work is queued operation by operation, which allocates memory and selects GEMM algorithms; at
 * the second it is captured as a graph and launched; later the graph is launched. A backend
 * without graphs always queues operation by operation. Depends on backend. */
#ifndef BACKEND_GRAPHS_H
#define BACKEND_GRAPHS_H

#include "backend/backend.h"

/* Largest number of graphs of a cache, and the one unless its owner sets `limit`; the least
 * recently used graph is replaced. */
#define GRAPHS_MAX     32
#define GRAPHS_DEFAULT 12

/* Everything that the queued operations depend on; an owner leaves out what it does not need. */
typedef struct {
  uint32_t kind;
  uint32_t shape[4];   /* shape of the batch (Model.shape) */
  bool dropout, first; /* members of the micro-batch's StepKey */
  float scale;         /* factor of the loss (ModelPass.scale) */
} GraphKey;

typedef struct {
  struct {
    GraphKey key;
    Graph *graph;  /* NULL: the work has been queued once and is captured next time */
    uint64_t used; /* value of `turn` at the last use; 0: the slot is free */
  } slot[GRAPHS_MAX];
  size_t limit; /* largest number of graphs, at most GRAPHS_MAX; 0: GRAPHS_DEFAULT */
  uint64_t turn;
  uint64_t captured, launched; /* number of graphs captured and launched so far */
} GraphCache;

/* Runs work(context), as a CUDA graph if one exists for the key. For equal keys the work must
 * queue the same operations. */
NODISCARD Err graphs_run(GraphCache *cache, const Backend *b, GraphKey key,
                         void (*work)(void *), void *context);
/* Frees all graphs and forgets their keys; the limit and the counts remain. Accepts a zeroed
 * struct. */
void graphs_free(GraphCache *cache, const Backend *b);

#endif
