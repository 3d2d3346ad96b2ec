/* Parts of the metrics compared with values computed by hand: tokenizers, lower case, TER shifts,
 * use of a Metric, and each allocation failing in turn. Depends on metric. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* must come after the headers that it needs */
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "metric/lines.h"
#include "metric/metric.h"
#include "metric/ter.h"
#include "metric/tokenize.h"

static void assert_tokens(MetricTokenizer tokenizer, const char *line, const char *want) {
  MetricTokens t = {0};
  Str got = {0};
  assert_int_equal(metric_tokenize(&t, tokenizer, metric_text(line)), ERR_OK);
  for (size_t i = 0; i < t.tokens; i++) {
    if (i) str_addc(&got, '|');
    str_addn(&got, t.token[i].s, t.token[i].len);
  }
  assert_string_equal(str_text(&got), want);
  str_free(&got);
  metric_tokens_free(&t);
}

static void test_tokenize_13a_splits_as_mteval(void **state) {
  (void)state;
  assert_tokens(METRIC_13A, "", "");
  assert_tokens(METRIC_13A, "Hello, world.", "Hello|,|world|.");
  assert_tokens(METRIC_13A, "1,000.50 and 5.", "1,000.50|and|5|.");
  assert_tokens(METRIC_13A, "a..5", "a|.|.5");
  assert_tokens(METRIC_13A, "7..8", "7|.|.|8");
  assert_tokens(METRIC_13A, "10-year-old 5--6", "10|-|year-old|5|-|-6");
  assert_tokens(METRIC_13A, "&quot;x&amp;lt;&quot;", "\"|x|<|\"");
  assert_tokens(METRIC_13A, "a<skipped>b hyphen-\nated", "ab|hyphenated");
  assert_tokens(METRIC_13A, "it's «so»", "it's|«so»");
}

static void test_tokenize_intl_splits_at_unicode_punctuation(void **state) {
  (void)state;
  assert_tokens(METRIC_INTL, "«Oui», 1.5€", "«|Oui|»|,|1.5|€");
  assert_tokens(METRIC_INTL, "year 2000.", "year|2000.");
  assert_tokens(METRIC_INTL, "it's &amp;", "it|'|s|&|amp|;");
  assert_tokens(METRIC_INTL, ".5", ".5");
}

static void test_tokenize_char_splits_all_and_none_nothing(void **state) {
  (void)state;
  assert_tokens(METRIC_CHAR, " né 中\u3000x", "n|é|中|x");
  assert_tokens(METRIC_NONE,
                "a, b\u00a0c\x1d"
                "d\u200be",
                "a,|b|c|d\u200be");
}

static void assert_lower(const char *line, const char *want) {
  MetricBuffer out = {0};
  assert_int_equal(metric_lower(metric_text(line), &out), ERR_OK);
  assert_int_equal(out.len, strlen(want));
  assert_memory_equal(out.s, want, out.len);
  mem_free(out.s);
}

static void test_lower_maps_unicode_letters(void **state) {
  (void)state;
  assert_lower("", "");
  assert_lower("ABC xyz ÄÖ ДЖ", "abc xyz äö дж");
  assert_lower("\u0130", "i\u0307");
  assert_lower("ΣΑΣ ΑΣ. Σ", "σας ας. σ");
  assert_lower("ΑΣ'Α ΑΣ\u0301", "ασ'α ας\u0301");
  /* The lower case has three bytes instead of two. */
  assert_lower("\u023a\u023a\u023a", "\u2c65\u2c65\u2c65");
}

static void test_rstrip_removes_unicode_space(void **state) {
  (void)state;
  assert_int_equal(metric_rstrip(metric_text("ab \t\r\u3000\xc2\x85\x1f")).len, 2);
  assert_int_equal(metric_rstrip(metric_text(" \u2003")).len, 0);
  assert_int_equal(metric_rstrip(metric_text("a\u200b")).len, 4);
}

static size_t edits(const char *hyp, const char *ref) {
  uint32_t h[64], r[64];
  size_t n = strlen(hyp), m = strlen(ref), count = 0;
  for (size_t i = 0; i < n; i++) h[i] = (uint32_t)hyp[i];
  for (size_t i = 0; i < m; i++) r[i] = (uint32_t)ref[i];
  Ter t = {0};
  assert_int_equal(ter_edits(&t.space, h, n, r, m, &count), ERR_OK);
  ter_free(&t);
  return count;
}

