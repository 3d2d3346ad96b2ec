/* The conditions under which beam search stops, how it ranks hypotheses, and which words may not
 * come next. The test supplies the scores of every step, so that the best hypotheses can be computed
 * by hand. Uses a tiny model with random weights, whose logits are ignored. */
#include <math.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
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

/* A beam of a tiny model whose `top_k` is `top`. */
typedef struct {
  Params params;
  float *w;
  Beam *beam;
} Searcher;

static const int32_t src[] = {5, 6, 7, EOS}, off[] = {0, 4};

static Err open_searcher(Searcher *s, const TransformerConfig *ids, const BeamSpec *spec,
                         size_t rows, size_t sentences, Backend backend) {
  TransformerConfig config = *ids;
  OK(transformer_preset(&config, "tiny"));
  config.d_model = 16, config.ffn_dim = 16, config.heads = 2;
  config.layers[0] = config.layers[1] = 1;
  OK(transformer_lay_out_params(&s->params, &config));
  OK(mem_alloc_aligned(&s->w, s->params.padded * sizeof *s->w));
  params_init(&s->params, 3, s->w);
  return beam_new(&s->beam, &config, &backend, (Weights){s->w, s->w}, spec, rows, sentences);
}

static void close_searcher(Searcher *s) {
  beam_free(s->beam);
  params_free(&s->params);
  mem_free(s->w);
}

