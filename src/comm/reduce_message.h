/* Sums a bucket of gradients over the ranks by messages. Threads: the runner. Depends on message,
 * bucket. */
#ifndef COMM_REDUCE_MESSAGE_H
#define COMM_REDUCE_MESSAGE_H

#include "comm/bucket.h"
#include "comm/message.h"

/* `term` (size) is working memory. */
void message_reduce(Messages *m, const CommReduce *r, Term *term);
/* Bytes of CommReduce.work for buckets of at most `bucket` elements and pieces of `piece`. */
size_t message_reduce_work(int ranks, size_t bucket, size_t piece, bool bf16);

#endif
