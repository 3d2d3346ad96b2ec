/* Small BERT models of every head and a batch for them, for the tests of the family. The weights and
 * the texts are those of tests/golden/bert/make_golden.py. */
#ifndef TESTS_BERT_SUPPORT_H
#define TESTS_BERT_SUPPORT_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/bert.h"
#include "support.h"

#define LABELS 3
#define TOKENS 31
#define TEXTS  6
#define MASKED 8

/* The texts of make_golden.py. */
static const int32_t id[TOKENS] = {2,  7,  8,  9, 3,  2,  2,  10, 11, 3, 12, 3, 2, 3, 2, 13,
                                   14, 15, 16, 3, 17, 18, 19, 20, 21, 3, 2,  5, 5, 5, 3};
static const int32_t position[TOKENS] = {0, 1, 2, 3, 4, 0, 0, 1, 2,  3,  4, 5, 0, 1, 0, 1,
                                         2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4};
static const int32_t segment[TOKENS] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0,
                                        0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0};
static const int32_t off[TEXTS + 1] = {0, 5, 6, 12, 14, 26, 31};
static const int32_t masked_at[MASKED] = {1, 3, 8, 15, 19, 24, 25, 30};
static const float class_target[TEXTS] = {2, 0, 1, -1, 1, 0};
static const float truth_target[TEXTS * LABELS] = {1, 0, 0, 0, 0, 0, 0, 1, 1,
                                                   1, 1, 1, 0, 0, 1, 1, 0, 1};
static const float number_target[TEXTS * LABELS] = {
    0.5f, -1, 2, 0, 0.25f, 1, -0.75f, 1.5f, 0, 1, 1, 1, -2, 0, 0.125f, 0.5f, 0.5f, -0.5f};

static const char *const forms[] = {"softmax", "sigmoid", "square", "mlm", "roberta", "distil"};
#define FORMS (sizeof forms / sizeof *forms)

static BertConfig config_of(const char *form) {
  BertConfig c = {.vocab = 29,
                  .d_model = 32,
                  .ffn_dim = 48,
                  .heads = 4,
                  .layers = 2,
                  .max_positions = 14,
                  .segments = 2,
                  .activation = ACT_GELU,
                  .head = BERT_HEAD_SOFTMAX,
                  .pooler = BERT_POOLER_TANH,
                  .labels = LABELS,
                  .norm_epsilon = 1e-12f};
  if (strcmp(form, "sigmoid") == 0) c.head = BERT_HEAD_SIGMOID;
  if (strcmp(form, "square") == 0) c.head = BERT_HEAD_SQUARE;
  if (strcmp(form, "mlm") == 0) {
    c.head = BERT_HEAD_MLM;
    c.pooler = BERT_POOLER_NONE;
    c.labels = 0;
  }
  if (strcmp(form, "roberta") == 0) {
    c.position_offset = 2;
    c.max_positions += 2;
    c.segments = 1;
  }
  if (strcmp(form, "distil") == 0) {
    c.segments = 0;
    c.pooler = BERT_POOLER_RELU;
  }
  return c;
}

/* Returns the batch for a head. */
static TextBatch batch_for(const BertConfig *c) {
  static int32_t masked_id[MASKED], masked_text[TOKENS], no_segment[TOKENS];
  TextBatch b = {.texts = TEXTS,
                 .tokens = TOKENS,
                 .id = id,
                 .position = position,
                 .segment = c->segments == 2 ? segment
                            : c->segments    ? no_segment
                                             : NULL,
                 .off = off};
  if (c->head == BERT_HEAD_SOFTMAX) b.target = class_target;
  if (c->head == BERT_HEAD_SIGMOID) b.target = truth_target;
  if (c->head == BERT_HEAD_SQUARE) b.target = number_target;
  if (c->head != BERT_HEAD_MLM) return b;
  memcpy(masked_text, id, sizeof id);
  for (int i = 0; i < MASKED; i++) {
    masked_id[i] = id[masked_at[i]];
    masked_text[masked_at[i]] = 4;
  }
  b.id = masked_text;
  b.masked = MASKED;
  b.masked_at = masked_at;
  b.masked_id = masked_id;
  return b;
}

