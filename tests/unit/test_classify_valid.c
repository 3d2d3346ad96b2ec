/* Class weights, and the scores of a classifier's outputs in a validation. Depends on train, cmocka. */
#include <math.h>

#include "base/mem.h"
#include "support.h"
#include "train/class_weights.h"
#include "train/classify_valid.h"

/* ---- class weights ---- */

static uint64_t counts[] = {60, 20, 0};

/* A data set of 80 training texts with two classes, or with three labels. */
static Meta make_meta(MetaClassify *c, LabelKind kind) {
  *c = (MetaClassify){.kind = kind, .labels = kind == LABEL_CLASS ? 2 : 3};
  c->counts[SPLIT_TRAIN].labeled = counts;
  Meta meta = {.classify = c};
  meta.split[SPLIT_TRAIN].pairs = 80;
  return meta;
}

static void test_class_weights_balanced_are_those_of_scikit_learn(void **state) {
  (void)state;
  MetaClassify c;
  Meta meta = make_meta(&c, LABEL_CLASS);
  float weight[2];
  bool has;
  OK(class_weights_read("balanced", &meta, &has, weight));
  assert_true(has);
  assert_float_equal(weight[0], 80.0 / (2 * 60), 1e-6);
  assert_float_equal(weight[1], 80.0 / (2 * 20), 1e-6);
}

static void test_class_weights_balanced_of_labels_are_negatives_per_positive(void **state) {
  (void)state;
  MetaClassify c;
  Meta meta = make_meta(&c, LABEL_MULTI);
  float weight[3];
  bool has;
  OK(class_weights_read("balanced", &meta, &has, weight));
  assert_float_equal(weight[0], 20.0 / 60, 1e-6);
  assert_float_equal(weight[1], 3, 1e-6);
  assert_float_equal(weight[2], 1, 0); /* no text has the label */
}

static void test_class_weights_list_is_read(void **state) {
  (void)state;
  MetaClassify c;
  Meta meta = make_meta(&c, LABEL_NUMBER);
  float weight[3];
  bool has;
  OK(class_weights_read("1,2.5,1e-3", &meta, &has, weight));
  assert_float_equal(weight[1], 2.5, 0);
  assert_float_equal(weight[2], 1e-3, 1e-9);
  OK(class_weights_read("none", &meta, &has, weight));
  assert_false(has);
  assert_int_equal(class_weights_read("balanced", &meta, &has, weight), ERR_USAGE);
  assert_says("labels of this data set are numbers");
  assert_int_equal(class_weights_read("1,2", &meta, &has, weight), ERR_USAGE);
  assert_says("list of 3 numbers");
}

/* ---- scores ---- */

/* A validation whose outputs are complete; the arrays are the caller's. */
static ClassifyValid make_valid(LabelKind kind, size_t texts, size_t labels, float *target,
                                float *output) {
  return (ClassifyValid){.kind = kind,
                         .texts = texts,
                         .labels = labels,
                         .targets = kind == LABEL_CLASS ? 1 : labels,
                         .target = target,
                         .output = output};
}

static void score(ClassifyValid *v, double value[METRIC_COUNT]) {
  Comm *comm;
  OK(comm_open(&comm, 5));
  OK(classify_valid_score(v, comm, value));
  comm_close(comm, ERR_OK);
}

static void test_valid_classes_have_loss_accuracy_and_auc(void **state) {
  (void)state;
  float target[] = {0, 1, 1}, output[] = {2, 0, 0, 1, 3, 0};
  ClassifyValid v = make_valid(LABEL_CLASS, 3, 2, target, output);
  double value[METRIC_COUNT];
  score(&v, value);
  assert_float_equal(value[METRIC_LOSS], (log1p(exp(-2)) + log1p(exp(-1)) + log1p(exp(3))) / 3,
                     1e-12);
  assert_float_equal(value[METRIC_ACCURACY], 2.0 / 3, 1e-12);
  assert_float_equal(value[METRIC_AUC], 0.5, 1e-12);
  assert_true(isnan(value[METRIC_MAE]));
}

