/* Learning-rate schedules, safetensors, and scores of beam search. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "decode/beam.h"
#include "format/safetensors.h"
#include "support.h"
#include "train/pass.h"
#include "train/schedule.h"

static void near(double a, double b, double tolerance) {
  if (!(fabs(a - b) <= tolerance * fabs(b))) fail_msg("%.9g is not %.9g", a, b);
}

static void test_schedule_rates_equal_check_values(void **state) {
  (void)state;
  Schedule s = {.policy = LR_NOAM, .lr = 2, .warmup = 8000, .d_model = 512};
  near(schedule_lr(&s, 4000), 4.941e-4,
       5e-4); /* values computed by the reference implementation */
  near(schedule_lr(&s, 8000), 9.882e-4, 5e-4);
  near(schedule_lr(&s, 100000), 2.795e-4, 5e-4);
  s = (Schedule){.policy = LR_CONSTANT, .lr = 0.1, .warmup = 10};
  near(schedule_lr(&s, 0), 0.01, 1e-12);
  near(schedule_lr(&s, 9), 0.1, 1e-12);
  near(schedule_lr(&s, 500), 0.1, 1e-12);
  s = (Schedule){.policy = LR_EXPONENTIAL, .lr = 1, .rate = 0.1, .decay = 100};
  near(schedule_lr(&s, 200), 0.01, 1e-12);
  s.min_lr = 0.05;
  near(schedule_lr(&s, 200), 0.05, 1e-12);
  s = (Schedule){.policy = LR_EXPONENTIAL, .lr = 1, .rate = 0.1}; /* a decay of one step */
  near(schedule_lr(&s, 2), 0.01, 1e-12);
  s = (Schedule){.policy = LR_POLYNOMIAL, .lr = 1, .min_lr = 0.2, .power = 2, .decay = 100};
  near(schedule_lr(&s, 50), 0.4, 1e-12);
  near(schedule_lr(&s, 150), 0.2, 1e-12);
  s = (Schedule){.policy = LR_COSINE, .lr = 1, .decay = 100};
  near(schedule_lr(&s, 50), 0.5, 1e-12);
  s = (Schedule){.policy = LR_INVERSE_TIME, .lr = 1, .min_lr = 0.25, .power = 2, .decay = 100};
  near(schedule_lr(&s, 0), 1, 1e-12);
  near(schedule_lr(&s, 100), 0.25, 1e-12);
}

static void test_schedule_milestones_apply_from_their_step_on(void **state) {
  (void)state;
  static const struct {
    uint64_t step;
    double rate;
  } rows[] = {{0, 4}, {9, 4}, {10, 8}, {1999, 8}, {2000, 0.4}, {100000, 0.4}};
  Schedule s = {.policy = LR_PIECEWISE, .lr = 4};
  OK(schedule_parse_milestones(&s, "1:3,2:3"));
  OK(schedule_parse_milestones(&s, "10:2,2k:0.1")); /* replaces the others */
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    near(schedule_lr(&s, rows[i].step), rows[i].rate, 1e-12);
  OK(schedule_parse_milestones(&s, "0:0.5"));
  near(schedule_lr(&s, 0), 2, 1e-12);
}

static void test_schedule_milestones_that_are_no_ascending_list_are_refused(void **state) {
  (void)state;
  static const char most[] =
      "1:1,2:1,3:1,4:1,5:1,6:1,7:1,8:1,9:1,10:1,11:1,12:1,13:1,14:1,15:1,16:1";
  static const char *const lists[] = {"10",   "10:",      ":1",        "x:1",          "10:x",
                                      "-1:1", "1:1,,2:1", "10:2,10:1", "10:0.5,5:0.1", NULL};
  Schedule s;
  for (size_t i = 0; lists[i]; i++) {
    if (schedule_parse_milestones(&s, lists[i]) != ERR_USAGE) fail_msg("%s", lists[i]);
    assert_says("--lr-milestones: ");
  }
  OK(schedule_parse_milestones(&s, most));
  assert_int_equal(s.milestones, LR_MILESTONES);
  char more[sizeof most + 8];
  snprintf(more, sizeof more, "%s,17:1", most);
  assert_int_equal(schedule_parse_milestones(&s, more), ERR_USAGE);
}

