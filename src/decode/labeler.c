/* Batches of texts for a classifier, and its outputs. Depends on model/classifier, lines.h. */
#include "decode/labeler.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/type.h"
#include "base/mem.h"

/* Default number of tokens in a batch. A batch of 4,096 keeps the activations of bert-base in the
 * caches of a CPU better than a larger one; a GPU needs larger GEMMs. */
#define BATCH_TOKENS        4096
#define BATCH_TOKENS_DEVICE 32768

struct Labeler {
  const Classifier *classifier;
  Model *model;
  size_t capacity, labels; /* maximum tokens of a batch; outputs of a text */
  EncodedText encoded;
  /* The current batch: */
  size_t texts, tokens;
  int32_t *id, *position, *segment; /* (capacity) */
  int32_t *off;                     /* (capacity + 1) */
  /* Its outputs: */
  void *raw;      /* (capacity, labels) in the backend's type; unused on a host */
  float *logits;  /* (capacity, labels) */
  double *output; /* (labels) */
  LineStep step;
  void *step_context;
};

Err labeler_new(Labeler **out, const Classifier *c, size_t batch_tokens) {
  Labeler *l;
  Err err;
  *out = NULL;
  if (!batch_tokens) batch_tokens = c->backend->host ? BATCH_TOKENS : BATCH_TOKENS_DEVICE;
  size_t longest = bert_max_tokens(c->config);
  TRY(mem_alloc(&l, 1, sizeof *l));
  l->classifier = c;
  l->capacity = batch_tokens > longest ? batch_tokens : longest;
  l->labels = (size_t)c->config->labels;
  /* Every text has at least [CLS] and [SEP]. */
  size_t texts = l->capacity / 2 + 1;
  ModelSpec spec = {.config = &c->model, .backend = c->backend, .capacity = l->capacity};
  TRY_DONE(model_new(&l->model, &spec));
  TRY_DONE(mem_alloc(&l->id, l->capacity, sizeof *l->id));
  TRY_DONE(mem_alloc(&l->position, l->capacity, sizeof *l->position));
  TRY_DONE(mem_alloc(&l->segment, l->capacity, sizeof *l->segment));
  TRY_DONE(mem_alloc(&l->off, texts + 1, sizeof *l->off));
  TRY_DONE(mem_alloc(&l->raw, texts * l->labels, type_size(c->backend->type)));
  TRY_DONE(mem_alloc(&l->logits, texts * l->labels, sizeof *l->logits));
  TRY_DONE(mem_alloc(&l->output, l->labels, sizeof *l->output));
done:
  if (err)
    labeler_free(l);
  else
    *out = l;
  return err;
}

void labeler_free(Labeler *l) {
  if (!l) return;
  model_free(l->model);
  encoded_text_free(&l->encoded);
  void *list[] = {l->id, l->position, l->segment, l->off, l->raw, l->logits, l->output};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) mem_free(list[i]);
  mem_free(l);
}

size_t labeler_capacity(const Labeler *l) {
  return l->capacity;
}

void labeler_on_step(Labeler *l, LineStep step, void *context) {
  l->step = step;
  l->step_context = context;
}

/* Encodes a text, or a pair, into l->encoded. A pair without LABELER_PAIR has an empty second text. */
static Err encode_line(Labeler *l, const Line *line) {
  const BertConfig *config = l->classifier->config;
  const char *end = line->text + line->len;
  const char *gap = line->len ? memchr(line->text, LABELER_PAIR, line->len) : NULL;
  TableField text[2] = {{line->text, line->len}, {end, 0}};
  if (config->has_pairs && gap) {
    text[0].len = (size_t)(gap - line->text);
    text[1] = (TableField){gap + 1, (size_t)(end - gap) - 1};
  }
  return text_encode(&l->classifier->encoder, text, config->has_pairs ? 2 : 1,
                     (uint32_t)bert_max_tokens(config), &l->encoded);
}

