/* Properties of BERT models: gradients under dropout against finite differences, order of the
 * reported gradients, accumulation over micro-batches, padding, memory, configurations.
 * run-tests: own program */
#include "bert_support.h"
#include "model/store.h"

const ModelFamily *const model_families[] = {&bert_family, NULL};

/* Returns the loss with one weight moved by `length` in the direction of its gradient. */
static double moved_loss(Fixture *f, const Param *p, double length, StepKey key,
                         const ModelPass *pass) {
  size_t n = p->rows * p->cols;
  float *w = f->w + p->offset, *saved, norm = 0;
  OK(mem_alloc(&saved, n, sizeof *saved));
  memcpy(saved, w, n * sizeof *w);
  const float *g = f->g + p->offset;
  for (size_t i = 0; i < n; i++) norm += g[i] * g[i];
  for (size_t i = 0; i < n; i++) w[i] += (float)length * g[i] / sqrtf(norm);
  double loss = run_step(f, NULL, key, pass).sum[0];
  memcpy(w, saved, n * sizeof *w);
  mem_free(saved);
  return loss;
}

/* The derivative of the loss in the direction of the gradient is the gradient's norm. */
static void check_finite_differences(const char *form) {
  Fixture f;
  const double length = 2e-3;
  StepKey key = {7, .dropout = true, .first = true};
  ModelPass pass = {.scale = 1, .smoothing = strcmp(form, "square") == 0 ? 0 : 0.1f};
  open_dropout(&f, form, true);
  run_step(&f, f.g, key, &pass);
  for (size_t i = 0; i < f.model->params.count; i++) {
    const Param *p = &f.model->params.param[i];
    double norm = 0;
    for (size_t k = 0; k < p->rows * p->cols; k++)
      norm += (double)f.g[p->offset + k] * f.g[p->offset + k];
    norm = sqrt(norm);
    double slope =
        (moved_loss(&f, p, length, key, &pass) - moved_loss(&f, p, -length, key, &pass)) /
        (2 * length);
    if (!(fabs(slope - norm) < 1e-3 * norm + 1e-3))
      fail_msg("%s: %s: the slope is %g, the gradient's norm %g", form, p->name, slope, norm);
  }
  close_fixture(&f);
}

static void test_bert_gradients_under_dropout_equal_finite_differences(void **state) {
  (void)state;
  for (size_t i = 0; i < FORMS; i++) check_finite_differences(forms[i]);
}

/* With the same dropout key the fast backend and the reference drop the same elements. */
static void test_bert_dropout_same_masks_on_every_backend(void **state) {
  (void)state;
  for (size_t i = 0; i < FORMS; i++) {
    Fixture a, b;
    StepKey key = {99, .dropout = true, .first = true};
    ModelPass pass = {.scale = 1};
    open_dropout(&a, forms[i], true);
    open_dropout(&b, forms[i], false);
    double expected = run_step(&a, a.g, key, &pass).sum[0];
    double loss = run_step(&b, b.g, key, &pass).sum[0];
    assert_true(fabs(loss - expected) < 1e-5 * expected);
    assert_close(forms[i], "gradients", b.g, a.g, a.model->params.padded, 1e-5);
    close_fixture(&a);
    close_fixture(&b);
  }
}

/* Asserts that every element of the flat array is reported exactly once, when its gradient is
 * complete; and stores the ranges. */
typedef struct {
  uint8_t *told;
  const float *g;
  float *seen;
  size_t begin[8], end[8], count;
} Announced;

static void note_range(void *context, size_t begin, size_t end) {
  Announced *a = context;
  assert_true(begin < end && a->count < 8);
  a->begin[a->count] = begin;
  a->end[a->count++] = end;
  for (size_t i = begin; a->told && i < end; i++) {
    assert_int_equal(a->told[i], 0);
    a->told[i] = 1;
    a->seen[i] = a->g[i];
  }
}

/* As test_model_reads_only_marked_weights_in_fp32. */
static void test_bert_reads_only_marked_weights_in_fp32(void **state) {
  (void)state;
  for (size_t i = 0; i < FORMS; i++) {
    Fixture f;
    open_form(&f, forms[i], false);
    const Params *p = &f.model->params;
    const ModelPass pass = {.scale = 1};
    run_step(&f, f.g, (StepKey){.first = true}, &pass);
    for (size_t k = 0; k < p->padded; k++) f.m[k] = NAN;
    for (size_t k = 0; k < p->count; k++) {
      const Param *q = &p->param[k];
      if (q->is_full) memcpy(f.m + q->offset, f.w + q->offset, q->rows * q->cols * sizeof *f.m);
    }
    model_load(f.model, &f.batch, (StepKey){.first = true});
    model_run(f.model, (Weights){f.m, f.w}, f.v, &pass);
    assert_memory_equal(f.g, f.v, p->padded * sizeof *f.g);
    close_fixture(&f);
  }
}

