/* Fills the batches of a training run before they are used. Depends on batch, prefetch. */
#include "base/mem.h"
#include "data/batch.h"
#include "data/prefetch.h"

struct Loader {
  DataSet *data;
  const OrderPlan *plan;
  LoaderSpec spec;
  Batch ring[PREFETCH_SLOTS];
  Prefetch *prefetch;
};

uint64_t loader_number(const LoaderSpec *s, uint64_t n) {
  uint64_t stride = s->stride ? s->stride : 1;
  /* batches of each group that this loader returns */
  uint64_t mine = (s->end - s->begin + stride - 1) / stride;
  return (s->step + n / mine) * s->group + s->begin + n % mine * stride;
}

static Err fill_slot(void *context, int slot, uint64_t n) {
  Loader *l = context;
  uint64_t number = loader_number(&l->spec, n);
  return batch_fill(&l->ring[slot], l->data, l->plan, l->spec.seed, number / l->plan->batches,
                    number % l->plan->batches);
}

Err loader_open(Loader **out, DataSet *d, const OrderPlan *plan, const LoaderSpec *spec) {
  *out = NULL;
  Loader *l;
  TRY(mem_alloc(&l, 1, sizeof *l));
  l->data = d;
  l->plan = plan;
  l->spec = *spec;
  Err err = ERR_OK;
  for (int i = 0; i < PREFETCH_SLOTS && !err; i++)
    err = batch_new(&l->ring[i], plan->capacity, plan->most_sentences);
  if (!err) err = prefetch_open(&l->prefetch, fill_slot, l);
  if (err)
    loader_close(l);
  else
    *out = l;
  return err;
}

Err loader_next(Loader *l, const Batch **batch) {
  int slot;
  TRY(prefetch_next(l->prefetch, &slot));
  *batch = &l->ring[slot];
  return ERR_OK;
}

void loader_close(Loader *l) {
  if (!l) return;
  prefetch_close(l->prefetch);
  for (int i = 0; i < PREFETCH_SLOTS; i++) batch_free(&l->ring[i]);
  mem_free(l);
}
