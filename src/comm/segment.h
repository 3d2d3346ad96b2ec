/* Shared memory of all ranks of one host. For each rank it has a line (its phase and the collective
 * that it runs) and slots, which the rank writes and the others read.
 *
 * Phases. A collective is a sequence of phases: write to the own slot, wait for all ranks
 * (segment_meet, a barrier), read the others' slots. Phase k uses slots of set k % 2. A rank writes
 * phase k + 2 only after the barrier of k + 1, that is after all have read phase k; so one barrier
 * per phase is enough.
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
  size_t slot;    /* bytes of a slot */
  size_t share;   /* bytes of the part of a slot that is meant for one rank */
  size_t sums;    /* offset of the slots for sums, `share` bytes each */
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
/* segment_meet in the first phase of a collective: also ends the run if a rank runs another
 * collective. */
void segment_meet_first(Segment *s);

/* The memory that `rank` writes in a phase and the others read. In parentheses: its size, in the
 * fields of Segment. */
char *segment_slot(const Segment *s, int rank, uint64_t phase);      /* (slot bytes) */
char *segment_sums(const Segment *s, int rank, uint64_t phase);      /* (share bytes) */
uint64_t *segment_sizes(const Segment *s, int rank, uint64_t phase); /* (size numbers) */
uint64_t *segment_more(const Segment *s, int rank,
                       uint64_t phase); /* its exchange has more phases */

#endif
