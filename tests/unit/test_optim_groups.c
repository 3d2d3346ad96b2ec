/* Optimizer groups: which weights have weight decay, which learning rate, which are frozen; that
 * updates in pieces and with one group give the same bits; on every CPU backend. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/bert_params.h"
#include "support.h"
#include "train/optim.h"

static Rng rng = {.key = 5};

static float *draw(size_t n) {
  float *x;
  OK(mem_alloc_aligned(&x, n * sizeof *x));
  for (size_t i = 0; i < n; i++) x[i] = (float)((double)(rng_next(&rng) >> 11) * 0x1p-52 - 1);
  return x;
}

static float *copy(const float *x, size_t n) {
  float *y;
  OK(mem_alloc_aligned(&y, n * sizeof *y));
  memcpy(y, x, n * sizeof *y);
  return y;
}

/* Three layers between an embedding and a head; each layer has a matrix, a bias and a gain. */
enum { LAYERS = 3, PARAMS = 1 + 3 * LAYERS + 2 };

static void lay_out(Params *p) {
  Err err = ERR_OK;
  *p = (Params){.layers = LAYERS};
  params_add(p, &err, INIT_NORMAL, 1, 50, 24, "embed");
  for (int i = 0; i < LAYERS; i++) {
    p->depth++;
    params_add(p, &err, INIT_NORMAL, 1, 24, 25, "layer.%d.weight", i);
    params_add(p, &err, INIT_ZERO, 0, 24, 1, "layer.%d.bias", i);
    params_add(p, &err, INIT_ONE, 0, 25, 1, "layer.%d.gain", i);
  }
  p->depth++;
  params_add(p, &err, INIT_NORMAL, 1, 2, 24, "head.weight");
  params_add(p, &err, INIT_ZERO, 0, 2, 1, "head.bias");
  params_finish(p);
  OK(err);
  assert_int_equal(p->count, PARAMS);
}

static const OptimGroup *group_of(const OptimGroups *groups, const Params *p,
                                  const char *name) {
  for (size_t i = 0; i < p->count; i++) {
    if (strcmp(p->param[i].name, name) == 0) return groups_find(groups, p->param[i].offset);
  }
  fail_msg("no weight is called %s", name);
  return NULL;
}

/* Groups are in order and cover the whole array. */
static void check_cover(const OptimGroups *groups, const Params *p) {
  assert_int_equal(groups->group[0].begin, p->param[0].offset);
  for (size_t i = 1; i < groups->count; i++)
    assert_int_equal(groups->group[i].begin, groups->group[i - 1].end);
  assert_int_equal(groups->group[groups->count - 1].end, p->padded);
  for (size_t i = 0; i < groups->count; i++) {
    const OptimGroup *g = &groups->group[i];
    assert_ptr_equal(groups_find(groups, g->begin), g);
    assert_ptr_equal(groups_find(groups, g->end - 1), g);
  }
}

static void test_groups_without_options_are_one(void **state) {
  (void)state;
  Params p;
  OptimGroups groups;
  const GroupSpec specs[] = {{0}, {.layer_lr_decay = 1}};
  lay_out(&p);
  for (int i = 0; i < 2; i++) {
    OK(groups_new(&groups, &p, &specs[i]));
    assert_int_equal(groups.count, 1);
    check_cover(&groups, &p);
    assert_true(groups.group[0].decays && groups.group[0].lr_factor == 1);
    assert_false(groups.group[0].is_frozen);
    assert_int_equal(groups_count_updated(&groups, &p), p.total);
    groups_free(&groups);
  }
  params_free(&p);
}

static void test_groups_biases_have_no_decay(void **state) {
  (void)state;
  Params p;
  OptimGroups groups;
  lay_out(&p);
  OK(groups_new(&groups, &p, &(GroupSpec){.skips_biases = true}));
  /* embed and a matrix; bias and gain; matrix; … ; head.weight; head.bias */
  assert_int_equal(groups.count, 2 * LAYERS + 2);
  check_cover(&groups, &p);
  assert_true(group_of(&groups, &p, "embed")->decays);
  assert_true(group_of(&groups, &p, "layer.1.weight")->decays);
  assert_false(group_of(&groups, &p, "layer.1.bias")->decays);
  assert_false(group_of(&groups, &p, "layer.2.gain")->decays);
  assert_false(group_of(&groups, &p, "head.bias")->decays);
  groups_free(&groups);
  params_free(&p);
}

static void test_groups_lr_falls_from_head_to_embeddings(void **state) {
  (void)state;
  Params p;
  OptimGroups groups;
  lay_out(&p);
  OK(groups_new(&groups, &p, &(GroupSpec){.layer_lr_decay = 0.5f}));
  check_cover(&groups, &p);
  assert_true(group_of(&groups, &p, "head.weight")->lr_factor == 1);
  assert_true(group_of(&groups, &p, "layer.2.weight")->lr_factor == 0.5f);
  assert_true(group_of(&groups, &p, "layer.0.gain")->lr_factor == 0.125f);
  assert_true(group_of(&groups, &p, "embed")->lr_factor == 0.0625f);
  groups_free(&groups);
  params_free(&p);
}

