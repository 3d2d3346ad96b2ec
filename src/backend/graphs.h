/* A cache of CUDA graphs for work that is queued repeatedly. At the first run with a key the
 * work is queued operation by operation, which allocates memory and selects GEMM algorithms; at
 * the second it is captured as a graph and launched; later the graph is launched. A backend
 * without graphs always queues operation by operation.
 *
 * Work may contain actions of the host between its operations (graphs_act), such as collectives of
 * NCCL on their own stream. It is then captured in parts, one graph between two actions: a launch
 * launches the first part, acts, launches the second, and so on. Collectives are never captured:
 * ncclCommAbort waits until graphs that contain its collectives are destroyed. Depends on backend. */
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

typedef void (*GraphAction)(void *context, size_t number);

/* A part of captured work: operations, then an action. */
typedef struct {
  Graph *graph;    /* NULL: no operations */
  GraphAction act; /* NULL: none */
  void *context;   /* arguments of `act` */
  size_t number;
} GraphPart;

typedef struct {
  GraphKey key;
  GraphPart *part; /* (GraphCache.max_actions + 1) */
  size_t parts;    /* 0: the work has been queued once and is captured next time */
  uint64_t used;   /* value of `turn` at the last use; 0: the slot is free */
} GraphSlot;

typedef struct {
  size_t limit;       /* largest number of works, at most GRAPHS_MAX; 0: GRAPHS_DEFAULT */
  size_t max_actions; /* largest number of actions in a work; set it before the first run */
  GraphSlot slot[GRAPHS_MAX];
  GraphPart *part;      /* (limit, max_actions + 1) parts of all slots, or NULL */
  GraphSlot *capturing; /* NULL: no work is being captured */
  ErrRecord failed;     /* first error of this capture */
  uint64_t turn;
  uint64_t captured, launched; /* number of graphs captured and launched so far */
} GraphCache;

/* Runs work(context), as a CUDA graph if one exists for the key. For equal keys the work must
 * queue the same operations and actions. */
NODISCARD Err graphs_run(GraphCache *cache, const Backend *b, GraphKey key,
                         void (*work)(void *), void *context);
/* Calls act(context, number) after the operations that the work has queued so far and before those that
 * it queues later: now, or in each launch if the work is being captured. Outside of graphs_run it calls
 * it now. */
void graphs_act(GraphCache *cache, const Backend *b, GraphAction act, void *context,
                size_t number);
/* Frees all graphs and forgets their keys; the limits and the counts remain. Accepts a zeroed
 * struct. */
void graphs_free(GraphCache *cache, const Backend *b);

#endif
