/* The metrics compared with scores of sacreBLEU: every case of tests/golden/score/expected.json
 * (made by make_golden.py in the same directory), and the WMT17 outputs if they are installed.
 * Depends on metric, Jansson. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* must come after the headers that it needs */
#include <cmocka.h>
#include <jansson.h>

#include "base/file.h"
#include "base/mem.h"
#include "metric/lines.h"
#include "metric/metric.h"
#include "metric/pcg64.h"

#define GOLDEN "tests/golden/score/"
#define WMT    "../shared/data/bleu-wmt17/"
#define REFS   3

static void assert_near(double got, double want, const char *what) {
  if (fabs(got - want) <= 1e-9 * fmax(fabs(got), fabs(want))) return;
  fail_msg("%s: %.17g, expected %.17g", what, got, want);
}

static void assert_ok(Err err) {
  if (err) fail_msg("%s", err_message());
}

static json_t *load(const char *path) {
  json_error_t error;
  json_t *json = json_load_file(path, 0, &error);
  if (!json) fail_msg("%s: %s", path, error.text);
  return json;
}

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number '%s'", key);
  return json_number_value(value);
}

static const char *text(const json_t *object, const char *key) {
  const char *value = json_string_value(json_object_get(object, key));
  if (!value) fail_msg("no text '%s'", key);
  return value;
}

static void read_lines(MetricLines *lines, const char *folder, const char *name,
                       const char *suffix) {
  static char path[64][256]; /* `path` is static, because MetricLines keeps a pointer to it. */
  static int used;
  char *mine = path[used++ % 64];
  snprintf(mine, 256, "%s%s%s", folder, name, suffix);
  assert_ok(metric_lines_read(lines, mine));
}

/* Returns the metric of a golden case with all lines added. */
static Metric *scored(const json_t *c, bool effective, const MetricLines *hyp,
                      const MetricLines *refs, int n) {
  MetricConfig config = {.lowercase = json_is_true(json_object_get(c, "lowercase")),
                         .effective = effective};
  const char *kind = text(c, "metric");
  assert_ok(metric_kind(kind, strlen(kind), &config.kind));
  if (json_object_get(c, "tokenize")) {
    assert_ok(metric_tokenizer(text(c, "tokenize"), &config.tokenizer));
  }
  Metric *metric;
  assert_ok(metric_open(&metric, &config));
  for (size_t i = 0; i < hyp->lines; i++) {
    MetricText ref[REFS];
    for (int r = 0; r < n; r++) ref[r] = refs[r].line[i];
    assert_ok(metric_add(metric, hyp->line[i], ref, n));
  }
  assert_int_equal(metric_lines(metric), hyp->lines);
  return metric;
}

static void check_signature(const Metric *metric, size_t resamples, uint64_t seed,
                            const char *want) {
  Str got = {0};
  metric_signature(metric, resamples, seed, &got);
  assert_string_equal(str_text(&got), want);
  str_free(&got);
}

static void check_case(const char *set, const json_t *c, const MetricLines *hyp,
                       const MetricLines *refs) {
  int n = (int)number(c, "refs");
  char what[256];
  snprintf(what, sizeof what, "%s, %s", set, text(c, "signature"));
  Metric *metric = scored(c, false, hyp, refs, n);
  MetricScore score;
  metric_score(metric, &score);
  assert_near(score.score, number(c, "score"), what);
  check_signature(metric, 0, 0, text(c, "signature"));
  metric_close(metric);

  const json_t *sentences = json_object_get(c, "sentences");
  if (!sentences) return;
  metric = scored(c, true, hyp, refs, n);
  assert_int_equal(json_array_size(sentences), hyp->lines);
  for (size_t i = 0; i < hyp->lines; i++) {
    snprintf(what, sizeof what, "%s line %zu, %s", set, i + 1, text(c, "signature"));
    metric_sentence(metric, i, &score);
    assert_near(score.score, json_number_value(json_array_get(sentences, i)), what);
  }
  metric_close(metric);
}

