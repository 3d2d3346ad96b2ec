/* Writes a TextBatch into the arrays that a BERT model reads: picks, and on a device padding.
 * Depends on bert_internal.h, data/batch.h (for the unit of the padding). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "data/batch.h"
#include "model/bert_internal.h"

/* Number of float targets of a pick. */
static size_t targets_per_pick(const BertConfig *c) {
  if (!bert_is_classifier(c)) return 0;
  return c->head == BERT_HEAD_SOFTMAX ? 1 : (size_t)c->labels;
}

/* Takes n elements of 4 bytes; returns an address in `block`, or NULL if block is NULL. */
static void *take_ints(int32_t *block, size_t *at, size_t n) {
  void *here = block ? block + *at : NULL;
  *at += n;
  return here;
}

/* Sets the pointers of `batch` to arrays of the largest size in `block`; returns the size of the
 * block. */
static size_t lay_out_batch(BertBatch *batch, const Bert *m, int32_t *block) {
  size_t at = 0, tokens = m->model.capacity, picks = m->picks_max;
  batch->key = take_ints(block, &at, 2);
  batch->id = take_ints(block, &at, tokens);
  batch->position = take_ints(block, &at, tokens);
  batch->segment = take_ints(block, &at, tokens);
  batch->off = take_ints(block, &at, picks + 1);
  batch->pick = take_ints(block, &at, picks);
  batch->pick_off = take_ints(block, &at, picks + 1);
  batch->word = take_ints(block, &at, m->config.head == BERT_HEAD_MLM ? picks : 0);
  batch->target = take_ints(block, &at, picks * targets_per_pick(&m->config));
  return at;
}

size_t bert_batch_ints(const Bert *m) {
  BertBatch batch;
  return lay_out_batch(&batch, m, NULL);
}

/* Rounds up to a multiple of a unit of about 1/32 of the capacity, so that few shapes occur. */
static size_t round_rows(size_t rows, size_t capacity) {
  size_t unit = BATCH_UNIT;
  while (unit > 8 && unit > capacity / 32) unit /= 2;
  size_t rounded = (rows + unit - 1) / unit * unit;
  return rounded < capacity ? rounded : capacity;
}

/* Returns the smallest power of two that is at least n. A head computes few rows, so a coarse
 * unit is cheap. */
static size_t round_sentences(size_t n) {
  size_t rounded = 16;
  while (rounded < n) rounded *= 2;
  return rounded;
}

/* Sets the numbers of tokens, sentences and picks. On a device there is at least one sentence that
 * is no text, for the padding. */
static void set_counts(const Bert *m, BertBatch *batch, const TextBatch *given) {
  bool pads = m->staging != NULL, is_mlm = m->config.head == BERT_HEAD_MLM;
  size_t most = m->picks_max;
  batch->tokens = pads ? round_rows(given->tokens, m->model.capacity) : given->tokens;
  batch->sentences = pads ? round_sentences((size_t)given->texts + 1) : given->texts;
  batch->picks = batch->sentences;
  if (is_mlm) {
    batch->picks = pads ? round_rows(given->masked, m->model.capacity) : given->masked;
    if (batch->picks == 0) { /* one pick without loss, so that no operation has 0 rows */
      batch->picks = 1;
      if (!pads) batch->sentences++;
    }
  }
  if (batch->sentences > most) batch->sentences = most;
  if (batch->picks > most) batch->picks = most;
}

/* Copies n ints and fills up to `all` with `rest`; without `from` all are `rest`. */
static void copy_ints(int32_t *to, const int32_t *from, size_t n, size_t all, int32_t rest) {
  if (from)
    memcpy(to, from, n * sizeof *to);
  else
    n = 0;
  for (size_t i = n; i < all; i++) to[i] = rest;
}

/* Picks the first token of each text. Sentences that are no text get a pick with index -1. */
static void pick_first_tokens(const BertBatch *batch, const TextBatch *given) {
  copy_ints(batch->pick, given->off, given->texts, batch->picks, -1);
  for (size_t i = 0; i <= batch->sentences; i++) batch->pick_off[i] = (int32_t)i;
}

/* Picks the masked tokens. Picks with index -1 belong to the sentence after the texts. */
static void pick_masked_tokens(const BertBatch *batch, const TextBatch *given) {
  uint32_t k = 0;
  copy_ints(batch->pick, given->masked_at, given->masked, batch->picks, -1);
  copy_ints(batch->word, given->masked_id, given->masked, batch->picks, -1);
  for (uint32_t i = 0; i < given->texts; i++) {
    batch->pick_off[i] = (int32_t)k;
    while (k < given->masked && given->masked_at[k] < given->off[i + 1]) k++;
  }
  assert(k == given->masked && "bug: masked_at is not in increasing order");
  batch->pick_off[given->texts] = (int32_t)k;
  for (size_t i = given->texts + 1; i <= batch->sentences; i++)
    batch->pick_off[i] = (int32_t)batch->picks;
}

static void copy_targets(const Bert *m, const BertBatch *batch, const TextBatch *given) {
  size_t each = targets_per_pick(&m->config), n = (size_t)given->texts * each;
  if (!given->target) return;
  memcpy(batch->target, given->target, n * sizeof *batch->target);
  /* No loss: a negative class, or NaN. */
  for (size_t i = n; i < batch->picks * each; i++)
    batch->target[i] = m->config.head == BERT_HEAD_SOFTMAX ? -1 : NAN;
}

void bert_load_batch(Bert *m, const TextBatch *given, uint64_t key) {
  const Backend *b = m->model.backend;
  BertBatch *batch = &m->current;
  int32_t *block = m->staging ? m->staging : m->block;
  bool is_mlm = m->config.head == BERT_HEAD_MLM;
  assert(given->texts > 0 && given->tokens <= m->model.capacity &&
         given->texts <= given->tokens && given->masked <= given->tokens);
  lay_out_batch(batch, m, block);
  set_counts(m, batch, given);
  memcpy(batch->key, &key, sizeof key);
  copy_ints(batch->id, given->id, given->tokens, batch->tokens, 0);
  copy_ints(batch->position, given->position, given->tokens, batch->tokens, 0);
  /* A model with one segment (RoBERTa) reads both texts of a pair as that one. */
  copy_ints(batch->segment, m->config.segments > 1 ? given->segment : NULL, given->tokens,
            batch->tokens, 0);
  copy_ints(batch->off, given->off, given->texts + 1, batch->sentences + 1,
            (int32_t)batch->tokens);
  if (is_mlm)
    pick_masked_tokens(batch, given);
  else
    pick_first_tokens(batch, given);
  copy_targets(m, batch, given);
  batch->has_target = is_mlm ? given->masked_id != NULL : given->target != NULL;
  if (!m->staging) return;
  lay_out_batch(batch, m, m->block);
  b->put(b, m->block, m->staging, bert_batch_ints(m) * sizeof *m->block);
}

uint64_t bert_count_predictions(const BertConfig *c, const TextBatch *batch) {
  uint64_t count = 0;
  size_t n = (size_t)batch->texts * targets_per_pick(c);
  if (c->head == BERT_HEAD_MLM) return batch->masked_id ? batch->masked : 0;
  if (!batch->target) return 0;
  for (size_t i = 0; i < n; i++) {
    float t = batch->target[i];
    count += c->head == BERT_HEAD_SOFTMAX ? t >= 0 : !isnan(t);
  }
  return count;
}
