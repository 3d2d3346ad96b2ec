/* What carries arrays between the devices of several processes, one device each,
 * without the host: a table a backend may have, NCCL's on CUDA. Relies on base.
 *
 * Operations are queued: each begins when what the backend was given before it is
 * done, and runs beside what the backend is given after it. All processes queue the
 * same ones in the same order. What goes wrong is told by `test`. */
#ifndef BACKEND_WIRE_H
#define BACKEND_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define WIRE_ID 128 /* bytes */

typedef struct Wire Wire;
struct Backend;

typedef struct {
  int rank, size;
  size_t most; /* elements of the largest array */
  bool bf16;   /* gradients are rounded to bf16 on their way, and after each addition */
  /* Waits until every operation queued so far is done on all processes. The backend calls it
   * before it times anything on the device, as operations under way take some of it; NULL: it
   * need not wait. Called on the thread that queues. */
  Err (*quiesce)(void *context);
  void *context;
} WireSpec;

typedef struct WireTable {
  /* Is the library there? Its name and version, or why not. */
  Err (*look)(char about[64], int *version);
  /* A name for a new wire, made by one process and given to all. */
  Err (*name)(char id[WIRE_ID]);
  /* Waits until all processes are there. */
  Err (*open)(Wire **, const struct Backend *, const char id[WIRE_ID], const WireSpec *);
  /* What is under way is given up: the others may not be there any more. Those who end
   * in peace meet before. */
  void (*close)(Wire *);
  /* Ends what is under way, and whoever waits for it; from any thread. Nothing can be
   * queued any more, only closed. */
  void (*abort)(Wire *);

  /* x (n) becomes the sum over the processes, on all of them. */
  void (*sum)(Wire *, float *x, size_t n);
  /* Piece r of x is [off[r], off[r + 1]): this process's becomes the sum; the others
   * are undefined. */
  void (*scatter)(Wire *, float *x, const size_t *off);
  /* Every process's piece to all, as it is. */
  void (*gather)(Wire *, float *x, const size_t *off);

  /* What the backend is given from now on waits for everything queued. */
  void (*join)(Wire *);
  /* Never waits. *made: the device has done what the operations were behind; *done:
   * and the operations. */
  Err (*test)(Wire *, bool *made, bool *done);
} WireTable;

#endif