static void test_ter_counts_edits_and_shifts(void **state) {
  (void)state;
  assert_int_equal(edits("", ""), 0);
  assert_int_equal(edits("abc", ""), 3);
  assert_int_equal(edits("", "abc"), 3);
  assert_int_equal(edits("abc", "abc"), 0);
  assert_int_equal(edits("abx", "abc"), 1);
  assert_int_equal(edits("defabc", "abcdef"), 1); /* one shift of three words */
  assert_int_equal(edits("cabd", "abcd"), 1);
  assert_int_equal(edits("dcba", "abcd"), 3);
}

/* A run of words is shifted at most 50 words far, and has at most 10 words; then it is one edit. */
static void test_ter_limits_distance_and_length_of_a_shift(void **state) {
  (void)state;
  static const struct {
    size_t from, to, length; /* the run in the reference, and its place in the hypothesis */
    size_t edits;
  } cases[] = {{50, 0, 1, 1},  {51, 0, 1, 2},  {0, 50, 1, 1},  {0, 51, 1, 2},
               {55, 5, 1, 1},  {56, 5, 1, 2},  {5, 55, 1, 1},  {5, 56, 1, 2},
               {30, 0, 10, 1}, {30, 0, 11, 2}, {0, 30, 10, 1}, {0, 30, 11, 2}};
  enum { WORDS = 80 };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Ter t = {0};
    uint32_t ref[WORDS], rest[WORDS], hyp[WORDS];
    size_t from = cases[i].from, to = cases[i].to, length = cases[i].length, n = 0, count;
    for (uint32_t k = 0; k < WORDS; k++) {
      ref[k] = k;
      if (k < from || k >= from + length) rest[n++] = k;
    }
    memcpy(hyp, rest, to * sizeof *hyp);
    memcpy(hyp + to, ref + from, length * sizeof *hyp);
    memcpy(hyp + to + length, rest + to, (n - to) * sizeof *hyp);
    assert_int_equal(ter_edits(&t.space, hyp, WORDS, ref, WORDS, &count), ERR_OK);
    if (count != cases[i].edits) fail_msg("case %zu: %zu edits", i, count);
    ter_free(&t);
  }
}

/* Words are aligned only near the diagonal, as in sacreBLEU: for a hypothesis of one word and n
 * reference words at most 25 words before the end, or n / 2 + 25 if n is above 50. */
static void test_ter_aligns_words_near_the_diagonal(void **state) {
  (void)state;
  static const struct {
    size_t refs, at, edits; /* `at`: the reference word that equals the hypothesis */
  } cases[] = {{50, 49, 49},    {50, 24, 49},   {50, 23, 50},   {51, 0, 50},
               {120, 119, 119}, {120, 34, 119}, {120, 33, 120}, {120, 0, 120}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Ter t = {0};
    uint32_t ref[120], hyp = (uint32_t)cases[i].at;
    size_t count;
    for (uint32_t k = 0; k < 120; k++) ref[k] = k;
    assert_int_equal(ter_edits(&t.space, &hyp, 1, ref, cases[i].refs, &count), ERR_OK);
    if (count != cases[i].edits) fail_msg("case %zu: %zu edits", i, count);
    ter_free(&t);
  }
}

/* ---- TER computed plainly: whole matrices, again for each shift ---- */

enum { PLAIN_WORDS = 90, PLAIN_FAR = 1 << 20 };

typedef struct {
  int cell[PLAIN_WORDS + 1][PLAIN_WORDS + 1];
  uint32_t hyp[PLAIN_WORDS];
  const uint32_t *ref;
  int hyps, refs, align[PLAIN_WORDS];
  bool hyp_error[PLAIN_WORDS], ref_error[PLAIN_WORDS];
} PlainTer;

/* Fills the cells of the band: row i has `width` columns on both sides of the diagonal. */
static int measure_plainly(PlainTer *t, const uint32_t *hyp) {
  double slope = t->hyps ? (double)t->refs / t->hyps : 1;
  double width = slope / 2 > 25 ? ceil(slope / 2 + 25) : 25;
  for (int j = 0; j <= t->refs; j++) t->cell[0][j] = j;
  for (int i = 1; i <= t->hyps; i++) {
    double middle = floor(i * slope);
    for (int j = 0; j <= t->refs; j++) {
      bool is_far = j < middle - width || (j >= middle + width && i < t->hyps);
      int least = t->cell[i - 1][j] + 1, left = j ? t->cell[i][j - 1] + 1 : PLAIN_FAR;
      int diagonal = j ? t->cell[i - 1][j - 1] + (hyp[i - 1] != t->ref[j - 1]) : PLAIN_FAR;
      if (left < least) least = left;
      if (diagonal < least) least = diagonal;
      t->cell[i][j] = is_far ? PLAIN_FAR : least;
    }
  }
  return t->cell[t->hyps][t->refs];
}

