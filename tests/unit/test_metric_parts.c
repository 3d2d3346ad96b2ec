/* Parts of the metrics compared with values computed by hand: tokenizers, lower case, TER shifts,
 * use of a Metric, and each allocation failing in turn. Depends on metric. */
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
