/* Fills packed batches from the mapped shards. Depends on dataset, order. */
#include "data/batch.h"

#include <string.h>

#include "base/mem.h"

#define AHEAD  12 /* number of pairs between the prefetch and the copy of a pair */
#define PLACES 32 /* size of a ring buffer: a power of two above 2 * AHEAD */
_Static_assert(PLACES > 2 * AHEAD, "places of all pairs that are prefetched");

Err batch_new(Batch *b, uint32_t capacity, uint32_t most_sentences) {
  *b = (Batch){.capacity = capacity, .most_sentences = most_sentences};
  size_t ints = batch_ints(capacity, most_sentences);
  TRY(mem_alloc(&b->memory_, (ints + 1) / 2 + most_sentences + 1, sizeof *b->pair));
  batch_at(b, b->memory_);
  return ERR_OK;
}

size_t batch_ints(size_t capacity, size_t sentences) {
  return 2 + 5 * capacity + 2 * (sentences + 2);
}

void batch_at(Batch *b, int32_t *at) {
  size_t rows = b->capacity, offsets = (size_t)b->most_sentences + 2;
  b->key = (void *)at;
  b->src = at + 2;
  b->src_pos = b->src + rows;
  b->tgt_in = b->src_pos + rows;
  b->tgt_out = b->tgt_in + rows;
  b->tgt_pos = b->tgt_out + rows;
  b->src_off = b->tgt_pos + rows;
  b->tgt_off = b->src_off + offsets;
  int32_t *end = b->tgt_off + offsets;
  b->pair = (uint64_t *)(void *)(end + (batch_ints(rows, b->most_sentences) & 1));
}

void batch_free(Batch *b) {
  mem_free(b->memory_);
  *b = (Batch){0};
}

static void count_up(int32_t *position, size_t n) {
  for (size_t i = 0; i < n; i++) position[i] = (int32_t)i;
}

/* Appends example `within` of the shard to the batch as sentence k. */
static Err add_pair(Batch *b, const DataSet *d, Shard *shard, uint64_t within, uint32_t k) {
  ShardView view;
  TRY(shard_pair(shard, within, &view));
  size_t s = b->rows[0], t = b->rows[1], n = view.len[0], m = view.len[1];
  if (n > d->meta.max_tokens || m > d->meta.max_tokens) {
    return err_set(ERR_WORK,
                   "%s is damaged: pair %llu has %zu and %zu tokens, but at most %u are "
                   "allowed; prepare the data set again",
                   shard->file.map.path, (unsigned long long)within, n, m, d->meta.max_tokens);
  }
  if (s + n + 1 > b->capacity || t + m + 1 > b->capacity) {
    return err_set(ERR_WORK,
                   "%s/%s and the shards disagree about the length of pair %llu; prepare the "
                   "data set again",
                   d->dir, d->meta.order.name, (unsigned long long)b->pair[k]);
  }
  const Meta *meta = &d->meta;
  TRY(shard_copy(shard, &view, 0, b->src + s));
  TRY(shard_copy(shard, &view, 1, b->tgt_out + t));
  b->src[s + n] = meta->eos;
  b->tgt_out[t + m] = meta->eos;
  /* A tokenizer without <s> uses </s> as the first target token too. */
  b->tgt_in[t] = meta->bos >= 0 ? meta->bos : meta->eos;
  memcpy(b->tgt_in + t + 1, b->tgt_out + t, m * sizeof *b->tgt_in);
  count_up(b->src_pos + s, n + 1);
  count_up(b->tgt_pos + t, m + 1);
  b->rows[0] += (uint32_t)n + 1;
  b->rows[1] += (uint32_t)m + 1;
  b->src_off[k + 1] = (int32_t)b->rows[0];
  b->tgt_off[k + 1] = (int32_t)b->rows[1];
  return ERR_OK;
}

static void fill_rest(int32_t *row, uint32_t from, uint32_t to, int32_t value) {
  for (uint32_t i = from; i < to; i++) row[i] = value;
}

/* Rounds the token count up to a multiple of a unit, so that few different shapes occur. Batches
 * are about equally full, so padding is about 1 % of the tokens; more in very small batches. */
static uint32_t pad_rows(uint32_t rows, uint32_t capacity) {
  uint32_t unit = BATCH_UNIT;
  while (unit > 32 && unit > capacity / 32) unit /= 2;
  while (unit > 8 && unit > capacity / 8) unit /= 2;
  uint32_t padded = (rows + unit - 1) / unit * unit;
  return padded < capacity ? padded : capacity;
}