typedef struct {
  Backend backend;
  Model *model;
  Bert *bert; /* the model as its family's struct */
  TextBatch batch;
  float *w, *g, *m, *v;
} Fixture;

/* Fills a weight with the values that make_golden.py gives to a weight of this name. */
static void fill_weight(float *w, const Param *p) {
  size_t len = strlen(p->name);
  bool is_gain = len > 5 && strcmp(p->name + len - 5, ".gain") == 0;
  bool is_bias = len > 4 && strcmp(p->name + len - 4, "bias") == 0;
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < len; i++) hash = (hash ^ (uint8_t)p->name[i]) * 16777619u;
  for (size_t i = 0; i < p->rows * p->cols; i++) {
    uint32_t x = hash + (uint32_t)i * 2654435761u;
    x ^= x >> 16;
    x *= 0x45d9f3bu;
    x ^= x >> 16;
    double u = (double)(x >> 8) / 8388608 - 1;
    w[i] = (float)(is_gain ? 1 + u / 8 : is_bias ? u / 8 : u / 4);
  }
}

static void open_config(Fixture *f, const BertConfig *c, bool reference, bool training) {
  ModelConfig config = bert_model_config(c);
  *f = (Fixture){.batch = batch_for(c)};
  if (reference)
    backend_reference(&f->backend);
  else
    OK(backend_cpu(&f->backend, 2, false));
  OK(model_new(
      &f->model,
      &(ModelSpec){
          .config = &config, .backend = &f->backend, .capacity = 40, .training = training}));
  f->bert = (Bert *)f->model;
  const Params *p = &f->model->params;
  float **array[] = {&f->w, &f->g, &f->m, &f->v};
  for (int i = 0; i < 4; i++) OK(mem_alloc_aligned(array[i], p->padded * sizeof(float)));
  for (size_t i = 0; i < p->count; i++) fill_weight(f->w + p->param[i].offset, &p->param[i]);
}

UNUSED static void open_form(Fixture *f, const char *form, bool reference) {
  BertConfig c = config_of(form);
  open_config(f, &c, reference, /*training=*/true);
}

/* Opens a model with dropout everywhere. */
UNUSED static void open_dropout(Fixture *f, const char *form, bool reference) {
  BertConfig c = config_of(form);
  c.drop_embed = c.drop_attention = c.drop_activation = 0.2f;
  c.drop_residual = c.drop_classifier = 0.3f;
  open_config(f, &c, reference, /*training=*/true);
}

static void close_fixture(Fixture *f) {
  model_free(f->model);
  float *array[] = {f->w, f->g, f->m, f->v};
  for (int i = 0; i < 4; i++) mem_free(array[i]);
}

/* Runs one batch and returns its loss. g may be NULL. */
static ModelLoss run_step(Fixture *f, float *g, StepKey key, const ModelPass *pass) {
  ModelLoss loss;
  model_load(f->model, &f->batch, key);
  model_run(f->model, (Weights){f->w, f->w}, g, pass);
  OK(model_loss(f->model, &loss));
  return loss;
}

static double difference(const float *a, const float *b, size_t n) {
  double error = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    size += (double)b[i] * b[i];
  }
  return sqrt(error / (size + 1e-30));
}

static void assert_close(const char *form, const char *name, const float *a, const float *b,
                         size_t n, double tolerance) {
  double e = difference(a, b, n);
  if (!(e < tolerance)) fail_msg("%s: %s is off by %g", form, name, e);
}

static size_t logit_count(const Fixture *f) {
  return f->bert->config.head == BERT_HEAD_MLM ? MASKED * 29 : TEXTS * LABELS;
}

/* Number of terms of the loss, by which PyTorch divides. */
UNUSED static uint64_t predictions_of(const Fixture *f) {
  BertHead head = f->bert->config.head;
  if (head == BERT_HEAD_MLM) return MASKED;
  return head == BERT_HEAD_SOFTMAX ? TEXTS - 1 : TEXTS * LABELS;
}

#endif
