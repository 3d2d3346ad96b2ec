/* Collectives over all ranks. Selects the implementation (shared memory if all ranks are on
 * one host, otherwise messages) and numbers each collective. Threads: only the queue's
 * current runner (queue.h). Depends on shared, reduce_message. */
#ifndef COMM_COLLECTIVE_H
#define COMM_COLLECTIVE_H

#include "comm/bucket.h"
#include "comm/message.h"
#include "comm/segment.h"

#define COLLECTIVE_SUM_MAX 64 /* largest number of elements of an OP_SUM */

typedef struct {
  const Group *group;
  Messages messages;
  Segment segment;
  bool has_segment; /* all ranks have mapped the shared segment */
  double *sums;     /* (size, COLLECTIVE_SUM_MAX) values of every rank in an OP_SUM */
  size_t *offset;   /* (size + 1) byte offsets of the ranks' values in `sums` */
  Term *term;       /* (size) working memory of OP_REDUCE */
} Collectives;

/* One collective with its arguments, which are explained in comm.h. Each kind uses some of
 * the fields; the others are zero. */
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
/* Maps one shared segment in all ranks if they are on one host and can share memory; later
 * collectives then use it. Every rank must call it. */
void collective_share_memory(Collectives *c);
void collective_free(Collectives *c);

void collective_run(Collectives *c, const Call *call);
/* Returns the bytes that CommReduce.work needs. */
size_t collective_reduce_work(const Collectives *c, size_t bucket, size_t piece, bool bf16);

#endif
