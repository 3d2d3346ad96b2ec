/* Decoding on a device, tested without one: a backend whose host memory is marked as device
 * memory. Results must be bit-identical to those of the CPU; copies to and from the device are
 * counted. Uses a tiny model with random weights. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "decode/translate.h"
#include "model/weights.h"
#include "translator_support.h"

enum { SENTENCES = 40, MOST = SENTENCES * 20, NBEST = 2, LONGEST = 40 };

static Backend cpu, far;
static int32_t src[MOST], off[SENTENCES + 1];
static struct { uint64_t allocs, bytes, puts, gets, widest, narrowest; } seen;

static Err far_alloc(const Backend *b, void *pointer, size_t bytes) {
  seen.allocs++, seen.bytes += bytes;
  return cpu.alloc(b, pointer, bytes);
}

static void far_put(const Backend *b, void *to, const void *from, size_t bytes) {
  seen.puts++;
  assert_ptr_not_equal(to, from);
  cpu.put(b, to, from, bytes);
}

static Err far_get(const Backend *b, void *to, const void *from, size_t bytes) {
  seen.gets++;
  assert_ptr_not_equal(to, from);
  return cpu.get(b, to, from, bytes);
}

static void far_linear(const Backend *b, void *y, const void *x, const void *m,
                       const void *bias, size_t rows, size_t in, size_t out) {
  if (out == (size_t)config.vocab) {
    if (rows > seen.widest) seen.widest = rows;
    if (rows < seen.narrowest) seen.narrowest = rows;
  }
  cpu.linear(b, y, x, m, bias, rows, in, out);
}

static int setup(void **state) {
  (void)state;
  OK(backend_cpu(&cpu, 1, false));
  far = cpu;
  far.host = false;
  far.alloc = far_alloc;
  far.put = far_put;
  far.get = far_get;
  far.linear = far_linear;
  far.pack = NULL;
  far.unpack = NULL;
  far.max_top_k = 100;
  open_translator(&(TransformerConfig){.vocab = 300,
                                       .d_model = 32,
                                       .ffn_dim = 48,
                                       .heads = 4,
                                       .layers = {2, 2},
                                       .max_positions = LONGEST});
  make_sentences(src, off, SENTENCES, 18, 23);
  return 0;
}

/* Searches on both backends; twice on the device, where the second search must not allocate
 * memory. */
static BeamTimes compare(const BeamSpec *spec) {
  Beam *near, *away;
  Weights there;
  Hypothesis want[SENTENCES * NBEST], got[SENTENCES * NBEST];
  OK(weights_new(&there, &far, w, params.padded));
  assert_ptr_not_equal(there.full, w);
  OK(beam_new(&near, &config, &cpu, (Weights){w, w}, spec, MOST, SENTENCES));
  OK(beam_new(&away, &config, &far, there, spec, MOST, SENTENCES));
  OK(beam_search(near, src, off, SENTENCES, want));
  OK(beam_search(away, src, off, SENTENCES, got));
  uint64_t first = beam_times(away).steps, taken = mem_count();
  memset(&seen, 0, sizeof seen);
  seen.narrowest = MOST;
  OK(beam_search(away, src, off, SENTENCES, got));
  assert_int_equal(seen.allocs, 0);
  assert_int_equal(mem_count(), taken);
  for (size_t i = 0; i < SENTENCES * NBEST; i++) {
    assert_int_equal(got[i].len, want[i].len);
    assert_memory_equal(&got[i].score, &want[i].score, sizeof got[i].score);
    if (want[i].len) assert_memory_equal(got[i].id, want[i].id, want[i].len * sizeof(int32_t));
  }
  BeamTimes times = beam_times(away);
  times.steps -= first;
  beam_free(near);
  beam_free(away);
  weights_free(&there, &far);
  return times;
}

static void test_beam_on_device_same_bits_as_cpu(void **state) {
  (void)state;
  for (int beam = 2; beam <= 7; beam += 5) {
    BeamTimes t = compare(&(BeamSpec){
        .beam_size = beam, .length_penalty = 0.6f, .extra_length = 20, .nbest = NBEST});
    assert_true(t.steps > 10);
    assert_int_equal(seen.gets, t.steps); /* one copy to the host per step */
    /* one copy to the device per step, and three for the sources */
    assert_int_equal(seen.puts, 3 + t.steps);
    /* GEMMs must have few distinct sizes, none larger than the reserved memory. */
    assert_int_equal(seen.narrowest, 64);
    assert_true(seen.widest >= (size_t)(beam * SENTENCES) / 2);
    assert_true(seen.widest <= (size_t)(beam * SENTENCES));
  }
}

