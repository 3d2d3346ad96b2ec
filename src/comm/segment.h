/* Shared memory of all ranks of one host. It holds for each rank a line (its phase and its
 * current collective) and slots, which this rank writes and the others read.
 *
 * Phases. A collective is a sequence of phases: write to the own slot, wait for all ranks
 * (segment_meet, a barrier), read the others' slots. Phase k uses slot set k % 2. A rank
 * writes phase k + 2 only after the barrier of phase k + 1, which all ranks reach only after
 * they have read phase k; so one barrier per phase is enough.
 *
 * The memory is a memfd that rank 0 creates and the others open through /proc. It has no
 * name in a file system, so nothing remains when ranks are killed. Threads: only the queue's
 * current runner (queue.h). Depends on message. */
#ifndef COMM_SEGMENT_H
#define COMM_SEGMENT_H

#include "comm/message.h"

typedef struct SegmentHeader SegmentHeader;

typedef struct {
  Messages *messages;
  int rank, size;
  SegmentHeader *header;
  size_t bytes;
  uint64_t phase; /* number of the last barrier (segment_meet) */
  size_t slot;    /* bytes of a slot */
  size_t share;   /* bytes of a slot that are addressed to one rank: about slot / ranks */
  size_t sums;    /* offset in the segment of the slots for sums, of `share` bytes each */
  size_t sizes;   /* offset in the segment of the sizes of an exchange, (2, size) per rank */
  size_t slots;   /* offset in the segment of the slots */
} Segment;

/* What rank 0 sends to the others so that they can open its segment. */
typedef struct {
  int32_t fd; /* file descriptor in the process of rank 0; -1: it could not create a segment */
  int32_t problem; /* errno if fd is -1 */
  /* Identifies this run's segment; another value means that the fd is another file. */
  uint64_t token;
} SegmentOffer;

/* Returns true if all ranks are on one host and in one pid namespace. Rank 0 warns if they
 * are on one host but in different namespaces. */
bool segment_is_possible(const Group *g);
void segment_init(Segment *s, Messages *m);
SegmentOffer segment_create(Segment *s); /* creates the segment; called by rank 0 */
/* Called by the other ranks; returns 0 or an errno. */
int segment_join(Segment *s, const SegmentOffer *offer);
/* Called by rank 0 after all ranks have joined. */
void segment_close_offer(const SegmentOffer *offer);
void segment_free(Segment *s);

/* A barrier: blocks until all ranks have called it for this phase, and increments s->phase.
 * What a rank wrote before the call is visible to the others after it. */
void segment_meet(Segment *s);
/* segment_meet for the first phase of a collective. Also compares the collectives and ends
 * the run if a rank runs another one. */
void segment_meet_first(Segment *s);

/* Return the memory that `rank` writes in a phase and the others read. The comments give its
 * size in terms of the fields of Segment. */
/* Returns `slot` bytes: data for all ranks. */
char *segment_slot(const Segment *s, int rank, uint64_t phase);
/* Returns `share` bytes: sums of the rank's piece. */
char *segment_sums(const Segment *s, int rank, uint64_t phase);
/* Returns `size` numbers: bytes that the rank sends to each rank in an exchange. */
uint64_t *segment_sizes(const Segment *s, int rank, uint64_t phase);
uint64_t *segment_more(const Segment *s, int rank,
                       uint64_t phase); /* 1 if the rank's exchange has more phases */

#endif
