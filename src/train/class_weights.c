/* Class weights of a classifier. Depends on base, data/meta. */
#include "train/class_weights.h"

#include <stdlib.h>
#include <string.h>

#define WEIGHT_MAX 1e6 /* largest weight in a list */

static void balance_labels(const Meta *m, float *weight) {
  const MetaClassify *c = m->classify;
  double texts = (double)m->split[SPLIT_TRAIN].pairs;
  for (size_t i = 0; i < c->labels; i++) {
    double with = (double)c->counts[SPLIT_TRAIN].labeled[i], without = texts - with;
    bool is_class = c->kind == LABEL_CLASS;
    double balanced = is_class ? texts / ((double)c->labels * with) : without / with;
    weight[i] = with > 0 && balanced > 0 ? (float)balanced : 1;
  }
}

static Err refuse_list(const char *text, size_t labels) {
  return err_set(
      ERR_USAGE,
      "--class-weights '%.200s' is neither none, balanced nor a list of %zu number%s "
      "above 0 and at most %g, separated by commas, in the order of labels.txt",
      text, labels, str_plural(labels), WEIGHT_MAX);
}

static Err parse_list(const char *text, size_t labels, float *weight) {
  const char *at = text;
  for (size_t i = 0; i < labels; i++) {
    char *end;
    double x = strtod(at, &end);
    bool ends_well = *end == (i + 1 < labels ? ',' : '\0');
    if (end == at || !ends_well || !(x > 0 && x <= WEIGHT_MAX))
      return refuse_list(text, labels);
    weight[i] = (float)x;
    at = end + 1;
  }
  return ERR_OK;
}

Err class_weights_read(const char *text, const Meta *meta, bool *has_weights, float *weight) {
  *has_weights = strcmp(text, "none") != 0;
  if (!*has_weights) return ERR_OK;
  if (strcmp(text, "balanced") != 0) return parse_list(text, meta->classify->labels, weight);
  if (meta->classify->kind == LABEL_NUMBER)
    return err_set(
        ERR_USAGE,
        "--class-weights balanced needs classes, but the labels of this data set are "
        "numbers; leave it out, or pass a list of weights");
  balance_labels(meta, weight);
  return ERR_OK;
}
