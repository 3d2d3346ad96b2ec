/* Lengths, packing and random token ids of the batches of `bench train`. Depends on data/order, model. */
#include "cmd/bench_batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/input.h"
#include "model/bert.h"
#include "model/presets.h"
#include "model/transformer.h"

#define PAIR_TOKENS 4096 /* longest sentence in a file of lengths */
#define CLASSES     3    /* of the classifier */

/* ---- lengths ---- */

static Err add_lengths(Lengths *l, uint32_t source, uint32_t target) {
  TRY(mem_grow(&l->len, &l->cap, l->pairs + 1, sizeof *l->len));
  l->len[l->pairs][0] = source - 1;
  l->len[l->pairs++][1] = target - 1;
  if (source > l->longest) l->longest = source;
  if (target > l->longest) l->longest = target;
  return ERR_OK;
}

/* Reads a line of `sides` lengths from 2 to `most`. The second length of a text is 1, the end of an
 * empty sentence. Returns false if the line is something else. */
static bool parse_lengths(const char *line, size_t n, int sides, unsigned most,
                          unsigned len[2]) {
  char text[64], rest;
  snprintf(text, sizeof text, "%.*s", (int)(n < 60 ? n : 60), line);
  len[1] = 1;
  if (sides == 1)
    return sscanf(text, "%u %c", &len[0], &rest) == 1 && len[0] >= 2 && len[0] <= most;
  return sscanf(text, "%u %u", &len[0], &len[1]) == 2 && len[0] >= 2 && len[1] >= 2 &&
         len[0] <= most && len[1] <= most;
}

static Err refuse_line(const char *path, uint64_t number, int sides, unsigned most) {
  const char *what = sides == 1 ? "the length of a text" : "a source and a target length";
  const char *with = sides == 1 ? "[CLS] and [SEP]" : "the end-of-sentence token";
  return err_set(ERR_WORK,
                 "%s:%llu: expected %s from 2 to %u tokens, with %s; correct this line", path,
                 (unsigned long long)number, what, most, with);
}

static Err read_lengths(Lengths *l, const char *path, int sides, unsigned most) {
  Input *in;
  const char *line;
  size_t n;
  unsigned len[2];
  TRY(input_open(&in, path));
  Err err = ERR_OK;
  while (!err && !(err = input_line(in, &line, &n)) && line) {
    if (parse_lengths(line, n, sides, most, len))
      err = add_lengths(l, len[0], len[1]);
    else
      err = refuse_line(path, input_number(in), sides, most);
  }
  input_close(in);
  if (!err && l->pairs == 0)
    err = err_set(ERR_WORK, "%s is empty; it must have %s per line", path,
                  sides == 1 ? "one length" : "two lengths");
  return err;
}

Err bench_read_lengths(Lengths *l, const char *path) {
  return read_lengths(l, path, 2, PAIR_TOKENS);
}

static Err give_lengths(void *context, uint64_t i, uint32_t len[2]) {
  const Lengths *l = context;
  len[0] = l->len[i][0];
  len[1] = l->len[i][1];
  return ERR_OK;
}

static Err open_order(Order *order, Lengths *l) {
  char path[] = "/tmp/trireme-bench-XXXXXX", hex[65];
  uint64_t bytes;
  int fd = mkstemp(path);
  if (fd < 0) return err_errno("cannot create", path);
  close(fd);
  Err err = order_write(path, &(uint64_t){l->pairs}, 1, give_lengths, l, &bytes, hex);
  if (!err) err = order_open(order, path);
  unlink(path);
  return err;
}

/* Finds the examples of batch number i of the plan. */
static Err find_examples(BenchBatches *b, uint64_t i, uint64_t *number, uint32_t *count) {
  return order_batch(&b->order, &b->plan, 7, i / b->plan.batches, i % b->plan.batches, number,
                     count);
}

static void fill_side(Rng *rng, int32_t *id, int32_t *pos, uint32_t n, uint32_t vocab) {
  for (uint32_t i = 0; i < n; i++) {
    id[i] = (int32_t)(4 + rng_below(rng, vocab - 4));
    pos[i] = (int32_t)i;
  }
}

/* ---- sentence pairs ---- */

static Err fill_pairs(BenchBatches *all, Batch *b, uint64_t i, uint32_t vocab) {
  Rng rng = {.key = i};
  const Lengths *l = &all->lengths;
  TRY(find_examples(all, i, b->pair, &b->sentences));
  b->rows[0] = b->rows[1] = 0;
  for (uint32_t k = 0; k < b->sentences; k++) {
    uint32_t n = l->len[b->pair[k]][0] + 1, m = l->len[b->pair[k]][1] + 1;
    fill_side(&rng, b->src + b->rows[0], b->src_pos + b->rows[0], n, vocab);
    fill_side(&rng, b->tgt_in + b->rows[1], b->tgt_pos + b->rows[1], m, vocab);
    fill_side(&rng, b->tgt_out + b->rows[1], b->tgt_pos + b->rows[1], m, vocab);
    b->src_off[k] = (int32_t)b->rows[0];
    b->tgt_off[k] = (int32_t)b->rows[1];
    b->rows[0] += n;
    b->rows[1] += m;
  }
  b->src_off[b->sentences] = (int32_t)b->rows[0];
  b->tgt_off[b->sentences] = (int32_t)b->rows[1];
  batch_pad(b, 0);
  return ERR_OK;
}