static void trace_plainly(PlainTer *t) {
  int i = t->hyps, j = t->refs;
  while (i > 0 || j > 0) {
    bool differ = i && j && t->hyp[i - 1] != t->ref[j - 1];
    if (i && j && t->cell[i][j] == t->cell[i - 1][j - 1] + differ) {
      t->align[--j] = --i;
      t->hyp_error[i] = t->ref_error[j] = differ;
    } else if (i && t->cell[i][j] == t->cell[i - 1][j] + 1) {
      t->hyp_error[--i] = true;
    } else {
      t->align[--j] = i - 1;
      t->ref_error[j] = true;
    }
  }
}

/* Moves n words from h to the position `to` of the words before the move. */
static void shift_plainly(const PlainTer *t, int h, int n, int to, uint32_t *out) {
  if (to >= h && to <= h + n) to += n;
  if (to > t->hyps) to = t->hyps;
  int count = 0;
  for (int i = 0; i <= t->hyps; i++) {
    if (i == to)
      for (int k = 0; k < n; k++) out[count++] = t->hyp[h + k];
    if (i < t->hyps && (i < h || i >= h + n)) out[count++] = t->hyp[i];
  }
}

/* Returns true if the run of n words at h and r is equal, has an error on both sides, and is not
 * aligned with itself. */
static bool is_plain_candidate(const PlainTer *t, int h, int r, int n) {
  bool hyp_error = false, ref_error = false;
  for (int k = 0; k < n; k++) {
    hyp_error |= t->hyp_error[h + k];
    ref_error |= t->ref_error[r + k];
  }
  return hyp_error && ref_error && !(t->align[r] >= h && t->align[r] < h + n);
}

/* Applies the best shift; returns false if none saves edits. */
static bool improve_plainly(PlainTer *t, int edits) {
  uint32_t best[PLAIN_WORDS], moved[PLAIN_WORDS];
  int rank[4] = {0}, base = edits; /* gain, length, -start, -target */
  for (int h = 0; h < t->hyps; h++) {
    for (int r = h > 50 ? h - 50 : 0; r < t->refs && r <= h + 50; r++) {
      for (int n = 1; n <= 10 && h + n <= t->hyps && r + n <= t->refs; n++) {
        if (t->hyp[h + n - 1] != t->ref[r + n - 1]) break;
        if (!is_plain_candidate(t, h, r, n)) continue;
        for (int k = 0; k <= n; k++) {
          int to = r + k ? t->align[r + k - 1] + 1 : 0;
          if (to == h) continue;
          shift_plainly(t, h, n, to, moved);
          int own[4] = {base - measure_plainly(t, moved), n, -h, -to}, at = 0;
          while (at < 4 && own[at] == rank[at]) at++;
          if (own[0] <= 0 || at == 4 || own[at] < rank[at]) continue;
          memcpy(rank, own, sizeof rank);
          memcpy(best, moved, sizeof best);
        }
      }
    }
  }
  if (rank[0] > 0) memcpy(t->hyp, best, sizeof best);
  return rank[0] > 0;
}

static int count_plainly(PlainTer *t) {
  for (int shifts = 0;; shifts++) {
    int edits = measure_plainly(t, t->hyp);
    memset(t->hyp_error, 0, sizeof t->hyp_error);
    memset(t->ref_error, 0, sizeof t->ref_error);
    trace_plainly(t);
    if (!improve_plainly(t, edits)) return shifts + edits;
  }
}

/* Lines of many lengths, one after the other in the same memory. Half of them are few words, so that
 * runs repeat; the others are a reference whose parts were moved. */
static void test_ter_random_lines_have_the_edits_of_plain_ter(void **state) {
  (void)state;
  static PlainTer t;
  static const int length[][2] = {{8, 8},  {12, 9}, {1, 60},  {60, 1},  {2, 88}, {3, 85},
                                  {30, 4}, {4, 30}, {20, 20}, {40, 70}, {70, 40}};
  Ter ter = {0};
  Rng rng = {.key = 11};
  for (int turn = 0; turn < 110; turn++) {
    uint32_t hyp[PLAIN_WORDS], ref[PLAIN_WORDS];
    int hyps = length[turn % 11][0], refs = length[turn % 11][1];
    bool is_long = hyps > 20 || refs > 20;
    uint32_t words = is_long ? 40 : turn % 2 ? 4 : 9;
    for (int j = 0; j < refs; j++) ref[j] = (uint32_t)rng_below(&rng, words);
    for (int i = 0; i < hyps; i++) {
      int from = (i / 4 * 4 + 4 * (int)rng_below(&rng, 2) + i % 4) % refs;
      hyp[i] = rng_below(&rng, 8) ? ref[from] : (uint32_t)rng_below(&rng, words);
    }
    size_t count;
    t.ref = ref, t.hyps = hyps, t.refs = refs;
    memcpy(t.hyp, hyp, sizeof hyp);
    assert_int_equal(ter_edits(&ter.space, hyp, (size_t)hyps, ref, (size_t)refs, &count),
                     ERR_OK);
    int expected = count_plainly(&t);
    if ((int)count != expected)
      fail_msg("turn %d, %d and %d words: %zu edits, expected %d", turn, hyps, refs, count,
               expected);
  }
  ter_free(&ter);
}

