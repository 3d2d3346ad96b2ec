/* Opens shards on demand. Finding an open shard is one atomic load without a lock, because it
 * happens for every sentence. Closing a shard therefore takes two steps: it is removed from its
 * slot, so that no new reader finds it (it is retired), and it is unmapped when every reader that
 * was active at that time has called pool_get for a shard that was not open, or has left. Depends on base,
 * shard. */
#include "data/shard_pool.h"

#include "base/mem.h"

struct PoolShard {
  Shard shard;
  size_t number;
  _Atomic bool is_used; /* The shard was read since the clock hand last passed it. */
  uint64_t retired_at;
  PoolShard *next; /* next shard in the list of retired shards */
};

Err pool_init(ShardPool *pool, size_t shards, size_t limit, ShardPoolOpen open, void *context) {
  *pool = (ShardPool){.shards = shards, .limit = limit ? limit : 1};
  pool->open = open;
  pool->context = context;
  pthread_mutex_init(&pool->lock, NULL);
  pool->has_lock = true;
  if (pool->limit > shards && shards) pool->limit = shards;
  TRY(mem_alloc(&pool->slot, shards, sizeof *pool->slot));
  return mem_alloc(&pool->ring, pool->limit, sizeof *pool->ring);
}

static void free_shard(PoolShard *s) {
  shard_close(&s->shard);
  mem_free(s);
}

/* Unmaps the retired shards that no active reader can still use. */
static void free_retired(ShardPool *pool) {
  uint64_t oldest = UINT64_MAX;
  for (const PoolReader *r = pool->reader; r; r = r->next) {
    if (r->since < oldest) oldest = r->since;
  }
  for (PoolShard **link = &pool->retired; *link;) {
    PoolShard *s = *link;
    if (s->retired_at < oldest) {
      *link = s->next;
      free_shard(s);
    } else {
      link = &s->next;
    }
  }
}

void pool_free(ShardPool *pool) {
  free_retired(pool);
  for (size_t i = 0; i < pool->count; i++) free_shard(pool->ring[i]);
  mem_free(pool->slot);
  mem_free(pool->ring);
  if (pool->has_lock) pthread_mutex_destroy(&pool->lock);
  *pool = (ShardPool){0};
}

void pool_enter(ShardPool *pool, PoolReader *r) {
  pthread_mutex_lock(&pool->lock);
  *r = (PoolReader){.pool = pool, .since = ++pool->clock, .next = pool->reader};
  pool->reader = r;
  pthread_mutex_unlock(&pool->lock);
}

void pool_leave(PoolReader *r) {
  ShardPool *pool = r->pool;
  pthread_mutex_lock(&pool->lock);
  PoolReader **link = &pool->reader;
  while (*link != r) link = &(*link)->next;
  *link = r->next;
  if (pool->retired) free_retired(pool);
  pthread_mutex_unlock(&pool->lock);
}

/* Retires one shard by the CLOCK algorithm: the next shard in the ring that was not read since
 * the hand last passed it. Returns its index in the ring. */
static size_t retire_one(ShardPool *pool) {
  for (;; pool->hand = (pool->hand + 1) % pool->count) {
    PoolShard *s = pool->ring[pool->hand];
    if (atomic_exchange_explicit(&s->is_used, false, memory_order_relaxed)) continue;
    atomic_store(&pool->slot[s->number].open, NULL);
    s->retired_at = ++pool->clock;
    s->next = pool->retired;
    pool->retired = s;
    size_t place = pool->hand;
    pool->hand = (pool->hand + 1) % pool->count;
    return place;
  }
}

static Err open_shard(ShardPool *pool, size_t i, PoolShard **out) {
  PoolShard *s;
  TRY(mem_alloc(&s, 1, sizeof *s));
  Err err = pool->open(pool->context, i, &s->shard);
  if (err) {
    free_shard(s);
    return err;
  }
  s->number = i;
  pool->ring[pool->count == pool->limit ? retire_one(pool) : pool->count++] = s;
  atomic_store_explicit(&pool->slot[i].open, s, memory_order_release);
  *out = s;
  return ERR_OK;
}

/* The slow path of pool_get, for a shard that is not open. */
static Err get_locked(PoolReader *r, size_t i, PoolShard **out) {
  ShardPool *pool = r->pool;
  r->since = ++pool->clock; /* The reader holds no shard at this point. */
  free_retired(pool);
  *out = atomic_load_explicit(&pool->slot[i].open, memory_order_relaxed);
  return *out ? ERR_OK : open_shard(pool, i, out);
}

Err pool_get(PoolReader *r, size_t i, Shard **shard) {
  ShardPool *pool = r->pool;
  PoolShard *s = atomic_load_explicit(&pool->slot[i].open, memory_order_acquire);
  if (!s) {
    pthread_mutex_lock(&pool->lock);
    Err err = get_locked(r, i, &s);
    pthread_mutex_unlock(&pool->lock);
    if (err) return err;
  }
  if (!atomic_load_explicit(&s->is_used, memory_order_relaxed))
    atomic_store_explicit(&s->is_used, true, memory_order_relaxed);
  *shard = &s->shard;
  return ERR_OK;
}

Shard *pool_peek(const PoolReader *r, size_t i) {
  PoolShard *s = atomic_load_explicit(&r->pool->slot[i].open, memory_order_acquire);
  return s ? &s->shard : NULL;
}