static void check_bootstrap(const char *set, const json_t *b, const MetricLines *hyp,
                            const MetricLines *other, const MetricLines *refs) {
  int n = (int)number(b, "refs");
  size_t resamples = (size_t)number(b, "resamples");
  uint64_t seed = (uint64_t)number(b, "seed");
  Metric *first = scored(b, false, hyp, refs, n), *second = scored(b, false, other, refs, n);
  MetricInterval interval, of_other;
  if (json_object_get(b, "mean")) {
    assert_ok(metric_confidence(first, resamples, seed, &interval));
    assert_near(interval.mean, number(b, "mean"), set);
    assert_near(interval.ci, number(b, "ci"), set);
    check_signature(first, resamples, seed, text(b, "signature"));
  }
  double p;
  assert_ok(metric_paired(first, second, resamples, seed, &interval, &of_other, &p));
  const json_t *paired = json_object_get(b, "paired");
  const json_t *want = json_array_get(paired, 0), *want_other = json_array_get(paired, 1);
  assert_near(interval.mean, number(want, "mean"), set);
  assert_near(interval.ci, number(want, "ci"), set);
  assert_near(of_other.mean, number(want_other, "mean"), set);
  assert_near(of_other.ci, number(want_other, "ci"), set);
  assert_near(p, number(want_other, "p"), set);
  metric_close(first);
  metric_close(second);
}

static void check_set(const char *set) {
  json_t *all = load(GOLDEN "expected.json");
  const json_t *golden = json_object_get(json_object_get(all, "sets"), set), *one;
  assert_non_null(golden);
  MetricLines hyp, other, refs[REFS];
  read_lines(&hyp, GOLDEN, set, ".hyp");
  read_lines(&other, GOLDEN, set, ".other");
  read_lines(&refs[0], GOLDEN, set, ".ref0");
  read_lines(&refs[1], GOLDEN, set, ".ref1");
  read_lines(&refs[2], GOLDEN, set, ".ref2");
  size_t i;
  assert_true(json_array_size(json_object_get(golden, "cases")) >= 27);
  json_array_foreach(json_object_get(golden, "cases"), i, one) check_case(set, one, &hyp, refs);
  assert_true(json_array_size(json_object_get(golden, "bootstrap")) >= 8);
  json_array_foreach(json_object_get(golden, "bootstrap"), i, one) {
    check_bootstrap(set, one, &hyp, &other, refs);
  }
  metric_lines_free(&hyp);
  metric_lines_free(&other);
  for (int r = 0; r < REFS; r++) metric_lines_free(&refs[r]);
  json_decref(all);
}

static void test_score_hard_cases_equal_sacrebleu(void **state) {
  (void)state;
  check_set("hard");
}

static void test_score_random_words_equal_sacrebleu(void **state) {
  (void)state;
  check_set("salad");
}

static void test_score_other_scripts_equal_sacrebleu(void **state) {
  (void)state;
  check_set("scripts");
}

static void test_score_punctuation_equals_sacrebleu(void **state) {
  (void)state;
  check_set("punctuation");
}

static void test_score_limits_equal_sacrebleu(void **state) {
  (void)state;
  check_set("limits");
}

static void test_score_empty_lines_equal_sacrebleu(void **state) {
  (void)state;
  check_set("nothing");
}

static void test_pcg64_equals_numpy(void **state) {
  (void)state;
  json_t *all = load(GOLDEN "expected.json");
  const json_t *one, *numbers;
  const char *n;
  size_t i;
  assert_true(json_array_size(json_object_get(all, "pcg64")) >= 6);
  json_array_foreach(json_object_get(all, "pcg64"), i, one) {
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(one, "seed"));
    Pcg64 rng;
    pcg64_seed(&rng, seed);
    const json_t *raw = json_object_get(one, "raw");
    for (size_t k = 0; k < json_array_size(raw); k++) {
      char got[32];
      snprintf(got, sizeof got, "%llu", (unsigned long long)pcg64_next(&rng));
      assert_string_equal(got, json_string_value(json_array_get(raw, k)));
    }
    json_object_foreach(json_object_get(one, "below"), n, numbers) {
      pcg64_seed(&rng, seed);
      for (size_t k = 0; k < json_array_size(numbers); k++) {
        uint32_t got = pcg64_below(&rng, (uint32_t)strtoul(n, NULL, 10));
        assert_int_equal(got, json_integer_value(json_array_get(numbers, k)));
      }
    }
  }
  json_decref(all);
}