static void test_bert_announce_equals_backward(void **state) {
  (void)state;
  for (size_t i = 0; i < 2 * FORMS; i++) {
    Fixture f;
    Announced made = {0}, told = {0};
    open_form(&f, forms[i / 2], false);
    f.model->frozen_layers = i % 2;
    size_t n = f.model->params.padded;
    OK(mem_alloc(&made.told, n, 1));
    OK(mem_alloc(&made.seen, n, sizeof(float)));
    made.g = f.g;
    run_step(&f, f.g, (StepKey){.first = true},
             &(ModelPass){.scale = 1, .ready = note_range, .context = &made});
    for (size_t k = 0; k < n; k++) {
      assert_int_equal(made.told[k], 1);
      assert_true(made.seen[k] == f.g[k]);
    }
    model_announce(f.model, note_range, &told);
    assert_int_equal(made.count, 4); /* head, two layers, embeddings */
    assert_int_equal(told.count, made.count);
    assert_memory_equal(told.begin, made.begin, sizeof told.begin);
    assert_memory_equal(told.end, made.end, sizeof told.end);
    mem_free(made.told);
    mem_free(made.seen);
    close_fixture(&f);
  }
}

/* Three micro-batches, the first of which overwrites NaN, give the bits of adding all of them to
 * zero. */
static void test_bert_micro_batches_accumulate(void **state) {
  (void)state;
  for (size_t i = 0; i < 2 * FORMS; i++) {
    Fixture f;
    float *g;
    open_dropout(&f, forms[i / 2], i % 2);
    size_t n = f.model->params.padded;
    OK(mem_alloc_aligned(&g, n * sizeof *g));
    for (size_t k = 0; k < n; k++) f.g[k] = NAN;
    for (uint64_t k = 0; k < 3; k++) {
      ModelPass pass = {.scale = 1};
      run_step(&f, g, (StepKey){k, .dropout = true}, &pass);
      run_step(&f, f.g, (StepKey){k, .dropout = true, .first = k == 0}, &pass);
      for (size_t e = 0; e < n; e++) assert_true(f.g[e] == g[e]);
    }
    mem_free(g);
    close_fixture(&f);
  }
}

/* Checks the gradients of a model whose first `frozen` layers are not trained: those above have the
 * bits of a model that is trained whole, the others are 0 even if the array had other values. In MLM
 * the head still computes that of the tokens, which the optimizer skips. */
static void check_frozen(const char *form, uint32_t frozen) {
  Fixture f[2];
  ModelPass pass = {.scale = 1};
  for (int i = 0; i < 2; i++) {
    open_dropout(&f[i], form, false);
    f[i].model->frozen_layers = i ? frozen : 0;
    for (size_t k = 0; k < f[i].model->params.padded; k++) f[i].g[k] = NAN;
    run_step(&f[i], f[i].g, (StepKey){.dropout = true, .first = true}, &pass);
  }
  const Params *p = &f[0].model->params;
  for (size_t i = 0; i < p->count; i++) {
    const Param *q = &p->param[i];
    bool is_tied = q->offset == f[0].bert->at.tokens && strcmp(form, "mlm") == 0;
    for (size_t k = q->offset; k < q->offset + q->rows * q->cols && !is_tied; k++)
      assert_true(f[1].g[k] == (q->depth <= frozen ? 0 : f[0].g[k]));
  }
  close_fixture(&f[0]);
  close_fixture(&f[1]);
}

static void test_bert_frozen_layers_have_no_gradients(void **state) {
  (void)state;
  for (size_t i = 0; i < FORMS; i++) {
    check_frozen(forms[i], 1);
    check_frozen(forms[i], 2);
  }
}

/* MLM gradients do not depend on how many logits are in memory at once. */
static void test_bert_mlm_logits_in_chunks_same_gradients(void **state) {
  (void)state;
  Fixture f[2];
  ModelPass pass = {.scale = 1};
  for (int i = 0; i < 2; i++) {
    open_form(&f[i], "mlm", false);
    if (i) f[i].bert->logit_rows = 3;
    run_step(&f[i], f[i].g, (StepKey){.first = true}, &pass);
  }
  assert_close("mlm", "gradients", f[1].g, f[0].g, f[0].model->params.padded, 1e-6);
  close_fixture(&f[0]);
  close_fixture(&f[1]);
}

