/* Collectives between the GPUs of several processes, one GPU each, without host memory: a table
 * of functions that a backend may provide (NCCL for CUDA).
 *
 * Collectives are enqueued: each starts when the work enqueued on the backend before it is done,
 * and runs in parallel with the work enqueued after it. All processes must enqueue the same
 * collectives in the same order. Errors are returned by `poll`.
 *
 * Threads: the thread that uses the backend, except `abort`, which any thread may call. Depends
 * on base. */
#ifndef BACKEND_DEVICE_COMM_H
#define BACKEND_DEVICE_COMM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define DEVICE_COMM_ID           128   /* bytes of a communicator id */
#define DEVICE_COMM_CTAS_VERSION 21700 /* first NCCL whose CTAs can be limited, 2.17 */

typedef struct DeviceComm DeviceComm;
struct Backend;

typedef struct {
  int rank, size;
  size_t max_elements; /* maximum number of elements of an array */
  bool bf16;           /* all-reduce in bf16: rounds the inputs and each partial sum */
  int max_ctas;      /* maximum blocks of threads of a collective, each on an SM; 0: no limit */
  bool reserves_sms; /* The GEMM library's dgrad and wgrad are chosen for max_ctas fewer SMs. */
  /* Blocks until every collective enqueued so far is done on all processes. The backend calls it
   * before it times GEMMs, because running collectives would distort the times. NULL: no
   * collective is in flight at that time. Called on the thread that enqueues. */
  Err (*quiesce)(void *context);
  void *context;
} DeviceCommSpec;

/* Ranges of an array, each cut into one piece per process. */
typedef struct {
  size_t width;  /* bytes of an element: 2 or 4 */
  size_t ranges; /* number of ranges */
  /* (ranges, size + 1) elements: piece r of range i is off[i][r] … off[i][r + 1] */
  const size_t *off;
} DeviceGather;

typedef struct DeviceCommOps {
  /* Loads the library; returns its name and version, or an error with the reason why it cannot be
   * loaded. */
  Err (*probe)(char about[64], int *version);
  /* Creates the id of a new communicator; one process calls it and sends the id to all others. */
  Err (*create_id)(char id[DEVICE_COMM_ID]);
  /* Opens the communicator. Blocks until all processes have called it with the same id. */
  Err (*open)(DeviceComm **, const struct Backend *, const char id[DEVICE_COMM_ID],
              const DeviceCommSpec *);
  /* Aborts the collectives in flight and frees the communicator. Does not wait for other
   * processes: for an orderly end, synchronize the processes first. */
  void (*close)(DeviceComm *);
  /* Aborts the collectives in flight and wakes the threads that wait for them. After that only
   * `close` has an effect; other calls return immediately. */
  void (*abort)(DeviceComm *);

  /* All-reduce: x (n) = the sum over all processes, on all of them. */
  void (*all_reduce)(DeviceComm *, float *x, size_t n);
  /* The same for n doubles, which are added in fp64 whatever DeviceCommSpec.bf16 is. */
  void (*all_reduce_doubles)(DeviceComm *, double *x, size_t n);
  /* Reduce-scatter: piece r of x is [off[r], off[r + 1]). The piece of this process becomes the
   * sum over all processes; the contents of the other pieces are undefined afterwards. */
  void (*reduce_scatter)(DeviceComm *, float *x, const size_t *off);
  /* All-gather of several ranges of x in one operation: copies the pieces of every process to
   * all processes, without rounding. */
  void (*all_gather)(DeviceComm *, void *x, const DeviceGather *);

  /* Makes work that is enqueued on the backend after this call wait for all enqueued
   * collectives. */
  void (*join)(DeviceComm *);
  /* Reads the progress without blocking. *inputs_ready: the device has finished the work that
   * precedes the last all_reduce or reduce_scatter, the backward pass; *done: it has also
   * finished all collectives. */
  Err (*poll)(DeviceComm *, bool *inputs_ready, bool *done);
} DeviceCommOps;

#endif
