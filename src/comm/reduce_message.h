/* Sums a bucket of gradients over the ranks by messages. Threads: only the queue's current
 * runner (queue.h). Depends on message, bucket. */
#ifndef COMM_REDUCE_MESSAGE_H
#define COMM_REDUCE_MESSAGE_H

#include "comm/bucket.h"
#include "comm/message.h"

/* Runs one round. `term` (size) is working memory. */
void message_reduce(Messages *m, const CommReduce *r, Term *term);
/* Returns the bytes of CommReduce.work for buckets of at most `bucket` elements and pieces
 * of at most `piece` elements. */
size_t message_reduce_work(int ranks, size_t bucket, size_t piece, bool bf16);

#endif
