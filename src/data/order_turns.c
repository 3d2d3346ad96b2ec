/* Caches the first batch of each window in the most recently requested epoch: a lookup is a
 * binary search, and another epoch costs one pass over the windows. The result depends only on
 * the arguments. Depends on base, order. */
#include "data/order_turns.h"

#include <pthread.h>

#include "base/mem.h"
#include "base/rng.h"

struct WindowTurns {
  pthread_mutex_t lock;
  bool is_filled;
  uint64_t key;    /* key of the cached epoch */
  uint64_t *begin; /* (windows + 1) first batch of the k-th window of the epoch */
};

Err turns_new(OrderPlan *plan) {
  WindowTurns *t;
  TRY(mem_alloc(&t, 1, sizeof *t));
  plan->turns = t;
  pthread_mutex_init(&t->lock, NULL);
  return mem_alloc(&t->begin, plan->windows + 1, sizeof *t->begin);
}

void turns_free(OrderPlan *plan) {
  if (!plan->turns) return;
  pthread_mutex_destroy(&plan->turns->lock);
  mem_free(plan->turns->begin);
  mem_free(plan->turns);
}

static void fill_turns(const OrderPlan *plan, WindowTurns *t, uint64_t key) {
  for (size_t k = 0; k < plan->windows; k++)
    t->begin[k + 1] = t->begin[k] + plan->window[rng_permute(key, plan->windows, k)].batches;
  t->key = key;
  t->is_filled = true;
}

size_t turns_find(const OrderPlan *plan, uint64_t key, uint64_t *i) {
  WindowTurns *t = plan->turns;
  pthread_mutex_lock(&t->lock);
  if (!t->is_filled || t->key != key) fill_turns(plan, t, key);
  size_t low = 0;
  size_t high = plan->windows;
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    if (t->begin[middle] <= *i)
      low = middle;
    else
      high = middle;
  }
  *i -= t->begin[low];
  pthread_mutex_unlock(&t->lock);
  return (size_t)rng_permute(key, plan->windows, low);
}
