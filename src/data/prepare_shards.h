/* The training shards of several ranks. Shard i is written by rank i % count, on a thread of its own,
 * while the rank goes on encoding; rank 0 records the shards in order when they are on disk.
 * Depends on ranks, prepare_encode. */
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
  size_t count, rank; /* of ranks */

  /* The shard that the thread writes. */
  ShardBuilder full;
  ManifestEntry entry;
  size_t number;
  pthread_t thread;
  bool is_writing;        /* the thread was started and not joined */
  atomic_bool is_on_disk; /* it has ended, with `result` */
  ErrRecord result;

  WrittenShard *written; /* by this rank, not reported yet */
  size_t written_n, written_cap;
  ManifestEntry *open; /* rank 0: complete, but not all known to be on disk; the first is shard
                          number meta->split[SPLIT_TRAIN].shards */
  size_t open_n, open_cap;
  WrittenShard *report; /* rank 0: what the ranks send */
  size_t report_cap;
  const void **send; /* (count) of each, for Ranks.exchange */
  void **recv;
  size_t *send_n, *recv_n;
} RankShards;

/* p->builder must have been begun; p->share points to *s from now on. */
NODISCARD Err shards_open(RankShards *s, Prepare *p);
/* Waits for the thread. */
void shards_close(RankShards *s);
/* Does this rank write the shard of that number? */
bool shards_is_writer(const RankShards *s, size_t number);
/* Prepare.end_train_shard. */
NODISCARD Err shards_end(Prepare *p);
/* Collects what the thread has written; with `waits`, when it is done. */
typedef enum { SHARDS_POLL, SHARDS_WAIT } ShardsCollect;
NODISCARD Err shards_collect(RankShards *s, ShardsCollect how);
/* Every rank: sends rank 0 what was collected. count: (ranks) written_n of each rank. *failure is
 * what rank 0 could not record. */
NODISCARD Err shards_report(RankShards *s, const uint64_t *count, Err *failure);

#endif