static double score_of(MetricKind kind, const char *hyp, const char *ref) {
  Metric *metric;
  MetricScore score;
  assert_int_equal(metric_open(&metric, &(MetricConfig){.kind = kind}), ERR_OK);
  MetricText refs[] = {metric_text(ref)};
  assert_int_equal(metric_add(metric, metric_text(hyp), refs, 1), ERR_OK);
  metric_score(metric, &score);
  metric_close(metric);
  return score.score;
}

static void test_error_rates_count_words_and_characters(void **state) {
  (void)state;
  assert_true(score_of(METRIC_WER, "the cat sat", "the dog sat down") == 50);
  assert_true(score_of(METRIC_CER, "abcd", "abxd") == 25);
  assert_true(score_of(METRIC_WER, "a b c d", "a") == 300); /* may exceed 100 */
  assert_true(score_of(METRIC_WER, "", "a b") == 100);
  assert_true(score_of(METRIC_WER, "a", "") == 100);
  assert_true(score_of(METRIC_CER, "", "") == 0);
  assert_true(score_of(METRIC_WER, " a \t b ", "a b") == 0);
  assert_true(score_of(METRIC_WER, "a\tb", "a b") == 100); /* a single tab is part of a word */
  assert_true(score_of(METRIC_CER, "\xc3\xa9", "e") == 100);
}

/* The distance of texts that differ at both ends and by more than the first limit of the search. */
static void test_error_rate_of_distant_texts_is_exact(void **state) {
  char hyp[402], ref[402];
  (void)state;
  for (int i = 0; i < 400; i++) {
    hyp[i] = (char)('a' + i % 3);
    ref[i] = (char)('x' + i % 2);
  }
  hyp[400] = ref[400] = '\0';
  assert_true(score_of(METRIC_CER, hyp, ref) == 100);
  ref[200] = '\0';
  assert_true(score_of(METRIC_CER, hyp, ref) == 200);
}

static void test_error_rate_with_two_references_is_error(void **state) {
  Metric *metric;
  (void)state;
  assert_int_equal(metric_open(&metric, &(MetricConfig){.kind = METRIC_WER}), ERR_OK);
  MetricText refs[] = {metric_text("a"), metric_text("b")};
  assert_int_equal(metric_add(metric, metric_text("a"), refs, 2), ERR_USAGE);
  assert_non_null(strstr(err_message(), "WER is defined for one reference, not for 2"));
  metric_close(metric);
}

static void test_score_equal_text_is_perfect_and_disjoint_is_0(void **state) {
  (void)state;
  const char *line = "a perfect match of seven words .";
  assert_true(score_of(METRIC_BLEU, line, line) > 99.9999999);
  assert_true(score_of(METRIC_CHRF, line, line) > 99.9999999);
  assert_true(score_of(METRIC_CHRFPP, line, line) > 99.9999999);
  assert_true(score_of(METRIC_TER, line, line) < 1e-12);
  assert_true(score_of(METRIC_BLEU, "xxxx", "yyyy") < 1e-12);
  assert_true(score_of(METRIC_CHRF, "xxxx", "yyyy") < 1e-12);
}

static void test_score_fewer_references_are_accepted_and_none_is_error(void **state) {
  (void)state;
  Metric *metric;
  Str signature = {0};
  assert_int_equal(metric_open(&metric, &(MetricConfig){.kind = METRIC_BLEU}), ERR_OK);
  MetricText two[] = {metric_text("a b"), metric_text("c d")};
  MetricText one[] = {metric_text("a b"), {NULL, 0}};
  MetricText none[] = {{NULL, 0}, {NULL, 0}};
  assert_int_equal(metric_add(metric, metric_text("a b"), two, 2), ERR_OK);
  assert_int_equal(metric_add(metric, metric_text("a b"), one, 2), ERR_OK);
  metric_signature(metric, 0, 0, &signature);
  assert_string_equal(str_text(&signature),
                      "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0");
  assert_int_equal(metric_add(metric, metric_text("a b"), none, 2), ERR_WORK);
  assert_int_equal(metric_lines(metric), 2);
  metric_reset(metric);
  assert_int_equal(metric_lines(metric), 0);
  assert_int_equal(metric_add(metric, metric_text("a b"), two, 1), ERR_OK);
  str_clear(&signature);
  metric_signature(metric, 0, 0, &signature);
  assert_memory_equal(str_text(&signature), "nrefs:1|", 8);
  str_free(&signature);
  metric_close(metric);
}

