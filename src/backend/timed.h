/* A backend that wraps another backend and measures, per kind of operation, the number of calls,
 * the time, and the work that any implementation has to do (floating-point operations, bytes):
 * the roofline of `bench train`. Depends on backend.h.
 *
 *   TimedBackend c;
 *   TRY_DONE(timed_open(&c, &backend));
 *   timed_begin(&c);
 *   step(&c.backend);
 *   TRY_DONE(timed_end(&c));
 *   done: timed_close(&c); */
#ifndef BACKEND_TIMED_H
#define BACKEND_TIMED_H

#include "backend/backend.h"

typedef enum {
  WORK_LINEAR, /* forward GEMMs */
  WORK_DGRAD,  /* GEMMs of input gradients */
  WORK_WGRAD,  /* GEMMs of weight gradients */
  WORK_ATTEND,
  WORK_ATTEND_BACKWARD,
  WORK_NORM,
  WORK_NORM_BACKWARD,
  WORK_ACTIVATE,
  WORK_ACTIVATE_BACKWARD,
  WORK_EMBED,  /* embedding, forward and backward */
  WORK_LOSS,   /* except the loss that linear_loss computes with its GEMM */
  WORK_UPDATE, /* gradient norm, optimizer, low-precision copy of the weights */
  WORK_MOVE,   /* copies, zeroing, transfers to and from a device */
  WORK_KINDS,
} WorkKind;

/* The measured work. `operations` counts GEMMs and attention only, two for each multiply-add;
 * everything else is limited by memory bandwidth. `bytes` counts each operand once if it is read
 * or written, twice if it is added to. Of embedding tables it counts the rows that are looked up,
 * of position tables nothing, because they stay in the cache. */
typedef struct {
  uint64_t calls;
  double seconds, operations, bytes;
} Work;

/* One call of an operation. */
typedef struct {
  WorkKind kind;
  uint32_t shape[3];        /* GEMMs: rows, in, out; otherwise zero */
  double operations, bytes; /* as in Work; of attention 0 */
} TimedCall;

typedef struct TimedBackend {
  /* The table of timed operations. A copy of it is timed too: its `timer` points to this struct. */
  Backend backend;
  const Backend *inner;
  Work work[WORK_KINDS];
  double seconds;   /* total time between timed_begin and timed_end */
  uint64_t periods; /* number of calls of timed_end */

  /* The calls since timed_begin. `at`: time of timed_begin, start and end of each call, time of
   * timed_end, in seconds of progress_clock() or, on a device, since timed_begin. */
  double *at;
  size_t at_cap;
  TimedCall *call;
  size_t calls, call_cap;
  size_t max_calls; /* calls after these are executed but not recorded; 0: no limit */
  uint64_t dropped; /* number of calls since timed_begin that were not recorded */
  /* Counted by timed_end, because the offsets may be on a device. */
  struct TimedAttention *attention;
  size_t attentions, attention_cap;
  ErrRecord failed;
} TimedBackend;

/* Returns a name of two or three words for tables and traces, such as "GEMM wgrad". */
const char *timed_name(WorkKind kind);

/* Wraps `inner`, which the caller keeps open. The TimedBackend must not be moved. */
NODISCARD Err timed_open(TimedBackend *c, const Backend *inner);
/* timed_open for a list of calls: records at most max_calls of them and allocates the list at
 * once. Does not count the work of attention, whose arrays of offsets change between steps. */
NODISCARD Err timed_open_list(TimedBackend *c, const Backend *inner, size_t max_calls);
void timed_close(TimedBackend *c); /* Closes the backend, if it is open. */
void timed_begin(TimedBackend *c);
/* Blocks until the work since timed_begin is done and adds it to `work`. The offset arrays that
 * were passed to attention must still exist. */
NODISCARD Err timed_end(TimedBackend *c);

#endif