static void test_sampling_on_device_same_bits_as_cpu(void **state) {
  (void)state;
  BeamSpec spec = {.beam_size = NBEST, .extra_length = 20, .nbest = NBEST, .is_sampling = true};
  spec.sample = (SampleSpec){.temperature = 0.9f, .top_k = 20, .seed = 5};
  BeamTimes t = compare(&spec);
  assert_int_equal(seen.gets, t.steps);
  /* Sampling from the whole vocabulary copies all logits to the host. */
  spec.sample.top_k = 0;
  t = compare(&spec);
  assert_int_equal(seen.gets, 2 * t.steps);
  Beam *beam;
  spec.sample.top_k = 98;
  assert_int_equal(beam_new(&beam, &config, &far, (Weights){w, w}, &spec, 64, 1), ERR_USAGE);
  assert_says("97 most likely tokens");
  assert_null(beam);
}

/* If memory is reserved for the tokens of a batch, the first search must not allocate, and
 * beam_bytes must count all of the memory. */
static void test_beam_reserved_memory_is_enough(void **state) {
  BeamSpec list[] = {
      {.beam_size = 4, .length_penalty = 0.6f, .extra_length = 20, .nbest = 1},
      {.beam_size = 4,
       .length_penalty = 0.6f,
       .extra_length = 0,
       /* outputs are not longer than their sources */
       .nbest = 1},
      /* outputs are limited by max_positions */
      {.beam_size = 1, .extra_length = 500, .nbest = 1},
      {.beam_size = 3, .extra_length = 20, .nbest = 1, .max_length = 3},
      {.beam_size = 3, .extra_length = 5, .nbest = 1, .is_sampling = true, .sample = {1, 0, 5}},
  };
  (void)state;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    const BeamSpec *spec = &list[i];
    Beam *grown, *beam;
    Weights there;
    Hypothesis want[SENTENCES], got[SENTENCES];
    size_t words = 0;
    uint64_t bytes;
    for (size_t s = 0; s < SENTENCES; s++)
      words += beam_words(spec, LONGEST, (size_t)(off[s + 1] - off[s]));
    OK(weights_new(&there, &far, w, params.padded));
    OK(beam_new(&grown, &config, &far, there, spec, MOST, SENTENCES));
    OK(beam_search(grown, src, off, SENTENCES, want));
    memset(&seen, 0, sizeof seen);
    OK(beam_new(&beam, &config, &far, there, spec, (size_t)off[SENTENCES], SENTENCES));
    OK(beam_reserve(beam, words));
    OK(beam_bytes(&config, &far, spec, (size_t)off[SENTENCES], SENTENCES, words, &bytes));
    assert_int_equal(seen.bytes, bytes);
    OK(beam_search(beam, src, off, SENTENCES, got));
    assert_int_equal(seen.bytes, bytes);
    assert_true(beam_times(beam).rows <= words);
    for (size_t s = 0; s < SENTENCES; s++) {
      assert_int_equal(got[s].len, want[s].len);
      assert_memory_equal(&got[s].score, &want[s].score, sizeof got[s].score);
    }
    beam_free(grown);
    beam_free(beam);
    weights_free(&there, &far);
  }
}

/* translator_room must compute the memory that batches of the given lines need. */
static void test_translator_room_counts_tokens_of_batches(void **state) {
  const size_t len[] = {9, 5, 5, 3, 1, 0, 0};
  BeamSpec spec = {.beam_size = 2, .extra_length = 2, .nbest = 1};
  (void)state;
  /* First batch: 10 + 6 source tokens, 21 + 13 output tokens; second: 6 + 4 + 2 source tokens, 13
   * + 9 + 5 output tokens. */
  TranslateRoom room = translator_room(&spec, 20, len, 7, 16, 3);
  assert_int_equal(room.tokens, 16);
  assert_int_equal(room.sentences, 3);
  assert_int_equal(room.words, 34);
  /* The limits are larger than the lines need. */
  room = translator_room(&spec, 20, len, 7, 1000, 50);
  assert_int_equal(room.tokens, 28);
  assert_int_equal(room.sentences, 5);
  assert_int_equal(room.words, 61);
  TranslateRoom again = translator_room(&spec, 20, len, 7, room.tokens, room.sentences);
  assert_memory_equal(&again, &room, sizeof room);
  /* An output has at most 9 tokens, because the model has 10 positions. */
  room = translator_room(&spec, 10, len, 7, 1000, 50);
  assert_int_equal(room.words, 17 + 13 + 13 + 9 + 5);
  room = translator_room(&spec, 20, len + 5, 2, 1000, 50); /* only empty lines */
  assert_int_equal(room.tokens, 1);
  assert_int_equal(room.words, 0);
}

