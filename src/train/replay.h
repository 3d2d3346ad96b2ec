/* Work that is asked of a device again and again: done as it is asked the first time, so
 * that all it needs is there; recorded the second time; given in one piece from then on.
 * Where a backend cannot record, it is always done as it is asked. Relies on backend. */
#ifndef TRAIN_REPLAY_H
#define TRAIN_REPLAY_H

#include "backend/backend.h"

#define REPLAY_MOST 12 /* recordings kept; the one not used for longest goes */

/* All that the operations asked for depend on. */
typedef struct {
  uint32_t kind;
  uint32_t shape[4];   /* of the batch; see Model */
  bool dropout, first; /* of the micro-batch, see StepKey */
  float scale;
} ReplayKey;

typedef struct {
  struct {
    ReplayKey key;
    Graph *recording; /* NULL: it was done once */
    uint64_t used;    /* the turn; 0: the place is free */
  } slot[REPLAY_MOST];
  uint64_t turn;
  uint64_t recorded, replayed; /* so far */
} Replays;

NODISCARD Err replay_do(Replays *r, const Backend *b, ReplayKey key, void (*work)(void *),
                        void *context);
void replay_free(Replays *r, const Backend *b); /* harmless when nothing was done */

#endif
