/* Packed batches of texts, and the thread that fills them. Depends on dataset, order, prefetch,
 * text_shard. */
#include "data/text_loader.h"

#include "base/mem.h"
#include "data/prefetch.h"
#include "data/text_shard.h"

Err text_buffer_new(TextBuffer *b, const DataSet *d, uint32_t capacity, uint32_t most_texts) {
  size_t texts = most_texts;
  *b = (TextBuffer){.capacity = capacity, .most_texts = most_texts};
  b->targets = text_targets(d->meta.classify);
  Err err = mem_alloc(&b->example, texts, sizeof *b->example);
  if (!err) err = mem_alloc(&b->id, capacity, sizeof *b->id);
  if (!err) err = mem_alloc(&b->position, capacity, sizeof *b->position);
  if (!err) err = mem_alloc(&b->segment, capacity, sizeof *b->segment);
  if (!err) err = mem_alloc(&b->off, texts + 1, sizeof *b->off);
  if (!err) err = mem_alloc(&b->target, texts * b->targets, sizeof *b->target);
  if (err) text_buffer_free(b);
  b->batch = (TextBatch){.id = b->id,
                         .position = b->position,
                         .segment = b->segment,
                         .off = b->off,
                         .target = b->targets ? b->target : NULL};
  return err;
}

Err text_buffer_mask(TextBuffer *b, const DataSet *d, double rate) {
  text_mask_begin(&b->mask, &d->meta, rate);
  TRY(mem_alloc(&b->masked_at, b->capacity, sizeof *b->masked_at));
  TRY(mem_alloc(&b->masked_id, b->capacity, sizeof *b->masked_id));
  b->batch.masked_at = b->masked_at;
  b->batch.masked_id = b->masked_id;
  return ERR_OK;
}

void text_buffer_free(TextBuffer *b) {
  mem_free(b->example);
  mem_free(b->id);
  mem_free(b->position);
  mem_free(b->segment);
  mem_free(b->off);
  mem_free(b->target);
  mem_free(b->masked_at);
  mem_free(b->masked_id);
  *b = (TextBuffer){0};
}

static void empty_batch(TextBuffer *b) {
  b->batch.texts = 0;
  b->batch.tokens = 0;
  b->off[0] = 0;
}

/* Appends example `within` of the shard; the caller has stored its number in b->example. */
static Err add_text(TextBuffer *b, const Meta *m, Shard *shard, uint64_t within) {
  TextBatch *batch = &b->batch;
  size_t at = batch->tokens, k = batch->texts;
  uint32_t tokens, first;
  TRY(text_shard_ids(shard, m, within, b->id + at, b->capacity - at, &tokens, &first));
  TRY(text_shard_target(shard, m, within, b->target + k * b->targets));
  for (uint32_t i = 0; i < tokens; i++) {
    b->position[at + i] = (int32_t)i;
    b->segment[at + i] = i >= first;
  }
  batch->tokens += tokens;
  batch->texts++;
  b->off[batch->texts] = (int32_t)batch->tokens;
  return ERR_OK;
}

/* Masks tokens of all texts of the batch. */
static void mask_batch(TextBuffer *b, uint64_t key) {
  TextBatch *batch = &b->batch;
  batch->masked = 0;
  for (uint32_t k = 0; b->mask.rate > 0 && k < batch->texts; k++) {
    MaskedText text = {.number = b->example[k],
                       .id = b->id + b->off[k],
                       .tokens = (uint32_t)(b->off[k + 1] - b->off[k]),
                       .row = b->off[k]};
    batch->masked += text_mask_apply(&b->mask, key, &text, b->masked_at + batch->masked,
                                     b->masked_id + batch->masked);
  }
}

static Err add_texts(TextBuffer *b, DataReader *r, uint32_t n) {
  for (uint32_t k = 0; k < n; k++) {
    uint64_t within;
    Shard *shard;
    TRY(dataset_find(r, SPLIT_TRAIN, b->example[k], &shard, &within));
    TRY(add_text(b, &r->data->meta, shard, within));
  }
  return ERR_OK;
}