static void test_groups_freeze_embeddings_and_first_layers(void **state) {
  (void)state;
  Params p;
  OptimGroups groups;
  lay_out(&p);
  OK(groups_new(&groups, &p, &(GroupSpec){.freeze_layers = 2, .skips_biases = true}));
  check_cover(&groups, &p);
  assert_true(groups.group[0].is_frozen);
  assert_int_equal(groups.group[0].end, p.param[7].offset); /* layer.2.weight */
  for (size_t i = 1; i < groups.count; i++) assert_false(groups.group[i].is_frozen);
  assert_int_equal(groups_count_updated(&groups, &p), 24 * 25 + 24 + 25 + 2 * 24 + 2);
  groups_free(&groups);
  params_free(&p);
}

static void test_groups_more_layers_than_model_fail(void **state) {
  (void)state;
  Params p;
  OptimGroups groups;
  lay_out(&p);
  OK(groups_new(&groups, &p, &(GroupSpec){.freeze_layers = LAYERS}));
  groups_free(&groups);
  assert_int_equal(groups_new(&groups, &p, &(GroupSpec){.freeze_layers = 4}), ERR_USAGE);
  assert_non_null(strstr(err_message(), "--freeze-layers 4"));
  assert_non_null(strstr(err_message(), "0 to 3"));
  p.layers = 0;
  assert_int_equal(groups_new(&groups, &p, &(GroupSpec){.freeze_layers = 1}), ERR_USAGE);
  assert_non_null(strstr(err_message(), "--freeze-layers is not available"));
  assert_int_equal(groups_new(&groups, &p, &(GroupSpec){.layer_lr_decay = 0.9f}), ERR_USAGE);
  assert_non_null(strstr(err_message(), "--layer-lr-decay is not available"));
  params_free(&p);
}

static void test_groups_bert_layers_have_depths(void **state) {
  (void)state;
  BertConfig c = {0};
  BertParams at;
  Params p = {0};
  OptimGroups groups;
  OK(bert_preset(&c, "bert-mini"));
  c.vocab = 100;
  c.head = BERT_HEAD_SOFTMAX;
  c.labels = 3;
  OK(bert_lay_out(&at, &p, &c));
  assert_int_equal(p.layers, 4);
  OK(groups_new(&groups, &p, &(GroupSpec){.layer_lr_decay = 0.5f, .skips_biases = true}));
  check_cover(&groups, &p);
  assert_true(group_of(&groups, &p, "embed.norm.gain")->lr_factor == 0.03125f);
  assert_false(group_of(&groups, &p, "embed.norm.gain")->decays);
  assert_true(group_of(&groups, &p, "embed.tokens")->decays);
  assert_true(group_of(&groups, &p, "layer.0.attention.in.weight")->lr_factor == 0.0625f);
  assert_true(group_of(&groups, &p, "layer.3.feed.norm.bias")->lr_factor == 0.5f);
  assert_true(group_of(&groups, &p, "classifier.weight")->lr_factor == 1);
  assert_false(group_of(&groups, &p, "classifier.bias")->decays);
  groups_free(&groups);
  bert_params_free(&at);
  params_free(&p);
}

enum { BACKENDS_MOST = 9 };

/* The reference backend, and each instruction set with one thread and with three. */
static int open_backends(Backend *list) {
  const char *names[] = {"avx512", "avx2", "sse2", "neon"};
  int n = 0;
  backend_reference(&list[n++]);
  for (int i = 0; i < 8; i++) {
    setenv("TRIREME_ISA", names[i / 2], 1);
    if (backend_cpu(&list[n], i % 2 ? 3 : 1, false) == ERR_OK) n++;
  }
  unsetenv("TRIREME_ISA");
  return n;
}

static const OptimSpec specs[] = {{OPTIM_ADAM, 0.9f, 0.98f, 1e-9f, 0.1f},
                                  {OPTIM_ADAMW, 0.8f, 0.95f, 1e-6f, 0.1f},
                                  {OPTIM_SGD, 0.9f, 0, 0, 0.01f},
                                  {OPTIM_NOVOGRAD, 0.95f, 0.5f, 1e-8f, 0.01f}};

/* Weights and optimizer state. */
typedef struct {
  float *w, *m, *v;
  double second[PARAMS];
} State;

static State make_state(const State *from, size_t n) {
  return (State){.w = copy(from->w, n), .m = copy(from->m, n), .v = copy(from->v, n)};
}

static void free_state(State *s) {
  mem_free(s->w);
  mem_free(s->m);
  mem_free(s->v);
}