/* Searches with the scores of the script; returns the number of steps. */
static uint64_t search(const BeamSpec *spec, Hypothesis *best, int32_t copy[][16]) {
  TransformerConfig ids = {
      .vocab = VOCAB, .bos = BOS, .eos = EOS, .pad = 0, .max_positions = 16};
  Backend backend;
  Searcher s;
  OK(backend_cpu(&backend, 1, false));
  backend.top_k = top_of_script;
  script.step = 0;
  OK(open_searcher(&s, &ids, spec, 16, 1, backend));
  OK(beam_search(s.beam, src, off, 1, best));
  /* Copies the ids, which belong to the beam and are freed with it. */
  for (int k = 0; k < spec->nbest; k++) {
    assert_non_null(best[k].id);
    memcpy(copy[k], best[k].id, best[k].len * sizeof(int32_t));
    best[k].id = copy[k];
  }
  uint64_t steps = beam_times(s.beam).steps;
  close_searcher(&s);
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

/* ---- the same scores in every row ---- */

enum { MOST_WORDS = 12 };

/* The log probabilities of the first words of the vocabulary, in each step, after any hypothesis.
 * The other words have the score NEVER. */
static struct {
  float word[STEPS][MOST_WORDS];
  size_t words;
  uint64_t seed; /* not 0: random log probabilities instead, by step, row and word */
  size_t most;   /* largest k that was wanted */
} table;

/* Random scores are multiples of 1/4, so that many sums are equal; some are positive, unlike log
 * probabilities, so that no order holds by chance. */
static float get_score(size_t step, size_t row, size_t word) {
  if (!table.seed) return word < table.words ? table.word[step][word] : NEVER;
  uint64_t random = rng_mix(rng_mix(table.seed, step), row * VOCAB + word);
  return 0.25f * (3 - (float)(random % 16));
}

/* Replaces the backend's operation `top_k`: the k best words, of equal ones the first, which it
 * also writes into the logits. */
static void top_of_table(const Backend *b, float *value, int32_t *id, float *lse,
                         const void *logits, size_t rows, size_t vocab, size_t k) {
  (void)b;
  float *scores = (float *)(uintptr_t)logits;
  if (k > table.most) table.most = k;
  for (size_t row = 0; row < rows; row++) {
    float *own = scores + row * vocab;
    bool is_taken[VOCAB] = {false};
    lse[row] = 1 + (float)row;
    for (size_t i = 0; i < vocab; i++)
      own[i] = get_score((size_t)script.step, row, i) + lse[row];
    for (size_t i = 0; i < k; i++) {
      size_t best = vocab;
      for (size_t c = 0; c < vocab; c++)
        if (!is_taken[c] && (best == vocab || own[c] > own[best])) best = c;
      is_taken[best] = true;
      id[row * k + i] = (int32_t)best;
      value[row * k + i] = own[best];
    }
  }
  if (script.step + 1 < script.steps) script.step++;
}

static Err open_table(Searcher *s, const TransformerConfig *ids, const BeamSpec *spec,
                      size_t sentences) {
  Backend backend;
  OK(backend_cpu(&backend, 1, false));
  backend.top_k = top_of_table;
  table.most = 0;
  return open_searcher(s, ids, spec, 16, sentences, backend);
}

/* With two words besides end-of-sentence, a beam of four has two hypotheses after its first step, and
 * four after the second. A search must not depend on those before it on the same Beam. */
static void test_beam_with_fewer_words_than_hypotheses_finds_the_best_twice(void **state) {
  (void)state;
  enum { ONE = 3, TWO = 4 };
  static const int32_t expected[][3] = {{ONE, ONE, ONE}, {ONE, ONE, TWO}, {ONE, TWO, ONE}};
  static const float sums[] = {-0.111f, -0.115f, -0.141f};
  TransformerConfig ids = {.vocab = 5, .bos = BOS, .eos = EOS, .pad = 0, .max_positions = 16};
  BeamSpec spec = {.beam_size = 4, .length_penalty = 1, .max_length = 3, .nbest = 4};
  spec.extra_length = 30;
  Searcher s;
  memset(&table, 0, sizeof table);
  table.words = 5;
  for (int step = 0; step < 3; step++)
    for (int word = 0; word < 3; word++) table.word[step][word] = NEVER;
  table.word[0][ONE] = -0.1f, table.word[0][TWO] = -0.2f;
  table.word[1][ONE] = -0.01f, table.word[1][TWO] = -0.04f;
  table.word[2][ONE] = -0.001f, table.word[2][TWO] = -0.005f;
  script.steps = 3;
  OK(open_table(&s, &ids, &spec, 1));
  for (int batch = 0; batch < 3; batch++) {
    Hypothesis best[4];
    script.step = 0;
    OK(beam_search(s.beam, src, off, 1, best));
    assert_int_equal(best[3].len, 0); /* of the first step, the third best continuation */
    for (int k = 0; k < 3; k++) {
      assert_words(&best[k], expected[k], 3);
      assert_true(fabsf(best[k].log_probability - sums[k]) < 1e-6f);
      assert_true(fabsf(best[k].score - sums[k] / (9.0f / 6)) < 1e-6f);
    }
  }
  close_searcher(&s);
}

static const TransformerConfig common = {
    .vocab = VOCAB, .bos = BOS, .eos = EOS, .pad = 0, .max_positions = 16};

/* The words that may never come next, pad and bos, are the best ones, so a row needs 2 * beam_size + 3
 * words. */
static void test_beam_equal_scores_are_ordered_by_hypothesis_and_word(void **state) {
  (void)state;
  BeamSpec spec = {.beam_size = 3, .max_length = 2, .extra_length = 30, .nbest = 3};
  Hypothesis best[3];
  Searcher s;
  memset(&table, 0, sizeof table);
  table.words = 9;
  for (int step = 0; step < 2; step++) {
    table.word[step][EOS] = -2;
    for (int word = 3; word < 9; word++) table.word[step][word] = -1;
  }
  script.step = 0, script.steps = 2;
  OK(open_table(&s, &common, &spec, 1));
  OK(beam_search(s.beam, src, off, 1, best));
  for (int k = 0; k < 3; k++) assert_words(&best[k], (int32_t[]){3, 3 + k}, 2);
  assert_int_equal(table.most, 9);
  close_searcher(&s);
}

/* End-of-sentence ends a hypothesis only if it is among the beam_size best continuations. */
static void test_beam_end_mark_counts_among_the_first_continuations(void **state) {
  (void)state;
  static const struct {
    float end;
    size_t len[3];
  } cases[] = {{-1.25f, {1, 1, 0}}, {-1.35f, {1, 1, 1}}, {-0.5f, {0, 1, 1}}};
  BeamSpec spec = {.beam_size = 3, .max_length = 1, .extra_length = 30, .nbest = 3};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Hypothesis best[3];
    Searcher s;
    memset(&table, 0, sizeof table);
    table.words = 6;
    table.word[0][0] = table.word[0][BOS] = 0;
    table.word[0][EOS] = cases[i].end;
    for (int k = 0; k < 3; k++) table.word[0][3 + k] = -1.1f - 0.1f * (float)k;
    script.step = 0, script.steps = 1;
    OK(open_table(&s, &common, &spec, 1));
    OK(beam_search(s.beam, src, off, 1, best));
    for (int k = 0; k < 3; k++) assert_int_equal(best[k].len, cases[i].len[k]);
    close_searcher(&s);
  }
}

