/* The shards of a data set, opened when they are first read. At most `limit` shards are mapped at
 * the same time: the kernel limits the mappings of a process (vm.max_map_count, usually 65,530),
 * and a data set may have more shards. Threads: any, each with its own PoolReader. Depends on
 * base, shard. */
#ifndef DATA_SHARD_POOL_H
#define DATA_SHARD_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "data/shard.h"

/* Opens shard number i of the data set. */
typedef Err (*ShardPoolOpen)(void *context, size_t i, Shard *s);

typedef struct PoolShard PoolShard;
typedef struct PoolReader PoolReader;

typedef struct {
  _Atomic(PoolShard *) open; /* NULL: the shard is not mapped */
} PoolSlot;

typedef struct {
  PoolSlot *slot; /* (shards) one slot per shard */
  size_t shards;
  size_t limit;
  ShardPoolOpen open;
  void *context;
  pthread_mutex_t lock; /* protects the fields after it */
  PoolShard **ring;     /* (limit) open shards, of which `count` are in use */
  size_t count;
  /* index in the ring at which the search for a shard to close continues */
  size_t hand;
  /* list of shards that new readers cannot find, but that may still be in use */
  PoolShard *retired;
  PoolReader *reader; /* list of active readers */
  uint64_t clock;     /* logical time: counts evictions and readers */
  bool has_lock;
} ShardPool;

NODISCARD Err pool_init(ShardPool *pool, size_t shards, size_t limit, ShardPoolOpen open,
                        void *context);
void pool_free(ShardPool *pool);

/* A reader of shards, active from pool_enter to pool_leave. */
struct PoolReader {
  ShardPool *pool;
  uint64_t since; /* logical time at which the reader last held no shard */
  PoolReader *next;
};
void pool_enter(ShardPool *pool, PoolReader *r);
void pool_leave(PoolReader *r);
/* Returns shard i and opens it if necessary. The shard stays mapped until this reader's next call
 * of pool_get or pool_leave. */
NODISCARD Err pool_get(PoolReader *r, size_t i, Shard **shard);
/* Returns shard i if it is open, otherwise NULL. The shard stays mapped as after pool_get. */
Shard *pool_peek(const PoolReader *r, size_t i);

#endif