/* Padding changes no bit: compares a fake device that computes on the CPU with the CPU. */
static void test_bert_padding_changes_nothing(void **state) {
  (void)state;
  for (size_t i = 0; i < 2 * FORMS; i++) {
    Fixture f[2];
    ModelLoss loss[2];
    ModelPass pass = {.scale = 1};
    for (int device = 0; device < 2; device++) {
      open_dropout(&f[device], forms[i / 2], i % 2);
      ModelConfig config = f[device].model->config;
      model_free(f[device].model);
      f[device].backend.host = !device;
      OK(model_new(&f[device].model, &(ModelSpec){.config = &config,
                                                  .backend = &f[device].backend,
                                                  .capacity = 40,
                                                  .training = true}));
      f[device].bert = (Bert *)f[device].model;
      loss[device] = run_step(&f[device], f[device].g, (StepKey){99, true, true}, &pass);
    }
    assert_true(f[1].model->shape[0] > f[0].model->shape[0]);
    assert_true(f[1].model->shape[1] > f[0].model->shape[1]);
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    for (size_t k = 0; k < f[0].model->params.padded; k++) assert_true(f[0].g[k] == f[1].g[k]);
    close_fixture(&f[0]);
    close_fixture(&f[1]);
  }
}

static void test_bert_mlm_batch_without_masked_tokens_has_no_gradient(void **state) {
  (void)state;
  Fixture f;
  ModelPass pass = {.scale = 1};
  open_form(&f, "mlm", false);
  f.batch.masked = 0;
  ModelLoss loss = run_step(&f, f.g, (StepKey){.first = true}, &pass);
  assert_true(loss.sum[0] == 0 && loss.predictions == 0);
  for (size_t i = 0; i < f.model->params.padded; i++) assert_true(f.g[i] == 0);
  close_fixture(&f);
}

/* A model for inference needs less memory and computes the same bits, also without labels. */
static void test_bert_inference_has_outputs_of_training(void **state) {
  (void)state;
  for (size_t i = 0; i < FORMS; i++) {
    Fixture train, infer;
    BertConfig c = config_of(forms[i]);
    open_config(&train, &c, false, /*training=*/true);
    open_config(&infer, &c, false, /*training=*/false);
    assert_true(infer.model->arena_bytes < train.model->arena_bytes);
    run_step(&train, NULL, (StepKey){0}, &(ModelPass){0});
    infer.batch.target = NULL;
    infer.batch.masked_id = NULL;
    ModelLoss loss = run_step(&infer, NULL, (StepKey){0}, &(ModelPass){0});
    assert_true(loss.predictions == 0 && loss.sum[0] == 0);
    assert_memory_equal(bert_output(infer.bert), bert_output(train.bert),
                        logit_count(&train) * sizeof(float));
    close_fixture(&train);
    close_fixture(&infer);
  }
}

/* Without a head the output has a row for each token, whose [CLS] rows are those that a classifier
 * reads. */
static void test_bert_without_head_returns_hidden_states(void **state) {
  (void)state;
  Fixture plain, head;
  BertConfig c = config_of("softmax");
  open_config(&head, &c, false, /*training=*/false);
  c.head = BERT_HEAD_NONE;
  c.labels = 0;
  open_config(&plain, &c, false, /*training=*/false);
  run_step(&plain, NULL, (StepKey){0}, &(ModelPass){0});
  run_step(&head, NULL, (StepKey){0}, &(ModelPass){0});
  const float *hidden = bert_output(plain.bert), *first = head.bert->layer[1].y[1];
  for (int i = 0; i < TEXTS; i++)
    assert_close("none", "hidden state", hidden + 32 * off[i], first + 32 * (size_t)i, 32,
                 1e-5);
  close_fixture(&plain);
  close_fixture(&head);
}

static void test_bert_without_head_cannot_be_trained(void **state) {
  (void)state;
  Backend backend;
  Model *model;
  BertConfig c = config_of("softmax");
  c.head = BERT_HEAD_NONE;
  c.labels = 0;
  ModelConfig config = bert_model_config(&c);
  backend_reference(&backend);
  ModelSpec spec = {.config = &config, .backend = &backend, .capacity = 8, .training = true};
  assert_int_equal(model_plan(&model, &spec), ERR_USAGE);
  assert_says("without a head");
}

static void test_bert_class_weights_scale_the_loss(void **state) {
  (void)state;
  static const float doubled[LABELS] = {2, 2, 2};
  Fixture f;
  open_form(&f, "softmax", false);
  double plain = run_step(&f, NULL, (StepKey){0}, &(ModelPass){0}).sum[0];
  bert_set_class_weights(f.bert, doubled);
  ModelLoss loss = run_step(&f, NULL, (StepKey){0}, &(ModelPass){0});
  assert_true(fabs(loss.sum[0] - 2 * plain) < 1e-6 * plain);
  assert_true(fabs(loss.sum[1] - plain) < 1e-6 * plain);
  bert_set_class_weights(f.bert, NULL);
  assert_true(run_step(&f, NULL, (StepKey){0}, &(ModelPass){0}).sum[0] == plain);
  close_fixture(&f);
}

