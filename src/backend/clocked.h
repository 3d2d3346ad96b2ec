/* A backend around another one that notes, for each kind of work, how often it was
 * asked for, how long it took, and what it cannot do without: operations, bytes.
 * Relies on backend.
 *
 *   Clocked c;
 *   TRY_DONE(clocked_open(&c, &backend));
 *   clocked_begin(&c);
 *   step(&c.backend);
 *   TRY_DONE(clocked_end(&c));
 *   done: clocked_close(&c); */
#ifndef BACKEND_CLOCKED_H
#define BACKEND_CLOCKED_H

#include "backend/backend.h"

typedef enum {
  WORK_FORWARD, /* products: y, dx, dw */
  WORK_INPUTS,
  WORK_WEIGHTS,
  WORK_ATTEND,
  WORK_ATTEND_BACK,
  WORK_NORM,
  WORK_NORM_BACK,
  WORK_ACTIVATE,
  WORK_ACTIVATE_BACK,
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

typedef struct Clocked {
  Backend backend; /* the first: its operations find the rest by it */
  struct Clocked *self;
  const Backend *inner;
  Work work[WORK_KINDS];
  double seconds; /* from begin to end, all of them */
  uint64_t times; /* so often */

  /* Of the time since clocked_begin: point 0, two for each call, the end. */
  double *at;
  size_t at_cap;
  WorkKind *call;
  size_t calls, call_cap;
  struct ClockedAttention *attention; /* counted at the end: offsets may lie on a device */
  size_t attentions, attention_cap;
  ErrRecord failed;
} Clocked;

/* `inner` is used, not owned. The Clocked must stay where it is. */
NODISCARD Err clocked_open(Clocked *c, const Backend *inner);
void clocked_close(Clocked *c); /* harmless when not open */
void clocked_begin(Clocked *c);
/* Waits, and adds up. The offsets that attention was given must still be there. */
NODISCARD Err clocked_end(Clocked *c);

#endif