/* fairseq: lr * sqrt(warmup) * step^-0.5 after a linear warm-up. Its step n is our step n -
 * 1. */
static void test_schedule_inverse_sqrt_peaks_at_lr_and_falls_with_the_root(void **state) {
  (void)state;
  const Schedule s = {.policy = LR_INVERSE_SQRT, .lr = 5e-4, .warmup = 4000, .d_model = 512};
  near(schedule_lr(&s, 1999), 2.5e-4, 1e-12);
  near(schedule_lr(&s, 3999), 5e-4, 1e-12);
  near(schedule_lr(&s, 15999), 2.5e-4, 1e-12);
}

static void test_schedule_inverse_sqrt_without_warmup_begins_at_lr(void **state) {
  (void)state;
  const Schedule s = {.policy = LR_INVERSE_SQRT, .lr = 1};
  near(schedule_lr(&s, 0), 1, 1e-12);
  near(schedule_lr(&s, 3), 0.5, 1e-12);
}

/* The decaying schedules, with a warm-up of 20 steps before a decay of 100. */
static const Schedule falling[] = {
    {.policy = LR_EXPONENTIAL, .lr = 1, .rate = 0.1, .warmup = 20, .decay = 100},
    {.policy = LR_POLYNOMIAL, .lr = 1, .min_lr = 0.1, .power = 1, .warmup = 20, .decay = 100},
    {.policy = LR_COSINE, .lr = 1, .min_lr = 0.1, .warmup = 20, .decay = 100},
    {.policy = LR_INVERSE_TIME, .lr = 1, .min_lr = 0.1, .power = 1, .warmup = 20, .decay = 100},
};
#define FALLING (sizeof falling / sizeof *falling)

static void test_schedule_warmup_rises_linearly_to_the_full_rate(void **state) {
  (void)state;
  for (size_t i = 0; i < FALLING; i++) {
    for (uint64_t step = 0; step < 20; step++)
      near(schedule_lr(&falling[i], step), (double)(step + 1) / 20, 1e-12);
  }
}

static void test_schedule_decay_begins_after_warmup(void **state) {
  (void)state;
  for (size_t i = 0; i < FALLING; i++) {
    near(schedule_lr(&falling[i], 20), 1, 1e-12);
    assert_true(schedule_lr(&falling[i], 21) < 1);
  }
}

static void test_schedule_decay_ends_at_warmup_plus_decay(void **state) {
  (void)state;
  for (size_t i = 0; i < FALLING; i++) {
    assert_true(schedule_lr(&falling[i], 119) > 0.1 + 1e-6);
    near(schedule_lr(&falling[i], 120), 0.1, 1e-12);
  }
}

static void write_file(const char *bytes, size_t len) {
  OK(file_write(at("t.safetensors"), bytes, len));
}

static void test_safetensors_round_trip(void **state) {
  (void)state;
  SafeEntry entry[] = {{"a", SAFE_F32, 2, {2, 3}},
                       {"b \"quoted\" ü", SAFE_F32, 1, {4}},
                       {"empty", SAFE_F32, 1, {0}}};
  const char *metadata[] = {"made-by", "test", NULL};
  float data[10] = {1, -2, 3.5f, INFINITY, 5, 6, 7, 8, 9, 10}, back[10];
  FileWriter w;
  SafeFile f;
  OK(file_create(&w, at("t.safetensors")));
  OK(safetensors_begin(&w, entry, 3, metadata));
  OK(file_put(&w, data, sizeof data));
  OK(file_finish(&w, NULL));
  OK(safetensors_open(&f, at("t.safetensors")));
  assert_int_equal(f.tensors, 3);
  assert_non_null(strstr(f.metadata, "made-by"));
  OK(safetensors_read(&f, safetensors_find(&f, "a"), back, 6));
  OK(safetensors_read(&f, safetensors_find(&f, "b \"quoted\" ü"), back + 6, 4));
  assert_memory_equal(data, back, sizeof data);
  assert_int_equal(safetensors_read(&f, safetensors_find(&f, "a"), back, 5), ERR_WORK);
  assert_null(safetensors_find(&f, "c"));
  safetensors_close(&f);
}

