/* Collectives of ranks on one host, in shared memory. Arguments as in comm.h. Threads: the runner.
 * Depends on segment, bucket. */
#ifndef COMM_SHARED_H
#define COMM_SHARED_H

#include "comm/bucket.h"
#include "comm/segment.h"

void shared_broadcast(Segment *s, char *bytes, size_t n);
void shared_allgather(Segment *s, char *all, const size_t *off);
void shared_exchange(Segment *s, const void *const *send, const size_t *send_n,
                     void *const *recv, const size_t *recv_n);
/* `term` (size) is working memory. */
void shared_reduce(Segment *s, const CommReduce *r, Term *term);

#endif
