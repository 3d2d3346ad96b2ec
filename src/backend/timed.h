/* A backend around another one that notes, for each kind of work, how often it was
 * asked for, how long it took, and what it cannot do without: operations, bytes.
 * Relies on backend.
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
  WORK_LINEAR, /* products: y, dx, dw */
  WORK_DGRAD,
  WORK_WGRAD,
  WORK_ATTEND,
  WORK_ATTEND_BACKWARD,
  WORK_NORM,
  WORK_NORM_BACKWARD,
  WORK_ACTIVATE,
  WORK_ACTIVATE_BACKWARD,
  WORK_EMBED, /* and back */
  WORK_LOSS,
  WORK_UPDATE, /* norm of the gradients, optimiser, low copy of the weights */
  WORK_MOVE,   /* copies, zeroing, to and from a device */
  WORK_KINDS,
} WorkKind;

/* Operations are those of products and attention, two for each multiplication and
 * addition; all else is a matter of bytes. Of bytes each operand counts once, read or
 * written, and twice where it is added to. Of tables the rows that are asked for count,
 * of positions nothing: they stay in the cache. */
typedef struct {
  uint64_t calls;
  double seconds, operations, bytes;
} Work;

typedef struct TimedBackend {
  Backend backend; /* the first: its operations find the rest by it */
  struct TimedBackend *self;
  const Backend *inner;
  Work work[WORK_KINDS];
  double seconds; /* from begin to end, all of them */
  uint64_t times; /* so often */

  /* Of the time since timed_begin: point 0, two for each call, the end. */
  double *at;
  size_t at_cap;
  WorkKind *call;
  size_t calls, call_cap;
  struct TimedAttention *attention; /* counted at the end: offsets may lie on a device */
  size_t attentions, attention_cap;
  ErrRecord failed;
} TimedBackend;

/* `inner` is used, not owned. The TimedBackend must stay where it is. */
NODISCARD Err timed_open(TimedBackend *c, const Backend *inner);
void timed_close(TimedBackend *c); /* harmless when not open */
void timed_begin(TimedBackend *c);
/* Waits, and adds up. The offsets that attention was given must still be there. */
NODISCARD Err timed_end(TimedBackend *c);

#endif
