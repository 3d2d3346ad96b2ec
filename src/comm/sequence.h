/* The sequence of collectives of one rank. Collective number n must be the same on every rank: same
 * kind, name, size and layout. Each is numbered and remembered, so that ranks can compare.
 * Threads: the one that runs the collectives. Depends on base. */
#ifndef COMM_SEQUENCE_H
#define COMM_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define OP_NAME 28
typedef enum { OP_BROADCAST, OP_ALLGATHER, OP_EXCHANGE, OP_SUM, OP_REDUCE } OpKind;
/* One collective as one rank runs it. */
typedef struct {
  uint64_t seq;   /* counts from 1; 0: none */
  uint64_t hash;  /* of kind, name, bytes and layout */
  uint64_t bytes; /* 0 if ranks may pass different sizes */
  int32_t kind;
  char name[OP_NAME];
} Op;

#define SEQUENCE_HISTORY 8 /* collectives that a rank remembers */

/* What a rank reports to another about its sequence, in a heartbeat. */
typedef struct {
  uint64_t progress;     /* grows whenever a message or a part of a collective is complete */
  uint64_t running;      /* number of the collective it runs; 0: none */
  uint64_t expect_seq;   /* in this collective, an exchange, it expects … */
  uint64_t expect_bytes; /* … this many bytes from the rank that reads this; 0: none */
  /* The last collectives it began. Collective number n is at n % SEQUENCE_HISTORY. */
  Op op[SEQUENCE_HISTORY];
} SequenceReport;

typedef struct {
  int ranks;
  int tag_max; /* of the transport */
  uint64_t seq, progress;
  bool is_running; /* collective `seq` is not complete */
  Op op[SEQUENCE_HISTORY];
  uint64_t *sent; /* (SEQUENCE_HISTORY, ranks) bytes sent to each rank in an exchange */
  const size_t
      *expected; /* (ranks) bytes that the running exchange receives; NULL: none runs */
} Sequence;

NODISCARD Err sequence_init(Sequence *s, int ranks, int tag_max);
void sequence_free(Sequence *s);

/* The tag of heartbeats; those of collectives are larger. */
enum { TAG_HEARTBEAT = 1, TAG_FIRST = 2 };

/* Begins the next collective. `layout`: a hash of what else all ranks must agree on. */
void sequence_begin(Sequence *s, OpKind kind, const char *name, uint64_t bytes,
                    uint64_t layout);
/* The collective is an exchange; `sent` and `received` (ranks) stay in place until its end. */
void sequence_set_sizes(Sequence *s, const size_t *sent, const size_t *received);
void sequence_end(Sequence *s);
const Op *sequence_current(const Sequence *s);
/* The tag of a message of the current collective. It depends on number, name and size, so that
 * ranks which run different collectives never receive each other's messages. */
int sequence_tag(const Sequence *s, size_t bytes);

/* This rank's collective of that number; NULL: not begun yet, or forgotten. */
const Op *sequence_find(const Sequence *s, uint64_t seq);
/* Is this rank's collective of the same number another one? False where it is not known. */
bool sequence_differs(const Sequence *s, const Op *theirs);
/* Did this rank send rank r another number of bytes than r reports to expect? *sent: how many. */
bool sequence_sent_wrong_size(const Sequence *s, int r, const SequenceReport *report,
                              uint64_t *sent);
/* This rank's report for rank r. */
void sequence_report(const Sequence *s, int r, SequenceReport *report);
/* "'losses' (sum, 40 B)" */
char *op_describe(char *text, size_t size, const Op *op);

#endif