static void test_metric_names_are_parsed(void **state) {
  (void)state;
  MetricKind kind;
  MetricTokenizer tokenizer;
  assert_int_equal(metric_kind("chrf++,ter", 6, &kind), ERR_OK);
  assert_string_equal(metric_name(kind), "chrF2++");
  assert_int_equal(metric_kind("bleux", 5, &kind), ERR_USAGE);
  assert_int_equal(metric_kind("", 0, &kind), ERR_USAGE);
  assert_int_equal(metric_tokenizer("zh", &tokenizer), ERR_USAGE);
}

static void test_bootstrap_of_no_lines_is_error(void **state) {
  (void)state;
  Metric *metric;
  MetricInterval interval;
  assert_int_equal(metric_open(&metric, &(MetricConfig){.kind = METRIC_CHRF}), ERR_OK);
  assert_int_equal(metric_confidence(metric, 10, 1, &interval), ERR_WORK);
  metric_close(metric);
}

/* Reads a file, scores two sentences and resamples them. */
static Err everything(MetricKind kind, const char *path) {
  Metric *metric = NULL;
  MetricLines lines = {0};
  MetricInterval a, b;
  double p;
  Err err;
  TRY_DONE(metric_lines_read(&lines, path));
  TRY_DONE(
      metric_open(&metric, &(MetricConfig){.kind = kind, .lowercase = true, .tokenizer = 0}));
  for (size_t i = 0; i + 1 < lines.lines; i++) {
    TRY_DONE(metric_add(metric, lines.line[i], &lines.line[i + 1], 1));
  }
  TRY_DONE(metric_confidence(metric, 3, 1, &a));
  TRY_DONE(metric_paired(metric, metric, 3, 1, &a, &b, &p));
done:
  metric_close(metric);
  metric_lines_free(&lines);
  return err;
}

static void test_score_out_of_memory_is_error(void **state) {
  (void)state;
  char path[] = "test_metric_XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  const char *content = "A &amp; B go\nB and A &amp; go home at last\nC\n";
  assert_int_equal(write(fd, content, strlen(content)), (ssize_t)strlen(content));
  close(fd);
  for (int kind = 0; kind < METRIC_KINDS; kind++) {
    uint64_t n = 1;
    for (;; n++) {
      uint64_t before = mem_count();
      mem_fail_once(n);
      Err err = everything((MetricKind)kind, path);
      mem_fail_once(0);
      if (!err) {
        assert_true(mem_count() - before < n); /* no allocation failed */
        break;
      }
      assert_int_equal(err, ERR_WORK);
      assert_non_null(strstr(err_message(), "memory"));
      assert_true(n < 200);
    }
    assert_true(n > 10);
  }
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tokenize_13a_splits_as_mteval),
      cmocka_unit_test(test_tokenize_intl_splits_at_unicode_punctuation),
      cmocka_unit_test(test_tokenize_char_splits_all_and_none_nothing),
      cmocka_unit_test(test_lower_maps_unicode_letters),
      cmocka_unit_test(test_rstrip_removes_unicode_space),
      cmocka_unit_test(test_ter_counts_edits_and_shifts),
      cmocka_unit_test(test_ter_limits_distance_and_length_of_a_shift),
      cmocka_unit_test(test_ter_aligns_words_near_the_diagonal),
      cmocka_unit_test(test_ter_random_lines_have_the_edits_of_plain_ter),
      cmocka_unit_test(test_error_rates_count_words_and_characters),
      cmocka_unit_test(test_error_rate_of_distant_texts_is_exact),
      cmocka_unit_test(test_error_rate_with_two_references_is_error),
      cmocka_unit_test(test_score_equal_text_is_perfect_and_disjoint_is_0),
      cmocka_unit_test(test_score_fewer_references_are_accepted_and_none_is_error),
      cmocka_unit_test(test_metric_names_are_parsed),
      cmocka_unit_test(test_bootstrap_of_no_lines_is_error),
      cmocka_unit_test(test_score_out_of_memory_is_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