/* ---- a simple search ---- */

enum { MOST_BEAM = 4, MOST_LENGTH = 5 };

typedef struct {
  float sum, score;
  size_t parent, len;
  int32_t word[MOST_LENGTH + 1];
} Plain;

typedef struct {
  Plain alive[MOST_BEAM], ended[MOST_BEAM];
  size_t alives, ends;
  uint64_t steps, rows;
} PlainSearch;

static float get_penalty(const BeamSpec *spec, size_t len) {
  if (spec->is_hf) return powf((float)len, spec->length_penalty);
  return powf((5 + (float)len) / 6, spec->length_penalty);
}

static int compare_plain(const void *a, const void *b) {
  const Plain *x = a, *y = b;
  if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
  if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
  return x->word[x->len - 1] < y->word[y->len - 1] ? -1 : 1;
}

/* Inserts an ended hypothesis behind those that are as good. */
static void end_plain(PlainSearch *p, const BeamSpec *spec, Plain h, size_t scored_len) {
  size_t at = 0, beam = (size_t)spec->beam_size;
  h.score = h.sum / get_penalty(spec, scored_len);
  while (at < p->ends && p->ended[at].score >= h.score) at++;
  if (at == beam) return;
  if (p->ends < beam) p->ends++;
  for (size_t i = p->ends - 1; i > at; i--) p->ended[i] = p->ended[i - 1];
  p->ended[at] = h;
}

/* Extends all live hypotheses by one word; `len`: their length. */
static void extend_plain(PlainSearch *p, const BeamSpec *spec, size_t vocab, size_t len) {
  static Plain all[MOST_BEAM * VOCAB];
  size_t n = 0, beam = (size_t)spec->beam_size, alives = p->alives;
  for (size_t k = 0; k < alives; k++) {
    for (size_t word = 0; word < vocab; word++) {
      if (word == 0 || word == BOS) continue;
      Plain h = p->alive[k];
      h.sum += get_score(len, k, word);
      h.parent = k;
      h.word[h.len++] = (int32_t)word;
      all[n++] = h;
    }
  }
  qsort(all, n, sizeof *all, compare_plain);
  p->alives = 0;
  for (size_t i = 0; i < n && i < 2 * beam && p->alives < beam; i++) {
    if (all[i].word[len] != EOS) {
      p->alive[p->alives++] = all[i];
    } else if (i < beam) {
      all[i].len--;
      end_plain(p, spec, all[i], len + 1);
    }
  }
}

static bool is_plain_done(const PlainSearch *p, const BeamSpec *spec, size_t len) {
  if (p->alives == 0 || len == (size_t)spec->max_length) return true;
  if (p->ends < (size_t)spec->beam_size) return false;
  size_t longest = spec->length_penalty > 0 ? (size_t)spec->max_length + 1 : len + 1;
  float bound = p->alive[0].sum / get_penalty(spec, spec->is_hf ? len : longest);
  return bound <= p->ended[p->ends - 1].score;
}

static void search_plainly(PlainSearch *p, const BeamSpec *spec, size_t vocab) {
  size_t len = 0;
  memset(p, 0, sizeof *p);
  p->alives = 1;
  do {
    p->steps++;
    p->rows += p->alives;
    extend_plain(p, spec, vocab, len);
    len++;
  } while (!is_plain_done(p, spec, len));
  for (size_t k = 0; k < p->alives; k++) {
    if (spec->is_hf ? len < (size_t)spec->max_length : p->ends == (size_t)spec->beam_size)
      break;
    end_plain(p, spec, p->alive[k], spec->is_hf ? len : len + 1);
  }
}