void batch_pad(Batch *b, int32_t pad) {
  fill_rest(b->src, b->rows[0], b->capacity, pad);
  fill_rest(b->src_pos, b->rows[0], b->capacity, 0);
  fill_rest(b->tgt_in, b->rows[1], b->capacity, pad);
  fill_rest(b->tgt_out, b->rows[1], b->capacity, -1);
  fill_rest(b->tgt_pos, b->rows[1], b->capacity, 0);
  for (int side = 0; side < 2; side++) {
    b->padded[side] = pad_rows(b->rows[side], b->capacity);
    fill_rest(side ? b->tgt_off : b->src_off, b->sentences + 1, b->most_sentences + 2,
              (int32_t)b->padded[side]);
  }
}

static void pad_with(Batch *b, const Meta *meta) {
  batch_pad(b, meta->pad >= 0 ? meta->pad : meta->eos);
}

/* Appends the n pairs whose numbers are in b->pair. Prefetches the index entry of a pair 2 *
 * AHEAD pairs before its copy and its ids AHEAD pairs before, when the index entry is in the
 * cache. A shard that is not open is not prefetched; it is opened when its first pair is
 * copied. */
static Err add_pairs(Batch *b, DataReader *r, uint32_t n) {
  /* locations of the pairs k to k + 2 * AHEAD; pair i is at index i % PLACES */
  PairPlace place[PLACES];
  uint32_t found = 0;
  for (uint32_t k = 0; k < n; k++) {
    for (; found < n && found <= k + 2 * AHEAD; found++) {
      PairPlace p = dataset_locate(r->data, SPLIT_TRAIN, b->pair[found]);
      const Shard *s = dataset_peek(r, SPLIT_TRAIN, p.shard);
      if (s) shard_prefetch_index(s, p.within);
      place[found % PLACES] = p;
    }
    if (k + AHEAD < n) {
      PairPlace p = place[(k + AHEAD) % PLACES];
      const Shard *s = dataset_peek(r, SPLIT_TRAIN, p.shard);
      if (s) shard_prefetch_ids(s, p.within);
    }
    Shard *shard;
    TRY(dataset_shard(r, SPLIT_TRAIN, place[k % PLACES].shard, &shard));
    TRY(add_pair(b, r->data, shard, place[k % PLACES].within, k));
    b->sentences++;
  }
  return ERR_OK;
}

Err batch_fill(Batch *b, DataSet *d, const OrderPlan *plan, uint64_t seed, uint64_t epoch,
               uint64_t index) {
  uint32_t n;
  TRY(order_batch(&d->order, plan, seed, epoch, index, b->pair, &n));
  b->epoch = epoch;
  b->index = index;
  b->sentences = 0;
  b->rows[0] = b->rows[1] = 0;
  b->src_off[0] = b->tgt_off[0] = 0;
  DataReader reader;
  dataset_enter(d, &reader);
  Err err = add_pairs(b, &reader, n);
  dataset_leave(&reader);
  if (!err) pad_with(b, &d->meta);
  return err;
}

/* Appends pairs in order until the next pair does not fit. */
static Err add_pairs_from(Batch *b, DataReader *r, Split split, uint64_t *next) {
  const DataSet *d = r->data;
  for (; *next < d->meta.split[split].pairs && b->sentences < b->most_sentences; ++*next) {
    uint64_t within;
    ShardView view;
    Shard *shard;
    TRY(dataset_find(r, split, *next, &shard, &within));
    TRY(shard_pair(shard, within, &view));
    bool fits = b->rows[0] + view.len[0] + 1 <= b->capacity &&
                b->rows[1] + view.len[1] + 1 <= b->capacity;
    if (!fits && b->sentences) break;
    if (!fits) {
      return err_set(ERR_USAGE,
                     "a sentence of the %s text has %u and %u tokens, more than a batch can "
                     "hold; raise --batch-tokens",
                     split_name[split], view.len[0], view.len[1]);
    }
    b->pair[b->sentences] = *next;
    TRY(add_pair(b, d, shard, within, b->sentences));
    b->sentences++;
  }
  return ERR_OK;
}

Err batch_fill_from(Batch *b, DataSet *d, Split split, uint64_t *next) {
  DataReader reader;
  b->sentences = 0;
  b->rows[0] = b->rows[1] = 0;
  b->src_off[0] = b->tgt_off[0] = 0;
  dataset_enter(d, &reader);
  Err err = add_pairs_from(b, &reader, split, next);
  dataset_leave(&reader);
  if (!err) pad_with(b, &d->meta);
  return err;
}
