/* The shards of a data set, opened when they are first read. At most `limit` are mapped at once:
 * the kernel limits the mappings of a process (vm.max_map_count, usually 65,530), and a data set
 * may have more shards than that. Threads: any, each with its own PoolReader. Depends on base,
 * shard. */
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
  _Atomic(PoolShard *) open; /* NULL: not mapped */
} PoolSlot;

typedef struct {
  PoolSlot *slot; /* (shards) */
  size_t shards;
  size_t limit;
  ShardPoolOpen open;
  void *context;
  pthread_mutex_t lock; /* guards all below */
  PoolShard **ring;     /* (limit) open shards; `count` in use */
  size_t count;
  size_t hand;        /* where the search for a shard to close continues */
  PoolShard *retired; /* closed for new readers, perhaps still in use */
  PoolReader *reader; /* list of active readers */
  uint64_t clock;     /* counts evictions and readers */
  bool has_lock;
} ShardPool;

NODISCARD Err pool_init(ShardPool *pool, size_t shards, size_t limit, ShardPoolOpen open,
                        void *context);
void pool_free(ShardPool *pool);

/* A section of code that reads shards. */
struct PoolReader {
  ShardPool *pool;
  uint64_t since; /* the clock when the reader last held no shard */
  PoolReader *next;
};
void pool_enter(ShardPool *pool, PoolReader *r);
void pool_leave(PoolReader *r);
/* Shard i, opened if need be. It stays mapped until this reader's next call of pool_get or
 * pool_leave. */
NODISCARD Err pool_get(PoolReader *r, size_t i, Shard **shard);
/* Shard i if it is open, else NULL; it stays mapped as long. */
Shard *pool_peek(const PoolReader *r, size_t i);

#endif