/* Many batches on one Beam, with random scores, give the hypotheses of the simple search. */
static void test_beam_random_scores_give_the_hypotheses_of_a_simple_search(void **state) {
  (void)state;
  enum { TURNS = 60, FEW = 12 };
  static const float penalty[] = {0, 1, -0.5f};
  static const int sizes[] = {1, 2, 4};
  TransformerConfig ids = common;
  ids.vocab = FEW;
  for (size_t i = 0; i < 18; i++) {
    BeamSpec spec = {.beam_size = sizes[i % 3],
                     .length_penalty = penalty[i / 3 % 3],
                     .is_hf = i >= 9,
                     .max_length = MOST_LENGTH,
                     .extra_length = 30,
                     .nbest = sizes[i % 3]};
    Searcher s;
    memset(&table, 0, sizeof table);
    OK(open_table(&s, &ids, &spec, 1));
    script.steps = MOST_LENGTH + 1;
    double start = progress_clock();
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
      Hypothesis best[MOST_BEAM];
      PlainSearch plain;
      BeamTimes before = beam_times(s.beam);
      table.seed = turn;
      search_plainly(&plain, &spec, FEW);
      script.step = 0;
      OK(beam_search(s.beam, src, off, 1, best));
      assert_int_equal(beam_times(s.beam).steps - before.steps, plain.steps);
      assert_int_equal(beam_times(s.beam).rows - before.rows, plain.rows);
      for (size_t k = 0; k < (size_t)spec.nbest; k++) {
        if (k >= plain.ends) {
          assert_null(best[k].id);
          assert_true(best[k].score == -INFINITY);
          continue;
        }
        assert_words(&best[k], plain.ended[k].word, plain.ended[k].len);
        assert_true(best[k].score == plain.ended[k].score);
        assert_true(best[k].log_probability == plain.ended[k].sum);
      }
    }
    BeamTimes t = beam_times(s.beam);
    assert_true(t.encode >= 0 && t.step >= 0 && t.choose >= 0);
    assert_true(t.encode + t.step + t.choose <= progress_clock() - start);
    close_searcher(&s);
  }
}

/* ---- sampling ---- */

/* The best words are 0, end-of-sentence and 2, then 3; all others are much less likely. */
static void test_sampling_draws_no_word_that_may_not_come_next(void **state) {
  (void)state;
  enum { SAMPLES = 4 };
  static const struct {
    int32_t pad, bos, forced; /* forced: length of the output, or 0 */
    float value[3];           /* of the words 0, EOS, 2 */
    int32_t expected[2];
    size_t len;
    int vocab, top_k;
    size_t most; /* words that a row needs */
  } cases[] = {
      {0, BOS, 2, {50, 50, 50}, {3, 3}, 2, VOCAB, 0, 4},
      {0, BOS, 2, {50, 50, 50}, {3, 3}, 2, VOCAB, 1, 4},
      {0, BOS, 2, {50, 50, 50}, {3, 3}, 2, VOCAB, 2, 5},
      {0, BOS, 2, {50, 50, 50}, {3, 3}, 2, 5, 0, 4},
      {0, BOS, 2, {50, 50, 50}, {3, 3}, 2, 5, 5, 5},
      {0, BOS, 0, {50, 40, 50}, {0}, 0, VOCAB, 0, 4},
      {0, BOS, 0, {50, 40, 50}, {0}, 0, VOCAB, 1, 4},
      {0, BOS, 0, {50, -90, 50}, {3, 3}, 2, VOCAB, 0, 4},
      {0, BOS, 0, {50, -90, 50}, {3, 3}, 2, VOCAB, 2, 5},
      {-1, BOS, 2, {50, 50, 50}, {0, 0}, 2, VOCAB, 0, 4},
      {-1, BOS, 2, {50, 50, 50}, {0, 0}, 2, VOCAB, 1, 4},
      {0, -1, 2, {50, 50, 50}, {2, 2}, 2, VOCAB, 0, 4},
      {0, -1, 2, {50, 50, 50}, {2, 2}, 2, VOCAB, 1, 4},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int32_t wanted[] = {cases[i].forced};
    TransformerConfig ids = common;
    BeamSpec spec = {.beam_size = SAMPLES, .max_length = 2, .extra_length = 30};
    Hypothesis best[SAMPLES];
    Searcher s;
    spec.nbest = SAMPLES;
    spec.is_sampling = true;
    spec.sample = (SampleSpec){.temperature = 1, .top_k = cases[i].top_k};
    ids.vocab = cases[i].vocab;
    ids.pad = cases[i].pad;
    ids.bos = cases[i].bos;
    memset(&table, 0, sizeof table);
    table.words = 4;
    memcpy(table.word[0], cases[i].value, sizeof cases[i].value);
    table.word[0][3] = -1;
    script.step = 0, script.steps = 1;
    OK(open_table(&s, &ids, &spec, 1));
    if (wanted[0]) beam_set_lengths(s.beam, wanted);
    OK(beam_search(s.beam, src, off, 1, best));
    float sum = cases[i].len ? 2 * table.word[0][cases[i].expected[0]] : cases[i].value[EOS];
    for (int k = 0; k < SAMPLES; k++) {
      assert_words(&best[k], cases[i].expected, cases[i].len);
      assert_true(best[k].score == sum && best[k].log_probability == sum);
    }
    assert_int_equal(table.most, cases[i].most);
    close_searcher(&s);
  }
}