static void test_safetensors_fp16_and_bf16_are_read(void **state) {
  (void)state;
  static const char header[] =
      "{\"h\":{\"dtype\":\"F16\",\"shape\":[5],\"data_offsets\":[0,10]},"
      "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[10,12]}}";
  uint16_t data[6] = {0x3c00, 0xc000, 0x0001, 0x7c00, 0x7bff, 0x3fc0};
  Str file = {0};
  uint64_t len = sizeof header - 1;
  str_addn(&file, (const char *)&len, 8);
  str_addn(&file, header, (size_t)len);
  str_addn(&file, (const char *)data, sizeof data);
  write_file(file.s, file.len);
  str_free(&file);
  SafeFile f;
  float x[5], b;
  OK(safetensors_open(&f, at("t.safetensors")));
  OK(safetensors_read(&f, safetensors_find(&f, "h"), x, 5));
  OK(safetensors_read(&f, safetensors_find(&f, "b"), &b, 1));
  assert_true(x[0] == 1 && x[1] == -2 && x[2] == 0x1p-24f && isinf(x[3]) && x[4] == 65504 &&
              b == 1.5f);
  safetensors_close(&f);
}

static void test_safetensors_bad_header_is_refused(void **state) {
  (void)state;
  static const char *const headers[] = {
      "",
      "[]",
      "{\"a\":1}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905,4],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}",
  };
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    Str file = {0};
    SafeFile f;
    uint64_t len = strlen(headers[i]);
    str_addn(&file, (const char *)&len, 8);
    str_add(&file, headers[i]);
    str_addn(&file, "\0\0\0\0", 4);
    write_file(file.s, file.len);
    assert_int_equal(safetensors_open(&f, at("t.safetensors")), ERR_WORK);
    assert_non_null(strstr(err_message(), "t.safetensors"));
    str_free(&file);
  }
  SafeFile f;
  write_file("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
  assert_int_equal(safetensors_open(&f, at("t.safetensors")), ERR_WORK);
  write_file("abc", 3);
  assert_int_equal(safetensors_open(&f, at("t.safetensors")), ERR_WORK);
}

/* With a random tiny model: the score that beam search returns for a hypothesis must equal the
 * score of the whole output under teacher forcing. */
