/* A segment of memory that all ranks of one host share: a line for each rank (how far it is, which
 * collective it runs) and slots for what it publishes.
 *
 * Phases. A collective is a sequence of phases: write into the own slot, meet all ranks, read the
 * others' slots. Phase k uses slots of set k % 2. A rank writes phase k + 2 only after all have met
 * for k + 1, that is after all have read phase k; so one meeting for each phase is enough.
 *
 * The memory is a memfd that rank 0 creates and the others open through /proc. It has no name in a
 * file system, so nothing is left behind when ranks are killed. Threads: the runner. Depends on
 * message. */
#ifndef COMM_SEGMENT_H
#define COMM_SEGMENT_H

#include "comm/message.h"

typedef struct SegmentHeader SegmentHeader;

typedef struct {
  Messages *messages;
  int rank, size;
  SegmentHeader *header;
  size_t bytes;
  uint64_t phase; /* of the last segment_meet */
  size_t slot;    /* bytes of a slot; of it … */
  size_t share;   /* … for each rank */
  size_t sums;    /* offset of the slots of published sums, `share` bytes each */
  size_t sizes;   /* offset of the sizes of an exchange, (2, size) for each rank */
  size_t slots;   /* offset of the slots */
} Segment;

/* How rank 0 lets the others open its segment. */
typedef struct {
  int32_t fd;      /* of rank 0; -1: it could not create a segment */
  int32_t problem; /* errno, if so */
  uint64_t token;  /* random; a segment without it belongs to another run */
} SegmentOffer;

/* Can the ranks open each other's memory? Rank 0 warns if they are on one host and cannot. */
bool segment_is_possible(const Group *g);
void segment_init(Segment *s, Messages *m);
SegmentOffer segment_create(Segment *s);                 /* rank 0; then segment_close_offer */
int segment_join(Segment *s, const SegmentOffer *offer); /* the others; returns 0 or an errno */
void segment_close_offer(const SegmentOffer *offer);     /* rank 0, after all have joined */
void segment_free(Segment *s);

/* Blocks until all ranks have called it for this phase; the phase is s->phase + 1 before the call
 * and s->phase after it. What a rank wrote before the call is visible to the others after it. */
void segment_meet(Segment *s);
/* The first meeting of a collective: ends the run if a rank runs another one. */
void segment_meet_first(Segment *s);

/* What a rank publishes in a phase. */
char *segment_slot(const Segment *s, int rank, uint64_t phase);      /* (slot) */
char *segment_sums(const Segment *s, int rank, uint64_t phase);      /* (share) */
uint64_t *segment_sizes(const Segment *s, int rank, uint64_t phase); /* (size) */
uint64_t *segment_more(const Segment *s, int rank,
                       uint64_t phase); /* its exchange has more phases */

#endif