/* Runs a step on elements begin … end - 1; NovoGrad always updates whole arrays. */
static void run_step(const OptimSpec *o, const OptimGroups *groups, const Backend *b,
                     const Params *p, State *s, const float *g, double lr, size_t begin,
                     size_t end) {
  StepNumbers now = optim_numbers(o, 2, lr);
  now.grad_scale = 0.5f;
  if (o->kind == OPTIM_NOVOGRAD) {
    optim_layers(o, groups, b, p, s->w, s->m, s->second, g, lr, 0.5);
    return;
  }
  OptimPiece piece = {.begin = begin, .n = end - begin, .w = s->w + begin, .g = g + begin};
  piece.m = s->m + begin;
  if (optim_has_moment(o, 2)) piece.v = s->v + begin;
  optim_update(o, groups, b, &now, &piece);
}

static void compare(const State *a, const State *b, size_t begin, size_t end) {
  size_t bytes = (end - begin) * sizeof(float);
  assert_memory_equal(a->w + begin, b->w + begin, bytes);
  assert_memory_equal(a->m + begin, b->m + begin, bytes);
  assert_memory_equal(a->v + begin, b->v + begin, bytes);
}

/* A group must have the bits of a run without groups that has the group's learning rate and weight
 * decay; frozen weights and their moments must not change. */
static void check_update(const Backend *b, const OptimSpec *o, const GroupSpec *spec) {
  Params p;
  OptimGroups groups;
  lay_out(&p);
  OK(groups_new(&groups, &p, spec));
  size_t n = p.padded;
  float *g = draw(n);
  State start = {.w = draw(n), .m = draw(n), .v = draw(n)};
  for (size_t i = 0; i < n; i++) start.v[i] = fabsf(start.v[i]);
  State got = make_state(&start, n);
  run_step(o, &groups, b, &p, &got, g, 0.01f, 0, n);
  for (size_t k = 0; k < groups.count; k++) {
    const OptimGroup *x = &groups.group[k];
    OptimSpec alone = *o;
    State want = make_state(&start, n);
    if (!x->decays) alone.decay = 0;
    if (!x->is_frozen)
      run_step(&alone, NULL, b, &p, &want, g, (double)(0.01f * x->lr_factor), 0, n);
    compare(&got, &want, x->begin, x->end);
    free_state(&want);
  }
  /* pieces that cut groups, without alignment and with it */
  for (size_t size = 777; size > 775 && o->kind != OPTIM_NOVOGRAD; size--) {
    State pieces = make_state(&start, n);
    for (size_t at = 0; at < n; at += size)
      run_step(o, &groups, b, &p, &pieces, g, 0.01f, at, at + size < n ? at + size : n);
    compare(&got, &pieces, 0, n);
    free_state(&pieces);
  }
  free_state(&got);
  free_state(&start);
  mem_free(g);
  groups_free(&groups);
  params_free(&p);
}

static void test_update_each_group_has_its_decay_and_lr(void **state) {
  (void)state;
  static const GroupSpec all[] = {{0},
                                  {.skips_biases = true},
                                  {.layer_lr_decay = 0.7f},
                                  {.freeze_layers = 1},
                                  {true, 0.9f, 2}};
  Backend list[BACKENDS_MOST];
  int n = open_backends(list);
  for (int i = 0; i < n; i++) {
    for (size_t k = 0; k < 4 * sizeof all / sizeof *all; k++)
      check_update(&list[i], &specs[k % 4], &all[k / 4]);
  }
}

static void test_clear_frozen_leaves_other_gradients(void **state) {
  (void)state;
  Params p;
  OptimGroups groups;
  Backend b;
  lay_out(&p);
  backend_reference(&b);
  OK(groups_new(&groups, &p, &(GroupSpec){.freeze_layers = 1}));
  float *g = draw(p.padded), *kept = copy(g, p.padded);
  groups_clear_frozen(&groups, &b, g);
  size_t end = p.param[4].offset; /* layer.1.weight */
  for (size_t i = 0; i < end; i++) assert_true(g[i] == 0);
  assert_memory_equal(g + end, kept + end, (p.padded - end) * sizeof *g);
  mem_free(g);
  mem_free(kept);
  groups_free(&groups);
  params_free(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_groups_without_options_are_one),
      cmocka_unit_test(test_groups_biases_have_no_decay),
      cmocka_unit_test(test_groups_lr_falls_from_head_to_embeddings),
      cmocka_unit_test(test_groups_freeze_embeddings_and_first_layers),
      cmocka_unit_test(test_groups_more_layers_than_model_fail),
      cmocka_unit_test(test_groups_bert_layers_have_depths),
      cmocka_unit_test(test_update_each_group_has_its_decay_and_lr),
      cmocka_unit_test(test_clear_frozen_leaves_other_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