static void test_beam_scores_equal_model_on_whole_output(void **state) {
  (void)state;
  Backend backend;
  TransformerConfig c = {.vocab = 30, .bos = 2, .eos = 1, .pad = 0, .max_positions = 24};
  OK(backend_cpu(&backend, 2, false));
  OK(transformer_preset(&c, "tiny"));
  c.d_model = 32, c.ffn_dim = 48, c.heads = 4, c.layers[0] = c.layers[1] = 2;
  Transformer t;
  Batch batch;
  float *w;
  OK(transformer_new(&t, &c, &backend, 256, 0, true));
  OK(mem_alloc_aligned(&w, t.model.params.padded * sizeof *w));
  OK(batch_new(&batch, 256, 8));
  params_init(&t.model.params, 3, w);
  for (size_t i = 0; i < t.model.params.padded; i++)
    w[i] *= 1.5f; /* larger weights make the distribution less uniform */
  int32_t src[] = {5, 6, 7, 8, 1, 9, 10, 1, 11, 12, 13, 14, 15, 16, 1}, off[] = {0, 5, 8, 15};
  BeamSpec spec = {.beam_size = 4, .length_penalty = 0.6f, .extra_length = 6, .nbest = 4};
  Beam *beam;
  Hypothesis best[12], alone[4];
  OK(beam_new(&beam, &c, &backend, (Weights){w, w}, &spec, 64, 8));
  OK(beam_search(beam, src, off, 3, best));
  for (int s = 0; s < 3; s++) {
    for (int k = 0; k < 4; k++) {
      const Hypothesis *h = &best[4 * s + k];
      size_t n = (size_t)(off[s + 1] - off[s]);
      assert_non_null(h->id);
      if (k) assert_true(h->score <= best[4 * s + k - 1].score);
      if (h->len + 1 > n - 1 + 6) continue; /* truncated output, without eos */
      memcpy(batch.src, src + off[s], n * sizeof *src);
      for (size_t i = 0; i < n; i++) batch.src_pos[i] = (int32_t)i;
      batch.tgt_in[0] = c.bos;
      memcpy(batch.tgt_in + 1, h->id, h->len * sizeof *src);
      memcpy(batch.tgt_out, h->id, h->len * sizeof *src);
      batch.tgt_out[h->len] = c.eos;
      for (size_t i = 0; i <= h->len; i++) batch.tgt_pos[i] = (int32_t)i;
      batch.sentences = 1, batch.rows[0] = (uint32_t)n, batch.rows[1] = (uint32_t)h->len + 1;
      batch.src_off[0] = batch.tgt_off[0] = 0;
      batch.src_off[1] = (int32_t)n, batch.tgt_off[1] = (int32_t)h->len + 1;
      ModelLoss loss;
      transformer_step(&t, (Weights){w, w}, NULL, &batch, (StepKey){0}, 0, 0, NULL, NULL);
      OK(model_loss(&t.model, &loss));
      assert_true(fabs(loss.sum[1] + (double)h->log_probability) < 1e-4 * (1 + loss.sum[1]));
      near(h->score, h->log_probability / powf((5 + (float)(h->len + 1)) / 6, 0.6f), 1e-5);
    }
  }
  /* A sentence alone gives the same result as within a batch. Copy the ids, which the next
   * search overwrites. */
  int32_t kept[24];
  size_t len = best[4].len;
  float score = best[4].score;
  memcpy(kept, best[4].id, len * sizeof *kept);
  OK(beam_search(beam, src + 5, (int32_t[]){0, 3}, 1, alone));
  assert_int_equal(alone[0].len, len);
  assert_memory_equal(alone[0].id, kept, len * sizeof *kept);
  assert_true(alone[0].score == score);
  beam_free(beam);
  batch_free(&batch);
  transformer_free(&t);
  mem_free(w);
}

/* The time limit of a first pass must suffice for 6 FLOPs per parameter and token: a base model
 * (60 M parameters) with 25,000 tokens per side takes five hours on a CPU of 1 GFLOP/s. */
static void test_pass_limit_grows_with_model_and_batch(void **state) {
  (void)state;
  Backend cpu = {.host = true}, gpu = {.host = false};
  Model m = {.backend = &cpu, .params.total = 60000000, .capacity = 25000};
  double slow = pass_limit(&m);
  assert_true(slow > 6.0 * 60e6 * 50e3 / 1e9);
  m.capacity = 50000;
  assert_true(pass_limit(&m) > 1.9 * slow);
  m.capacity = 25000;
  m.backend = &gpu;
  assert_true(pass_limit(&m) < 0.1 * slow);
  m.params.total = 0; /* what remains is the time to start libraries and devices */
  assert_true(pass_limit(&m) >= 60);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_schedule_rates_equal_check_values),
      cmocka_unit_test(test_schedule_milestones_apply_from_their_step_on),
      cmocka_unit_test(test_schedule_milestones_that_are_no_ascending_list_are_refused),
      cmocka_unit_test(test_schedule_inverse_sqrt_peaks_at_lr_and_falls_with_the_root),
      cmocka_unit_test(test_schedule_inverse_sqrt_without_warmup_begins_at_lr),
      cmocka_unit_test(test_schedule_warmup_rises_linearly_to_the_full_rate),
      cmocka_unit_test(test_schedule_decay_begins_after_warmup),
      cmocka_unit_test(test_schedule_decay_ends_at_warmup_plus_decay),
      cmocka_unit_test(test_safetensors_round_trip),
      cmocka_unit_test(test_safetensors_fp16_and_bf16_are_read),
      cmocka_unit_test(test_safetensors_bad_header_is_refused),
      cmocka_unit_test(test_beam_scores_equal_model_on_whole_output),
      cmocka_unit_test(test_pass_limit_grows_with_model_and_batch),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
