/* The training shards of several ranks. Rank i % count writes shard i, in a thread of its own,
 * while the rank continues to encode. Rank 0 appends the shards to the manifest in order when
 * they are on disk. Depends on ranks, prepare_encode. */
#ifndef DATA_PREPARE_SHARDS_H
#define DATA_PREPARE_SHARDS_H

#include <pthread.h>
#include <stdatomic.h>

#include "data/prepare_work.h"

typedef struct {
  uint64_t number;
  uint64_t bytes;
  char sha256[65];
} WrittenShard;

typedef struct {
  Prepare *p;
  Ranks *ranks;
  size_t count, rank; /* number of ranks, number of this rank */

  /* The shard that the thread is writing. */
  ShardBuilder full;
  ManifestEntry entry;
  size_t number;
  pthread_t thread;
  bool is_writing;        /* The thread was started and is not joined yet. */
  atomic_bool is_on_disk; /* The thread has ended and stored `result`. */
  ErrRecord result;

  WrittenShard *written; /* shards that this rank has written and not reported yet */
  size_t written_n, written_cap;
  /* Rank 0: shards whose contents are complete, but not all of which are known to be on disk. The
   * first is shard number meta->split[SPLIT_TRAIN].shards. */
  ManifestEntry *open;
  size_t open_n, open_cap;
  WrittenShard *report; /* Rank 0: the reports of all ranks */
  size_t report_cap;
  const void **send; /* (count) arguments of Ranks.exchange, one per rank */
  void **recv;
  size_t *send_n, *recv_n;
} RankShards;

/* Initializes *s and sets p->share to it. p->builder must have been begun. */
NODISCARD Err shards_open(RankShards *s, Prepare *p);
/* Waits for the writing thread and frees the memory. */
void shards_close(RankShards *s);
/* Returns true if this rank writes the shard with that number. */
bool shards_is_writer(const RankShards *s, size_t number);
/* Ends the training shard; the implementation of Prepare.end_train_shard for several ranks. */
NODISCARD Err shards_end(Prepare *p);
/* Moves a shard that the thread has written to the list `written`. SHARDS_WAIT waits for the
 * thread; SHARDS_POLL does nothing if the thread is still writing. */
typedef enum { SHARDS_POLL, SHARDS_WAIT } ShardsCollect;
NODISCARD Err shards_collect(RankShards *s, ShardsCollect how);
/* Collective: every rank sends the list of its written shards to rank 0. count: (ranks) written_n
 * of each rank. *failure receives the error of rank 0 when it appends them to the manifest. */
NODISCARD Err shards_report(RankShards *s, const uint64_t *count, Err *failure);

#endif