static void test_translator_batch_size_depends_on_device(void **state) {
  (void)state;
  size_t rows, sentences;
  translator_batch(&cpu, 0, 256, 4, &rows, &sentences);
  assert_int_equal(rows, 4096);
  assert_int_equal(sentences, 128);
  translator_batch(&far, 0, 256, 4, &rows, &sentences);
  assert_int_equal(rows, 16384);
  assert_int_equal(sentences, 512);
  translator_batch(&far, 100, 256, 4, &rows, &sentences);
  assert_int_equal(rows, 256);
  assert_int_equal(sentences, 17);
}

static uint64_t memory_left;

static Err far_memory(const Backend *b, uint64_t *left, uint64_t *all) {
  (void)b;
  *left = *all = memory_left;
  return ERR_OK;
}

static void test_translator_batch_shrinks_until_it_fits_into_memory(void **state) {
  (void)state;
  BeamSpec spec = {.beam_size = 4, .nbest = 1};
  size_t rows = 4096, sentences = 128;
  uint64_t bytes;
  Backend small = far;
  small.memory = far_memory;
  OK(beam_bytes(&config, &small, &spec, 1024, 32, 2 * 1024 * 4, &bytes));
  memory_left = 2 * bytes;
  translator_fit_batch(&config, &small, &spec, &rows, &sentences);
  assert_int_equal(rows, 1024);
  assert_int_equal(sentences, 32);
  memory_left = 0; /* A batch holds the longest sentence in any case. */
  translator_fit_batch(&config, &small, &spec, &rows, &sentences);
  assert_int_equal(rows, LONGEST);
  assert_int_equal(sentences, 1);
  rows = 4096;
  translator_fit_batch(&config, &cpu, &spec, &rows, &sentences);
  assert_int_equal(rows, 4096);
}

/* Each allocation fails once; every time the call must return an error. */
static void test_beam_on_device_out_of_memory_is_error(void **state) {
  (void)state;
  BeamSpec spec = {.beam_size = 2, .extra_length = 6, .nbest = 1, .is_sampling = true};
  spec.sample.temperature = 1;
  for (uint64_t n = 1;; n++) {
    Beam *beam = NULL;
    Weights there = {0};
    Hypothesis best[3];
    uint64_t before = mem_count();
    mem_fail_once(n);
    Err err = weights_new(&there, &far, w, params.padded);
    if (!err) err = beam_new(&beam, &config, &far, there, &spec, 64, 3);
    if (!err) err = beam_search(beam, src, off, 3, best);
    mem_fail_once(0);
    if (err) assert_says("out of memory");
    beam_free(beam);
    weights_free(&there, &far);
    if (!err) {
      assert_true(mem_count() - before < n); /* no allocation failed */
      break;
    }
    assert_true(n < 200);
  }
}

static void test_type_to_f32_bf16_and_fp16_are_exact(void **state) {
  (void)state;
  const uint16_t bf16[] = {0x3f80, 0xc040, 0x0001, 0x8000, 0x7f80, 0x7fc0},
                 f16[] = {0x3c00, 0xc200, 0x0001, 0x8000, 0x7c00, 0x7e00, 0x7bff, 0x03ff};
  const float want_bf16[] = {1, -3, 0x1p-133f, -0.0f, INFINITY},
              want_f16[] = {1, -3, 0x1p-24f, -0.0f, INFINITY, 0, 65504, 0x3ffp-24f};
  float got[8];
  type_to_f32(TYPE_BF16, got, bf16, 6);
  assert_memory_equal(got, want_bf16, sizeof want_bf16);
  assert_true(isnan(got[5]));
  type_to_f32(TYPE_F16, got, f16, 8);
  assert_memory_equal(got, want_f16, 5 * sizeof *got);
  assert_true(isnan(got[5]));
  assert_memory_equal(got + 6, want_f16 + 6, 2 * sizeof *got);
  type_to_f32(TYPE_F32, got, want_f16, 8);
  assert_memory_equal(got, want_f16, sizeof got);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_beam_on_device_same_bits_as_cpu),
      cmocka_unit_test(test_sampling_on_device_same_bits_as_cpu),
      cmocka_unit_test(test_beam_reserved_memory_is_enough),
      cmocka_unit_test(test_translator_room_counts_tokens_of_batches),
      cmocka_unit_test(test_translator_batch_size_depends_on_device),
      cmocka_unit_test(test_translator_batch_shrinks_until_it_fits_into_memory),
      cmocka_unit_test(test_beam_on_device_out_of_memory_is_error),
      cmocka_unit_test(test_type_to_f32_bf16_and_fp16_are_exact),
  };
  return cmocka_run_group_tests(tests, setup, close_translator);
}