static Err new_pairs(BenchBatches *all, size_t i, uint32_t vocab) {
  Batch *b = &all->pairs[i];
  TRY(batch_new(b, all->plan.capacity, all->plan.most_sentences));
  TRY(fill_pairs(all, b, i, vocab));
  all->batch[i] = (BenchBatch){.data = b,
                               .tokens = {b->rows[0], b->rows[1]},
                               .examples = b->sentences,
                               .predictions = b->rows[1]};
  return ERR_OK;
}

/* ---- texts ---- */

/* Sets the arrays of a batch of texts, which are in one block. */
static Err new_text_arrays(BenchBatches *all, size_t i, int32_t **off, float **target) {
  TextBatch *b = &all->texts[i];
  size_t tokens = all->plan.capacity, texts = all->plan.most_sentences;
  TRY(mem_alloc(&all->ints[i], 3 * tokens + 2 * texts + 1, sizeof *all->ints[i]));
  int32_t *at = all->ints[i];
  *off = at + 3 * tokens;
  *target = (float *)(*off + texts + 1);
  *b = (TextBatch){.id = at,
                   .position = at + tokens,
                   .segment = at + 2 * tokens, /* zero */
                   .off = *off,
                   .target = *target};
  return ERR_OK;
}

static Err new_texts(BenchBatches *all, size_t i, uint32_t vocab) {
  Rng rng = {.key = i};
  TextBatch *b = &all->texts[i];
  int32_t *off, *id;
  float *target;
  TRY(new_text_arrays(all, i, &off, &target));
  TRY(find_examples(all, i, all->number, &b->texts));
  id = all->ints[i];
  for (uint32_t k = 0; k < b->texts; k++) {
    uint32_t n = all->lengths.len[all->number[k]][0] + 1;
    fill_side(&rng, id + b->tokens, id + all->plan.capacity + b->tokens, n, vocab);
    target[k] = (float)rng_below(&rng, CLASSES);
    b->tokens += n;
    off[k + 1] = (int32_t)b->tokens;
  }
  all->batch[i] = (BenchBatch){
      .data = b, .tokens = {b->tokens, 0}, .examples = b->texts, .predictions = b->texts};
  return ERR_OK;
}

/* ---- opening ---- */

bool bench_has_texts(const ModelConfig *config) {
  return bert_config(config) != NULL;
}

Err bench_configure(ModelConfig *config, const char *preset, int vocab) {
  TRY(presets_configure(config, preset, vocab));
  if (!bench_has_texts(config)) return ERR_OK;
  BertConfig c = *bert_config(config);
  c.labels = CLASSES;
  *config = bert_model_config(&c);
  return ERR_OK;
}

/* Gives a translator as many positions as the longest sentence needs. A classifier keeps the
 * positions of its preset, as a pretrained model does. */
static Err read_config(BenchBatches *b, const BenchBatchSpec *spec) {
  TRY(bench_configure(&b->config, spec->preset, spec->vocab));
  if (bench_has_texts(&b->config))
    return read_lengths(&b->lengths, spec->path, 1,
                        (unsigned)bert_max_tokens(bert_config(&b->config)));
  TRY(bench_read_lengths(&b->lengths, spec->path));
  TransformerConfig c = *transformer_config(&b->config);
  c.max_positions = (int)b->lengths.longest;
  b->config = transformer_model_config(&c);
  return ERR_OK;
}

Err bench_batches_open(BenchBatches *b, const BenchBatchSpec *spec) {
  uint32_t vocab = (uint32_t)spec->vocab;
  TRY(read_config(b, spec));
  TRY(open_order(&b->order, &b->lengths));
  TRY(order_plan(&b->plan, &b->order, spec->capacity));
  TRY(mem_alloc(&b->number, b->plan.most_sentences, sizeof *b->number));
  for (size_t i = 0; i < spec->count; i++, b->count++)
    TRY(bench_has_texts(&b->config) ? new_texts(b, i, vocab) : new_pairs(b, i, vocab));
  return ERR_OK;
}

void bench_batches_close(BenchBatches *b) {
  for (size_t i = 0; i < BENCH_BATCHES; i++) {
    batch_free(&b->pairs[i]);
    mem_free(b->ints[i]);
  }
  mem_free(b->number);
  mem_free(b->lengths.len);
  order_plan_free(&b->plan);
  order_close(&b->order);
}
