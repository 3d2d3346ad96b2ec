/* The conditions under which beam search stops. The test supplies the scores of every step, so
 * that the best hypotheses can be computed by hand. Uses a tiny model with random weights, whose
 * logits are ignored. */
#include "backend/backend.h"
#include "base/mem.h"
#include "decode/beam.h"
#include "support.h"

enum { EOS = 1, BOS = 2, A = 5, B = 6, C = 7, VOCAB = 40, WORDS = 2, STEPS = 4 };

#define NEVER (-100.0f) /* a log probability too small to win */

typedef struct {
  int32_t id;
  float log_probability;
} Word;

/* The words that may follow the best live hypothesis in each step, with their scores. Later steps
 * repeat the last one. Every other word, and every word after another hypothesis, has the score
 * NEVER. */
static struct {
  Word word[STEPS][WORDS];
  int steps, step;
} script;

/* Replaces the backend's operation `top_k`. */
static void top_of_script(const Backend *b, float *value, int32_t *id, float *lse,
                          const void *logits, size_t rows, size_t vocab, size_t k) {
  (void)b, (void)logits, (void)vocab;
  assert_true(k >= WORDS && k <= 20);
  const Word *word = script.word[script.step];
  for (size_t row = 0; row < rows; row++) {
    lse[row] = 0;
    for (size_t i = 0; i < k; i++) {
      bool is_given = row == 0 && i < WORDS && word[i].id;
      id[row * k + i] = is_given ? word[i].id : (int32_t)(VOCAB - 1 - i);
      value[row * k + i] = is_given ? word[i].log_probability : NEVER;
    }
  }
  if (script.step + 1 < script.steps) script.step++;
}

/* Searches with the scores of the script; returns the number of steps. */
static uint64_t search(const BeamSpec *spec, Hypothesis *best, int32_t copy[][16]) {
  TransformerConfig config = {
      .vocab = VOCAB, .bos = BOS, .eos = EOS, .pad = 0, .max_positions = 16};
  Backend backend;
  Params params;
  float *w;
  Beam *beam;
  int32_t src[] = {5, 6, 7, EOS}, off[] = {0, 4};
  OK(backend_cpu(&backend, 1, false));
  OK(transformer_preset(&config, "tiny"));
  config.d_model = 16, config.ffn_dim = 16, config.heads = 2;
  config.layers[0] = config.layers[1] = 1;
  OK(transformer_lay_out_params(&params, &config));
  OK(mem_alloc_aligned(&w, params.padded * sizeof *w));
  params_init(&params, 3, w);
  backend.top_k = top_of_script;
  script.step = 0;
  OK(beam_new(&beam, &config, &backend, (Weights){w, w}, spec, 16, 1));
  OK(beam_search(beam, src, off, 1, best));
  /* Copies the ids, which belong to the beam and are freed with it. */
  for (int k = 0; k < spec->nbest; k++) {
    assert_non_null(best[k].id);
    memcpy(copy[k], best[k].id, best[k].len * sizeof(int32_t));
    best[k].id = copy[k];
  }
  uint64_t steps = beam_times(beam).steps;
  beam_free(beam);
  params_free(&params);
  mem_free(w);
  return steps;
}

static void assert_words(const Hypothesis *h, const int32_t *words, size_t len) {
  assert_int_equal(h->len, len);
  assert_memory_equal(h->id, words, len * sizeof *words);
}

/* The empty translation ends first, with -1; the hypothesis "A" has -1.3. With the length penalty
 * of its current length "A" loses (-1.3 / (7 / 6) = -1.11), but ((5 + length) / 6)^1 favours
 * longer outputs: "A B C" with end-of-sentence, log probability -1.33, scores -1.33 / (9 / 6) =
 * -0.89. */
static void test_beam_longer_hypothesis_that_can_win_is_waited_for(void **state) {
  (void)state;
  static int32_t words[1][16];
  Hypothesis best[1];
  BeamSpec spec = {
      .beam_size = 1, .length_penalty = 1, .max_length = 6, .extra_length = 30, .nbest = 1};
  script.word[0][0] = (Word){EOS, -1}, script.word[0][1] = (Word){A, -1.3f};
  script.word[1][0] = (Word){B, -0.01f}, script.word[1][1] = (Word){EOS, -0.02f};
  script.word[2][0] = (Word){C, -0.01f}, script.word[2][1] = (Word){EOS, -0.02f};
  script.word[3][0] = (Word){EOS, -0.01f}, script.word[3][1] = (Word){0};
  script.steps = 4;
  search(&spec, best, words);
  assert_words(&best[0], (int32_t[]){A, B, C}, 3);
  assert_true(best[0].score > -0.9f && best[0].score < -0.88f);
}

/* Without a length penalty the score of a live hypothesis can only decrease, so the search ends
 * as soon as an ended hypothesis is better. */
static void test_beam_hypothesis_that_cannot_win_is_not_waited_for(void **state) {
  (void)state;
  static int32_t words[1][16];
  Hypothesis best[1];
  BeamSpec spec = {
      .beam_size = 1, .length_penalty = 0, .max_length = 10, .extra_length = 30, .nbest = 1};
  script.word[0][0] = (Word){EOS, -1}, script.word[0][1] = (Word){A, -1.1f};
  script.word[1][0] = (Word){B, 0}, script.word[1][1] = (Word){0};
  script.steps = 2;
  assert_int_equal(search(&spec, best, words), 1);
  assert_int_equal(best[0].len, 0);
}

/* If outputs have at most ten words, the length penalty is at most 16 / 6: "A" at -3 reaches
 * -1.125 and cannot beat -1. With fifteen words it can: -3 / (21 / 6) = -0.86. */
static void test_beam_bound_is_the_penalty_of_the_longest_output(void **state) {
  (void)state;
  static int32_t words[1][16];
  Hypothesis best[1];
  BeamSpec spec = {
      .beam_size = 1, .length_penalty = 1, .max_length = 10, .extra_length = 30, .nbest = 1};
  script.word[0][0] = (Word){EOS, -1}, script.word[0][1] = (Word){A, -3};
  script.word[1][0] = (Word){B, 0}, script.word[1][1] = (Word){0};
  script.steps = 2;
  assert_int_equal(search(&spec, best, words), 1);
  spec.max_length = 15;
  assert_true(search(&spec, best, words) > 1);
}

/* With nbest 2 a live hypothesis must beat the second best ended one: the empty translation has
 * -0.1, then "A" ends with -3, and "A C" continues and ends with -2. */
static void test_beam_nbest_2_stops_at_the_second_best_score(void **state) {
  (void)state;
  static int32_t words[2][16];
  Hypothesis best[2];
  BeamSpec spec = {
      .beam_size = 2, .length_penalty = 0, .max_length = 10, .extra_length = 30, .nbest = 2};
  script.word[0][0] = (Word){EOS, -0.1f}, script.word[0][1] = (Word){A, -1};
  script.word[1][0] = (Word){C, -0.5f}, script.word[1][1] = (Word){EOS, -2};
  script.word[2][0] = (Word){EOS, -0.5f}, script.word[2][1] = (Word){0};
  script.steps = 3;
  assert_int_equal(search(&spec, best, words), 3);
  assert_int_equal(best[0].len, 0);
  assert_words(&best[1], (int32_t[]){A, C}, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_beam_longer_hypothesis_that_can_win_is_waited_for),
      cmocka_unit_test(test_beam_hypothesis_that_cannot_win_is_not_waited_for),
      cmocka_unit_test(test_beam_bound_is_the_penalty_of_the_longest_output),
      cmocka_unit_test(test_beam_nbest_2_stops_at_the_second_best_score),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