/* Appends l->encoded to the batch. */
static void add_text(Labeler *l) {
  const EncodedText *e = &l->encoded;
  bool has_segments = l->classifier->config->has_pairs && l->classifier->config->segments > 1;
  for (size_t i = 0; i < e->ids.len; i++) {
    size_t at = l->tokens + i;
    l->id[at] = e->ids.id[i];
    l->position[at] = (int32_t)i;
    l->segment[at] = has_segments && i >= e->first;
  }
  l->tokens += e->ids.len;
  l->off[++l->texts] = (int32_t)l->tokens;
}

/* Computes l->logits of the batch. */
static Err run_model(Labeler *l) {
  const Backend *b = l->classifier->backend;
  size_t n = l->texts * l->labels;
  TextBatch batch = {.texts = (uint32_t)l->texts,
                     .tokens = (uint32_t)l->tokens,
                     .id = l->id,
                     .position = l->position,
                     .segment = l->segment,
                     .off = l->off};
  if (l->step) TRY(l->step(l->step_context));
  model_load(l->model, &batch, (StepKey){0});
  model_run(l->model, l->classifier->weights, NULL, &(ModelPass){0});
  TRY(b->get(b, l->raw, bert_output((const Bert *)l->model), n * type_size(b->type)));
  type_to_f32(b->type, l->logits, l->raw, n);
  return ERR_OK;
}

static void compute_softmax(const float *x, double *p, size_t n) {
  double most = (double)x[0], sum = 0;
  for (size_t i = 1; i < n; i++) most = (double)x[i] > most ? (double)x[i] : most;
  for (size_t i = 0; i < n; i++) {
    p[i] = exp((double)x[i] - most);
    sum += p[i];
  }
  for (size_t i = 0; i < n; i++) p[i] /= sum;
}

/* Computes the outputs from logits. */
static void apply_head(const Labeler *l, const float *x) {
  BertHead head = l->classifier->config->head;
  if (head == BERT_HEAD_SOFTMAX) {
    compute_softmax(x, l->output, l->labels);
    return;
  }
  for (size_t i = 0; i < l->labels; i++)
    l->output[i] = head == BERT_HEAD_SIGMOID ? 1 / (1 + exp(-(double)x[i])) : (double)x[i];
}

static Err check_finite(const Labeler *l, uint64_t number) {
  for (size_t i = 0; i < l->labels; i++)
    if (!isfinite(l->output[i]))
      return err_set(ERR_WORK,
                     "text %llu: the model's output is not a finite number: its activations "
                     "overflow; use --precision fp32 or bf16",
                     (unsigned long long)number);
  return ERR_OK;
}

/* Runs the batch, which ends before text `end`, and empties it. */
static Err flush_batch(Labeler *l, uint64_t before, size_t end, LabelerTake take,
                       void *context) {
  if (!l->texts) return ERR_OK;
  TRY(run_model(l));
  for (size_t i = 0; i < l->texts; i++) {
    size_t index = end - l->texts + i;
    apply_head(l, l->logits + i * l->labels);
    TRY(check_finite(l, before + index + 1));
    TRY(take(context, index, l->output));
  }
  l->texts = l->tokens = 0;
  return ERR_OK;
}

static void count_cut(LineCut *cut, uint64_t number) {
  if (cut->count++ == 0) cut->first = number;
}

Err labeler_run(Labeler *l, uint64_t before, const Line *line, size_t n, LabelerTake take,
                void *context, LineCut *cut) {
  *cut = (LineCut){0};
  l->texts = l->tokens = 0;
  l->off[0] = 0;
  for (size_t i = 0; i < n; i++) {
    TRY(encode_line(l, &line[i]));
    if (l->encoded.is_cut) count_cut(cut, before + i + 1);
    if (l->tokens + l->encoded.ids.len > l->capacity)
      TRY(flush_batch(l, before, i, take, context));
    assert(l->encoded.ids.len <= l->capacity && "bug: a text is longer than max_tokens");
    add_text(l);
  }
  return flush_batch(l, before, n, take, context);
}