static void test_score_wmt17_equals_sacrebleu(void **state) {
  (void)state;
  if (!file_exists(WMT "expected.json")) {
    printf("skip: " WMT " is not here\n");
    skip();
  }
  static const struct {
    const char *key, *config;
  } cases[] = {
      {"bleu", "{\"metric\": \"bleu\"}"},
      {"bleu_lc", "{\"metric\": \"bleu\", \"lowercase\": true}"},
      {"bleu_none", "{\"metric\": \"bleu\", \"tokenize\": \"none\"}"},
      {"bleu_intl", "{\"metric\": \"bleu\", \"tokenize\": \"intl\"}"},
      {"bleu_char", "{\"metric\": \"bleu\", \"tokenize\": \"char\"}"},
      {"chrf", "{\"metric\": \"chrf\"}"},
      {"chrfpp", "{\"metric\": \"chrf++\"}"},
      {"ter", "{\"metric\": \"ter\"}"},
  };
  json_t *all = load(WMT "expected.json");
  json_t *system;
  const char *name;
  MetricLines ref;
  read_lines(&ref, WMT, "newstest2017.ref.de", "");
  assert_int_equal(json_object_size(all), 3);
  json_object_foreach(all, name, system) {
    MetricLines hyp;
    read_lines(&hyp, WMT, name, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      json_t *config = json_loads(cases[i].config, 0, NULL);
      Metric *metric = scored(config, false, &hyp, &ref, 1);
      MetricScore score;
      metric_score(metric, &score);
      assert_near(score.score, strtod(text(system, cases[i].key), NULL), cases[i].key);
      char key[32];
      snprintf(key, sizeof key, "%s_sig", cases[i].key);
      check_signature(metric, 0, 0, text(system, key));
      metric_close(metric);
      json_decref(config);
    }
    metric_lines_free(&hyp);
  }
  metric_lines_free(&ref);
  json_decref(all);
}

/* Every text of tests/golden/score against its first reference (error_rates.json, made by
 * make_error_rates.py). */
static void check_error_rate(const char *set, const char *system, const char *kind,
                             double want) {
  char suffix[16], what[64];
  MetricLines hyp, ref;
  MetricScore score;
  snprintf(suffix, sizeof suffix, ".%s", system);
  snprintf(what, sizeof what, "%s of %s.%s", kind, set, system);
  read_lines(&hyp, GOLDEN, set, suffix);
  read_lines(&ref, GOLDEN, set, ".ref0");
  json_t *config = json_pack("{s:s}", "metric", kind);
  Metric *metric = scored(config, false, &hyp, &ref, 1);
  metric_score(metric, &score);
  assert_near(score.score, want, what);
  metric_close(metric);
  json_decref(config);
  metric_lines_free(&hyp);
  metric_lines_free(&ref);
}

static void test_error_rates_equal_jiwer(void **state) {
  (void)state;
  json_t *all = load(GOLDEN "error_rates.json"), *systems, *rates;
  const char *set, *system;
  int count = 0;
  json_object_foreach(json_object_get(all, "sets"), set, systems) {
    json_object_foreach(systems, system, rates) {
      check_error_rate(set, system, "wer", number(rates, "wer"));
      check_error_rate(set, system, "cer", number(rates, "cer"));
      count++;
    }
  }
  assert_int_equal(count, 12);
  json_decref(all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_score_hard_cases_equal_sacrebleu),
      cmocka_unit_test(test_score_random_words_equal_sacrebleu),
      cmocka_unit_test(test_score_other_scripts_equal_sacrebleu),
      cmocka_unit_test(test_score_punctuation_equals_sacrebleu),
      cmocka_unit_test(test_score_limits_equal_sacrebleu),
      cmocka_unit_test(test_score_empty_lines_equal_sacrebleu),
      cmocka_unit_test(test_pcg64_equals_numpy),
      cmocka_unit_test(test_score_wmt17_equals_sacrebleu),
      cmocka_unit_test(test_error_rates_equal_jiwer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