/* Each sample ends on its own, and depends on its index, the line and the position only. */
static void test_samples_of_a_sentence_end_independently(void **state) {
  (void)state;
  enum { SAMPLES = 12, LONGEST = 4 };
  BeamSpec spec = {.beam_size = SAMPLES,
                   .max_length = LONGEST,
                   .extra_length = 30,
                   .nbest = SAMPLES,
                   .is_sampling = true,
                   .sample = {.temperature = 1, .seed = 3}};
  static const uint64_t line[] = {77};
  float logits[VOCAB];
  Hypothesis best[SAMPLES];
  Searcher s;
  unsigned lengths = 0;
  memset(&table, 0, sizeof table);
  table.words = 5;
  table.word[0][EOS] = 0.5f;
  table.word[0][4] = -0.5f;
  script.step = 0, script.steps = 1;
  OK(open_table(&s, &common, &spec, 1));
  beam_set_lines(s.beam, line);
  OK(beam_search(s.beam, src, off, 1, best));
  for (uint32_t k = 0; k < SAMPLES; k++) {
    int32_t words[LONGEST];
    uint32_t len = 0;
    float sum = 0;
    for (bool ends = false; !ends && len < LONGEST;) {
      for (size_t i = 0; i < VOCAB; i++) logits[i] = get_score(0, 0, i);
      logits[0] = logits[BOS] = -INFINITY;
      size_t word = sample_draw(&spec.sample, sample_uniform(&spec.sample, line[0], k, len),
                                logits, VOCAB, 0.5f);
      sum += logits[word];
      ends = word == EOS;
      if (!ends) words[len++] = (int32_t)word;
    }
    assert_words(&best[k], words, len);
    assert_true(best[k].score == sum && best[k].log_probability == sum);
    lengths |= 1u << len;
  }
  assert_true((lengths & 3) == 3 && lengths > 3); /* some are empty, some end later */
  close_searcher(&s);
}

/* ---- limits ---- */

static Err fail_to_sync(const Backend *b) {
  (void)b;
  return err_set(ERR_WORK, "the device is lost");
}

static Err fail_to_get(const Backend *b, void *to, const void *from, size_t bytes) {
  (void)b, (void)to, (void)from, (void)bytes;
  return err_set(ERR_WORK, "the device is lost");
}

static void test_beam_lost_device_ends_the_search(void **state) {
  (void)state;
  BeamSpec spec = {.beam_size = 1, .max_length = 1, .extra_length = 1, .nbest = 1};
  for (int i = 0; i < 2; i++) {
    Backend backend;
    Hypothesis best[1];
    Searcher s;
    OK(backend_cpu(&backend, 1, false));
    backend.top_k = top_of_table;
    if (i)
      backend.get = fail_to_get;
    else
      backend.sync = fail_to_sync;
    OK(open_searcher(&s, &common, &spec, 16, 1, backend));
    assert_int_equal(beam_search(s.beam, src, off, 1, best), ERR_WORK);
    assert_says("the device is lost");
    close_searcher(&s);
  }
}