Err text_buffer_fill(TextBuffer *b, DataSet *d, const OrderPlan *plan, uint64_t seed,
                     uint64_t epoch, uint64_t index) {
  uint32_t n;
  TRY(order_batch(&d->order, plan, seed, epoch, index, b->example, &n));
  b->epoch = epoch;
  b->index = index;
  empty_batch(b);
  DataReader reader;
  dataset_enter(d, &reader);
  Err err = add_texts(b, &reader, n);
  dataset_leave(&reader);
  if (!err) mask_batch(b, text_mask_key(seed, SPLIT_TRAIN, epoch));
  return err;
}

/* Appends texts in order until the next one does not fit. */
static Err add_texts_from(TextBuffer *b, DataReader *r, Split split, uint64_t *next) {
  const DataSet *d = r->data;
  for (; *next < d->meta.split[split].pairs && b->batch.texts < b->most_texts; ++*next) {
    uint64_t within;
    uint32_t tokens;
    Shard *shard;
    TRY(dataset_find(r, split, *next, &shard, &within));
    TRY(text_shard_length(shard, within, &tokens));
    bool fits = tokens <= b->capacity - b->batch.tokens;
    if (!fits && b->batch.texts) break;
    if (!fits)
      return err_set(ERR_USAGE,
                     "a text of the %s split has %u tokens, more than a batch can hold (%u); "
                     "raise --batch-tokens",
                     split_name[split], tokens, b->capacity);
    b->example[b->batch.texts] = *next;
    TRY(add_text(b, &d->meta, shard, within));
  }
  return ERR_OK;
}

Err text_buffer_fill_from(TextBuffer *b, DataSet *d, Split split, uint64_t *next) {
  DataReader reader;
  empty_batch(b);
  dataset_enter(d, &reader);
  Err err = add_texts_from(b, &reader, split, next);
  dataset_leave(&reader);
  if (!err) mask_batch(b, text_mask_key(d->meta.seed, split, 0));
  return err;
}

struct TextLoader {
  DataSet *data;
  const OrderPlan *plan;
  LoaderSpec spec;
  TextBuffer ring[PREFETCH_SLOTS];
  Prefetch *prefetch;
};

static Err fill_slot(void *context, int slot, uint64_t n) {
  TextLoader *l = context;
  uint64_t number = loader_number(&l->spec, n);
  return text_buffer_fill(&l->ring[slot], l->data, l->plan, l->spec.seed,
                          number / l->plan->batches, number % l->plan->batches);
}

static Err open_slot(const TextLoader *l, TextBuffer *b) {
  TRY(text_buffer_new(b, l->data, l->plan->capacity, l->plan->most_sentences));
  return l->spec.mask_rate > 0 ? text_buffer_mask(b, l->data, l->spec.mask_rate) : ERR_OK;
}

Err text_loader_open(TextLoader **out, DataSet *d, const OrderPlan *plan,
                     const LoaderSpec *spec) {
  TextLoader *l;
  *out = NULL;
  TRY(mem_alloc(&l, 1, sizeof *l));
  l->data = d;
  l->plan = plan;
  l->spec = *spec;
  Err err = ERR_OK;
  for (int i = 0; i < PREFETCH_SLOTS && !err; i++) err = open_slot(l, &l->ring[i]);
  if (!err) err = prefetch_open(&l->prefetch, fill_slot, l);
  if (err)
    text_loader_close(l);
  else
    *out = l;
  return err;
}

Err text_loader_next(TextLoader *l, const TextBuffer **batch) {
  int slot;
  TRY(prefetch_next(l->prefetch, &slot));
  *batch = &l->ring[slot];
  return ERR_OK;
}

void text_loader_close(TextLoader *l) {
  if (!l) return;
  prefetch_close(l->prefetch);
  for (int i = 0; i < PREFETCH_SLOTS; i++) text_buffer_free(&l->ring[i]);
  mem_free(l);
}
