/* The sequence of collectives of one rank. Collective number n must be the same on every
 * rank: same kind, name, size and layout. The last ones are stored, so that the watchdog can
 * compare them between ranks. Threads: only the queue's current runner (queue.h). Depends on
 * base. */
#ifndef COMM_SEQUENCE_H
#define COMM_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define OP_NAME 28
typedef enum { OP_BROADCAST, OP_ALLGATHER, OP_EXCHANGE, OP_SUM, OP_REDUCE } OpKind;
/* A collective, as one rank calls it. */
typedef struct {
  uint64_t seq;   /* number of the collective, from 1; 0: unused entry */
  uint64_t hash;  /* hash of kind, name, bytes and layout */
  uint64_t bytes; /* 0 if ranks may pass different sizes */
  int32_t kind;
  char name[OP_NAME];
} Op;

#define SEQUENCE_HISTORY 8 /* number of collectives that are stored */

/* What a rank sends about its sequence in a heartbeat. */
typedef struct {
  uint64_t progress; /* incremented when a message or a phase of a collective is complete */
  uint64_t running;  /* number of the collective that the rank is running; 0: none */
  /* Number of the all-to-all (exchange) that the rank is running; 0: none. */
  uint64_t expect_seq;
  /* Bytes that the rank expects in this exchange from the rank that receives the heartbeat. */
  uint64_t expect_bytes;
  /* The last collectives that the rank began; number n is at index n % SEQUENCE_HISTORY. */
  Op op[SEQUENCE_HISTORY];
} SequenceReport;

typedef struct {
  int ranks;
  int tag_max; /* largest message tag of the transport */
  uint64_t seq, progress;
  bool is_running; /* collective number `seq` is not complete */
  Op op[SEQUENCE_HISTORY];
  uint64_t *sent; /* (SEQUENCE_HISTORY, ranks) bytes sent to each rank in an exchange */
  /* (ranks) bytes that the running exchange expects from each rank; NULL: no exchange is
   * running */
  const size_t *expected;
} Sequence;

NODISCARD Err sequence_init(Sequence *s, int ranks, int tag_max);
void sequence_free(Sequence *s);

/* Message tags. Heartbeats use TAG_HEARTBEAT, posts (post.h) TAG_POST, collectives TAG_FIRST and
 * above. */
enum { TAG_HEARTBEAT = 1, TAG_POST = 2, TAG_FIRST = 3 };

/* Begins the next collective. `layout`: a hash of further arguments that all ranks must pass
 * equally. */
void sequence_begin(Sequence *s, OpKind kind, const char *name, uint64_t bytes,
                    uint64_t layout);
/* Declares the current collective an exchange with these sizes (ranks). `received` must stay
 * valid until sequence_end. */
void sequence_set_sizes(Sequence *s, const size_t *sent, const size_t *received);
void sequence_end(Sequence *s);
const Op *sequence_current(const Sequence *s);
/* Returns the tag of a message of the current collective. The tag depends on number, name
 * and size, so ranks that run different collectives do not receive each other's messages. */
int sequence_tag(const Sequence *s, size_t bytes);

/* Returns this rank's collective number `seq`; NULL: not begun yet, or no longer stored. */
const Op *sequence_find(const Sequence *s, uint64_t seq);
/* Returns true if this rank's collective of the same number is stored and is a different
 * one. */
bool sequence_differs(const Sequence *s, const Op *theirs);
/* Returns true if this rank sent rank r another number of bytes (*sent) than r expects. */
bool sequence_sent_wrong_size(const Sequence *s, int r, const SequenceReport *report,
                              uint64_t *sent);
/* Fills this rank's report for rank r. */
void sequence_report(const Sequence *s, int r, SequenceReport *report);
/* Writes a description such as "'losses' (sum, 40 B)" and returns `text`. */
char *op_describe(char *text, size_t size, const Op *op);

#endif