static void test_beam_words_follow_from_the_lengths(void **state) {
  (void)state;
  static const struct {
    BeamSpec spec;
    size_t longest, rows, words;
  } cases[] = {
      {{.beam_size = 4, .extra_length = 6}, 24, 4, 33},
      {{.beam_size = 4, .extra_length = 6, .max_length = 9}, 24, 4, 33},
      {{.beam_size = 4, .extra_length = 6, .max_length = 3}, 24, 4, 9},
      {{.beam_size = 4, .extra_length = 6}, 10, 4, 33},
      {{.beam_size = 4, .extra_length = 6}, 9, 4, 29},
      {{.beam_size = 4, .extra_length = 6}, 5, 4, 13},
      {{.beam_size = 4}, 24, 1, 1},
      {{.beam_size = 4, .extra_length = 6, .is_sampling = true}, 24, 4, 36},
      {{.beam_size = 4, .is_sampling = true}, 24, 1, 4},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(beam_words(&cases[i].spec, cases[i].longest, cases[i].rows),
                     cases[i].words);
}

static void test_beam_size_outside_1_to_64_is_refused(void **state) {
  (void)state;
  static const struct {
    int beam_size;
    Err expected;
  } cases[] = {{0, ERR_USAGE}, {1, ERR_OK}, {64, ERR_OK}, {65, ERR_USAGE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    BeamSpec spec = {.beam_size = cases[i].beam_size, .extra_length = 1, .nbest = 1};
    Searcher s;
    assert_int_equal(open_table(&s, &common, &spec, 1), cases[i].expected);
    if (cases[i].expected) assert_says("--beam-size must be from 1 to 64");
    close_searcher(&s);
  }
}

static void test_sampling_from_more_words_than_the_device_selects_is_refused(void **state) {
  (void)state;
  BeamSpec spec = {.beam_size = 1, .nbest = 1, .is_sampling = true};
  Backend backend;
  Searcher s;
  spec.sample = (SampleSpec){.temperature = 1, .top_k = 7};
  OK(backend_cpu(&backend, 1, false));
  backend.max_top_k = 10;
  OK(open_searcher(&s, &common, &spec, 16, 1, backend));
  close_searcher(&s);
  spec.sample.top_k = 8;
  assert_int_equal(open_searcher(&s, &common, &spec, 16, 1, backend), ERR_USAGE);
  assert_says("can sample from the 7 most likely tokens at most");
  close_searcher(&s);
}

static void test_beam_bytes_without_memory_is_an_error(void **state) {
  (void)state;
  TransformerConfig config = common;
  BeamSpec spec = {.beam_size = 2, .nbest = 1};
  Backend backend;
  uint64_t bytes;
  OK(backend_cpu(&backend, 1, false));
  OK(transformer_preset(&config, "tiny"));
  mem_fail_once(1);
  Err err = beam_bytes(&config, &backend, &spec, 16, 1, 0, &bytes);
  mem_fail_once(0);
  assert_int_equal(err, ERR_WORK);
  assert_says("out of memory");
}

static void test_beam_batch_larger_than_the_beam_is_refused(void **state) {
  (void)state;
  enum { ROWS = 16, SENTENCES = 2 };
  static const struct {
    size_t n;
    int32_t off[4];
    Err expected;
  } cases[] = {{2, {0, 8, ROWS}, ERR_OK},
               {2, {0, 8, ROWS + 1}, ERR_WORK},
               {SENTENCES + 1, {0, 4, 8, 12}, ERR_WORK}};
  BeamSpec spec = {.beam_size = 1, .max_length = 1, .extra_length = 1, .nbest = 1};
  Searcher s;
  memset(&table, 0, sizeof table);
  script.steps = 1;
  OK(open_table(&s, &common, &spec, SENTENCES));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int32_t words[ROWS + 1];
    Hypothesis best[SENTENCES + 1];
    for (int k = 0; k <= ROWS; k++) words[k] = k % 8 == 7 ? EOS : 5;
    assert_int_equal(beam_search(s.beam, words, cases[i].off, cases[i].n, best),
                     cases[i].expected);
    if (cases[i].expected) assert_says("bug: a batch of");
  }
  close_searcher(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_beam_longer_hypothesis_that_can_win_is_waited_for),
      cmocka_unit_test(test_beam_hypothesis_that_cannot_win_is_not_waited_for),
      cmocka_unit_test(test_beam_bound_is_the_penalty_of_the_longest_output),
      cmocka_unit_test(test_beam_nbest_2_stops_at_the_second_best_score),
      cmocka_unit_test(test_beam_with_fewer_words_than_hypotheses_finds_the_best_twice),
      cmocka_unit_test(test_beam_equal_scores_are_ordered_by_hypothesis_and_word),
      cmocka_unit_test(test_beam_end_mark_counts_among_the_first_continuations),
      cmocka_unit_test(test_beam_random_scores_give_the_hypotheses_of_a_simple_search),
      cmocka_unit_test(test_sampling_draws_no_word_that_may_not_come_next),
      cmocka_unit_test(test_samples_of_a_sentence_end_independently),
      cmocka_unit_test(test_beam_lost_device_ends_the_search),
      cmocka_unit_test(test_beam_words_follow_from_the_lengths),
      cmocka_unit_test(test_beam_size_outside_1_to_64_is_refused),
      cmocka_unit_test(test_sampling_from_more_words_than_the_device_selects_is_refused),
      cmocka_unit_test(test_beam_bytes_without_memory_is_an_error),
      cmocka_unit_test(test_beam_batch_larger_than_the_beam_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