static void test_bert_steps_allocate_no_memory(void **state) {
  (void)state;
  for (size_t i = 0; i < FORMS; i++) {
    Fixture f;
    ModelPass pass = {.scale = 1};
    open_dropout(&f, forms[i], false);
    run_step(&f, f.g, (StepKey){.first = true}, &pass); /* GEMM working memory */
    uint64_t before = mem_count();
    for (uint64_t k = 0; k < 3; k++)
      run_step(&f, f.g, (StepKey){k, .dropout = true, .first = true}, &pass);
    assert_int_equal(mem_count(), before);
    close_fixture(&f);
  }
}

/* Numbers of parameters of the published models (BertModel with pooler, vocabulary 30522). */
static void test_bert_presets_have_published_sizes(void **state) {
  (void)state;
  static const struct {
    const char *preset;
    size_t parameters;
  } cases[] = {{"bert-tiny", 4385920},    {"bert-mini", 11170560},  {"bert-small", 28763648},
               {"bert-medium", 41373184}, {"bert-base", 109482240}, {"bert-large", 335141888}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig config;
    Params p;
    OK(bert_family.configure_preset(&config, cases[i].preset, 30522));
    BertConfig c = *bert_config(&config);
    c.head = BERT_HEAD_NONE;
    c.labels = 0;
    config = bert_model_config(&c);
    OK(bert_family.lay_out_params(&p, &config));
    assert_int_equal(p.total, cases[i].parameters);
    assert_non_null(strstr(bert_family.presets, cases[i].preset));
    params_free(&p);
  }
}

static void test_bert_model_json_keeps_configuration(void **state) {
  (void)state;
  for (size_t i = 0; i < FORMS; i++) {
    BertConfig c = config_of(forms[i]);
    c.max_tokens = 9;
    c.has_pairs = true;
    c.strips_accents = true;
    ModelConfig config = bert_model_config(&c), back;
    OK(store_save_config(&config, &(StoreSums){0}, scratch));
    OK(store_load_config(&back, NULL, scratch));
    assert_ptr_equal(back.family, &bert_family);
    for (const ConfigField *f = bert_fields; f->key; f++)
      assert_memory_equal(back.own + f->offset, config.own + f->offset, f->size);
    assert_int_equal(bert_max_tokens(bert_config(&back)), 9);
  }
}

static void assert_refused(BertConfig c, const char *words) {
  assert_int_equal(bert_check_config(&c), ERR_USAGE);
  assert_says(words);
}

static void test_bert_wrong_configurations_are_refused(void **state) {
  (void)state;
  BertConfig c = config_of("softmax"), other = c;
  other.heads = 5;
  assert_refused(other, "--heads 5 does not divide --d-model 32");
  other = c;
  other.labels = 1;
  assert_refused(other, "head softmax needs at least 2 labels, not 1");
  other = c;
  other.position_offset = 14;
  assert_refused(other, "14 positions cannot begin at position 14");
  other.position_offset = 0;
  other.max_tokens = 15;
  assert_refused(other, "texts have up to 15 tokens");
  other.max_tokens = 0;
  other.head = BERT_HEAD_MLM;
  assert_refused(other, "head mlm has no labels, not 3");
  other.labels = 0;
  OK(bert_check_config(&other));
  other.pooler = BERT_POOLER_RELU;
  assert_refused(other, "head mlm has no pooler of kind relu");
  assert_int_equal(bert_preset(&other, "bert-huge"), ERR_USAGE);
  assert_says("bert-huge: there is no such preset");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bert_gradients_under_dropout_equal_finite_differences),
      cmocka_unit_test(test_bert_dropout_same_masks_on_every_backend),
      cmocka_unit_test(test_bert_announce_equals_backward),
      cmocka_unit_test(test_bert_reads_only_marked_weights_in_fp32),
      cmocka_unit_test(test_bert_micro_batches_accumulate),
      cmocka_unit_test(test_bert_frozen_layers_have_no_gradients),
      cmocka_unit_test(test_bert_mlm_logits_in_chunks_same_gradients),
      cmocka_unit_test(test_bert_padding_changes_nothing),
      cmocka_unit_test(test_bert_mlm_batch_without_masked_tokens_has_no_gradient),
      cmocka_unit_test(test_bert_inference_has_outputs_of_training),
      cmocka_unit_test(test_bert_without_head_returns_hidden_states),
      cmocka_unit_test(test_bert_without_head_cannot_be_trained),
      cmocka_unit_test(test_bert_class_weights_scale_the_loss),
      cmocka_unit_test(test_bert_steps_allocate_no_memory),
      cmocka_unit_test(test_bert_presets_have_published_sizes),
      cmocka_unit_test(test_bert_model_json_keeps_configuration),
      cmocka_unit_test(test_bert_wrong_configurations_are_refused),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
