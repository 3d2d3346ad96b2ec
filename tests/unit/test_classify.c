/* Scores of classifiers compared with scikit-learn: every case of tests/golden/classify/cases.json (made
 * by make_golden.py beside it). Depends on metric, jansson, cmocka. */
#include <jansson.h>
#include <math.h>

#include "base/mem.h"
#include "metric/classify.h"
#include "support.h"

/* A golden case as input. */
typedef struct {
  ClassifyInput in;
  uint32_t *label;
  uint8_t *has;
  double *probability;
} Case;

static void load_case(Case *c, const json_t *one) {
  const json_t *label = json_object_get(one, "label"), *has = json_object_get(one, "has"),
               *value;
  size_t i;
  *c = (Case){0};
  c->in.kind = label ? CLASSIFY_ONE : CLASSIFY_MANY;
  c->in.texts = (size_t)json_integer_value(json_object_get(one, "texts"));
  c->in.classes = (size_t)json_integer_value(json_object_get(one, "classes"));
  c->in.threshold = 0.5;
  size_t cells = c->in.texts * c->in.classes;
  OK(mem_alloc(&c->label, c->in.texts, sizeof *c->label));
  OK(mem_alloc(&c->has, cells, 1));
  OK(mem_alloc(&c->probability, cells, sizeof *c->probability));
  json_array_foreach(label, i, value) c->label[i] = (uint32_t)json_integer_value(value);
  json_array_foreach(has, i, value) c->has[i] = (uint8_t)json_integer_value(value);
  json_array_foreach(json_object_get(one, "probability"), i, value) c->probability[i] =
      json_number_value(value);
  assert_int_equal(i, cells);
  c->in.label = c->label;
  c->in.has = c->has;
  c->in.probability = c->probability;
}
static void free_case(Case *c) {
  mem_free(c->label);
  mem_free(c->has);
  mem_free(c->probability);
}

/* A value that scikit-learn does not define is null there and NAN here. */
static void assert_value(double got, const json_t *want, const char *what, size_t number) {
  if (!want || json_is_null(want)) {
    if (!isnan(got)) fail_msg("case %zu, %s: %.17g, expected NAN", number, what, got);
    return;
  }
  double expected = json_number_value(want);
  if (!(fabs(got - expected) <= 1e-9))
    fail_msg("case %zu, %s: %.17g, expected %.17g", number, what, got, expected);
}

static void check_case(const json_t *one, size_t number) {
  Case c;
  ClassifyScore s;
  load_case(&c, one);
  OK(classify_score(&c.in, &s));
  const struct {
    const char *name;
    double value;
  } totals[] = {{"accuracy", s.accuracy},
                {"f1_macro", s.f1_macro},
                {"f1_micro", s.f1_micro},
                {"f1_weighted", s.f1_weighted},
                {"auc", s.auc},
                {"average_precision", s.average_precision},
                {"log_loss", s.log_loss},
                {"mcc", s.mcc},
                {"ece", s.ece}};
  for (size_t i = 0; i < sizeof totals / sizeof *totals; i++)
    assert_value(totals[i].value, json_object_get(one, totals[i].name), totals[i].name, number);
  for (size_t k = 0; k < c.in.classes; k++) {
    const ClassifyClass *class = &s.class[k];
    assert_value(class->precision, json_array_get(json_object_get(one, "precision"), k),
                 "precision", number);
    assert_value(class->recall, json_array_get(json_object_get(one, "recall"), k), "recall",
                 number);
    assert_value(class->f1, json_array_get(json_object_get(one, "f1"), k), "f1", number);
    assert_value(class->auc, json_array_get(json_object_get(one, "class_auc"), k), "auc",
                 number);
    assert_value(class->average_precision,
                 json_array_get(json_object_get(one, "class_average_precision"), k),
                 "average precision", number);
    assert_int_equal(class->support,
                     json_integer_value(json_array_get(json_object_get(one, "support"), k)));
  }
  const json_t *value;
  size_t i;
  json_array_foreach(json_object_get(one, "confusion"), i, value)
      assert_int_equal(s.confusion[i], json_integer_value(value));
  classify_free(&s);
  free_case(&c);
}

static void test_scores_equal_scikit_learn(void **state) {
  (void)state;
  json_t *all = json_load_file("tests/golden/classify/cases.json", 0, NULL), *one;
  size_t i;
  assert_non_null(all);
  json_array_foreach(json_object_get(all, "cases"), i, one) check_case(one, i);
  assert_int_equal(i, 9);
  json_decref(all);
}

static void test_calibration_error_of_sure_and_wrong_is_1(void **state) {
  const uint32_t label[] = {1, 1};
  const double p[] = {1, 0, 1, 0};
  ClassifyScore s;
  (void)state;
  OK(classify_score(
      &(ClassifyInput){.texts = 2, .classes = 2, .label = label, .probability = p}, &s));
  assert_true(s.ece == 1);
  assert_true(s.accuracy == 0 && s.mcc == 0 && s.f1_macro == 0);
  assert_true(isnan(s.auc)); /* all texts have one class */
  classify_free(&s);
}

static void test_equal_probabilities_predict_the_first_class(void **state) {
  const uint32_t label[] = {0};
  const double p[] = {0.5, 0.5};
  ClassifyScore s;
  (void)state;
  OK(classify_score(
      &(ClassifyInput){.texts = 1, .classes = 2, .label = label, .probability = p}, &s));
  assert_true(s.accuracy == 1);
  classify_free(&s);
}

static void assert_refused(ClassifyInput in, const char *words) {
  ClassifyScore s;
  assert_int_equal(classify_score(&in, &s), ERR_WORK);
  assert_says(words);
  assert_null(s.class);
}

static void test_input_that_cannot_be_scored_is_refused(void **state) {
  const uint32_t label[] = {2};
  const double p[] = {0.5, 0.5}, wrong[] = {1.5, NAN};
  (void)state;
  assert_refused((ClassifyInput){.classes = 2}, "no texts");
  assert_refused((ClassifyInput){.texts = 1, .classes = 1, .label = label, .probability = p},
                 "needs at least 2");
  assert_refused((ClassifyInput){.texts = 1, .classes = 2, .label = label, .probability = p},
                 "text 1 has label 2, but there are 2 classes");
  const uint32_t good[] = {0};
  assert_refused((ClassifyInput){.texts = 1, .classes = 2, .label = good, .probability = wrong},
                 "the probability 1.5 of text 1, class 0");
  assert_refused((ClassifyInput){.texts = 1,
                                 .classes = 1,
                                 .label = good,
                                 .has = (const uint8_t[]){1},
                                 .kind = CLASSIFY_MANY,
                                 .probability = wrong + 1},
                 "class 0, is not between 0 and 1");
}

static void test_score_without_memory_fails_cleanly(void **state) {
  const uint32_t label[] = {0, 1};
  const double p[] = {0.6, 0.4, 0.2, 0.8};
  (void)state;
  for (uint64_t n = 1; n < 10; n++) {
    ClassifyScore s;
    mem_fail_after(n);
    Err err = classify_score(
        &(ClassifyInput){.texts = 2, .classes = 2, .label = label, .probability = p}, &s);
    mem_fail_after(0);
    classify_free(&s);
    if (!err) return;
  }
  fail_msg("more than 10 allocations");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scores_equal_scikit_learn),
      cmocka_unit_test(test_calibration_error_of_sure_and_wrong_is_1),
      cmocka_unit_test(test_equal_probabilities_predict_the_first_class),
      cmocka_unit_test(test_input_that_cannot_be_scored_is_refused),
      cmocka_unit_test(test_score_without_memory_fails_cleanly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
