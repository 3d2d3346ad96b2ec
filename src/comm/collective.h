/* Collectives of all ranks: selects how each is done (shared memory where all ranks are on one
 * host, messages otherwise) and numbers it. Threads: the runner. Depends on shared,
 * reduce_message. */
#ifndef COMM_COLLECTIVE_H
#define COMM_COLLECTIVE_H

#include "comm/bucket.h"
#include "comm/message.h"
#include "comm/segment.h"

#define COLLECTIVE_SUM_MAX 64 /* numbers of a sum */

typedef struct {
  const Group *group;
  Messages messages;
  Segment segment;
  bool has_segment; /* all ranks share memory */
  double *sums;     /* (size, COLLECTIVE_SUM_MAX) */
  size_t *offset;   /* (size + 1) */
  Term *term;       /* (size) */
} Collectives;

/* One collective, with the arguments of its function in comm.h; those of other kinds are not
 * used. */
typedef struct {
  OpKind kind;
  const char *name;
  char *bytes;
  size_t n;
  const size_t *off;
  const void *const *send;
  void *const *recv;
  const size_t *send_n, *recv_n;
  double *x;
  const CommReduce *reduce;
} Call;

NODISCARD Err collective_init(Collectives *c, const Group *group, Sequence *sequence,
                              Watchdog *watchdog);
/* Every rank: all of them share memory from now on, if they can. */
void collective_share_memory(Collectives *c);
void collective_free(Collectives *c);

void collective_run(Collectives *c, const Call *call);
/* Bytes of CommReduce.work. */
size_t collective_reduce_work(const Collectives *c, size_t bucket, size_t piece, bool bf16);

#endif
