/* Collectives of ranks on one host, in shared memory. For the arguments see comm.h. Threads:
 * only the queue's current runner (queue.h). Depends on segment, bucket. */
#ifndef COMM_SHARED_H
#define COMM_SHARED_H

#include "comm/bucket.h"
#include "comm/segment.h"

void shared_broadcast(Segment *s, char *bytes, size_t n);
void shared_allgather(Segment *s, char *all, const size_t *off);
void shared_exchange(Segment *s, const void *const *send, const size_t *send_n,
                     void *const *recv, const size_t *recv_n);
/* Runs one round. `term` (size) is working memory. */
void shared_reduce(Segment *s, const CommReduce *r, Term *term);

#endif