static void test_valid_labels_that_are_not_known_count_in_no_score(void **state) {
  (void)state;
  float target[] = {1, 0, NAN, 1, 0, 1}, output[] = {1, -1, 5, 2, -1, 1};
  ClassifyValid v = make_valid(LABEL_MULTI, 3, 2, target, output);
  double value[METRIC_COUNT];
  score(&v, value);
  assert_float_equal(value[METRIC_LOSS], (4 * log1p(exp(-1)) + log1p(exp(-2))) / 5, 1e-12);
  assert_float_equal(value[METRIC_ACCURACY], 1, 0);
  assert_float_equal(value[METRIC_AUC], 1, 0);
  assert_true(isnan(value[METRIC_MCC]));
}

static void test_valid_numbers_have_squared_error_and_correlation(void **state) {
  (void)state;
  float target[] = {1, 2, NAN, 4}, output[] = {2, 3, 100, 5};
  ClassifyValid v = make_valid(LABEL_NUMBER, 4, 1, target, output);
  double value[METRIC_COUNT];
  score(&v, value);
  assert_float_equal(value[METRIC_LOSS], 1, 1e-12);
  assert_float_equal(value[METRIC_MAE], 1, 1e-12);
  assert_float_equal(value[METRIC_PEARSON], 1, 1e-12);
  assert_true(isnan(value[METRIC_F1_MACRO]));
}

static void test_valid_constant_predictions_have_correlation_0(void **state) {
  (void)state;
  float target[] = {1, 2}, output[] = {3, 3};
  ClassifyValid v = make_valid(LABEL_NUMBER, 2, 1, target, output);
  double value[METRIC_COUNT];
  score(&v, value);
  assert_float_equal(value[METRIC_PEARSON], 0, 0);
}

static void test_valid_output_that_is_not_finite_is_an_error(void **state) {
  (void)state;
  float target[] = {0, 1}, output[] = {0, 1, NAN, 0};
  ClassifyValid v = make_valid(LABEL_CLASS, 2, 2, target, output);
  double value[METRIC_COUNT];
  Comm *comm;
  OK(comm_open(&comm, 5));
  assert_int_equal(classify_valid_score(&v, comm, value), ERR_WORK);
  assert_says("validation text 2 is not a finite number");
  comm_close(comm, ERR_OK);
}

/* ---- choice of the metric ---- */

static void test_valid_metric_auto_depends_on_labels(void **state) {
  (void)state;
  float target[] = {0, 1};
  int metric;
  ClassifyValid v = make_valid(LABEL_CLASS, 2, 2, target, NULL);
  OK(classify_valid_choose(&v, "auto", &metric));
  assert_int_equal(metric, METRIC_F1_MACRO);
  v.kind = LABEL_NUMBER;
  OK(classify_valid_choose(&v, "auto", &metric));
  assert_int_equal(metric, METRIC_LOSS);
  OK(classify_valid_choose(&v, "pearson", &metric));
  assert_int_equal(metric, METRIC_PEARSON);
}

static void test_valid_metric_auc_needs_texts_with_and_without_a_label(void **state) {
  (void)state;
  float same[] = {1, 1}, both[] = {1, 0};
  int metric;
  ClassifyValid v = make_valid(LABEL_CLASS, 2, 2, same, NULL);
  assert_int_equal(classify_valid_choose(&v, "auc", &metric), ERR_USAGE);
  assert_says("all validation texts have the same labels");
  v.target = both;
  OK(classify_valid_choose(&v, "auc", &metric));
  assert_int_equal(metric, METRIC_AUC);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_class_weights_balanced_are_those_of_scikit_learn),
      cmocka_unit_test(test_class_weights_balanced_of_labels_are_negatives_per_positive),
      cmocka_unit_test(test_class_weights_list_is_read),
      cmocka_unit_test(test_valid_classes_have_loss_accuracy_and_auc),
      cmocka_unit_test(test_valid_labels_that_are_not_known_count_in_no_score),
      cmocka_unit_test(test_valid_numbers_have_squared_error_and_correlation),
      cmocka_unit_test(test_valid_constant_predictions_have_correlation_0),
      cmocka_unit_test(test_valid_output_that_is_not_finite_is_an_error),
      cmocka_unit_test(test_valid_metric_auto_depends_on_labels),
      cmocka_unit_test(test_valid_metric_auc_needs_texts_with_and_without_a_label),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
