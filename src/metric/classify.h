/* Scores of classifiers from labels and probabilities, equal to those of scikit-learn: accuracy, F1, ROC
 * AUC, average precision, Matthews correlation, log loss, confusion matrix; and the expected calibration
 * error of Guo et al. (2017). Depends on base. */
#ifndef METRIC_CLASSIFY_H
#define METRIC_CLASSIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* What was predicted. CLASSIFY_ONE: every text has one of the classes, and the probabilities of a text
 * sum to 1. CLASSIFY_MANY: a text may have any number of labels; each has its own probability, and
 * counts as predicted above `threshold`. */
typedef enum { CLASSIFY_ONE, CLASSIFY_MANY } ClassifyKind;
typedef struct {
  ClassifyKind kind;
  size_t texts, classes;
  const uint32_t *label;     /* CLASSIFY_ONE: (texts) class of each text */
  const uint8_t *has;        /* CLASSIFY_MANY: (texts, classes) 1 if the text has the label */
  const double *probability; /* (texts, classes) */
  double threshold;          /* CLASSIFY_MANY */
} ClassifyInput;

/* Scores of one class against all others. A value that is not defined is NAN: the AUC of a class that no
 * text or every text has, the average precision of one that no text has. Precision, recall and F1 without
 * a denominator are 0. */
typedef struct {
  uint64_t support;   /* texts that have the class */
  uint64_t predicted; /* texts for which it was predicted */
  double precision, recall, f1;
  double auc, average_precision;
} ClassifyClass;

typedef struct {
  double accuracy; /* CLASSIFY_MANY: texts for which all labels are right */
  double f1_macro, f1_micro, f1_weighted;
  double auc,
      average_precision; /* mean over the classes for which it is defined, otherwise NAN */
  double log_loss;       /* CLASSIFY_MANY: mean over the labels */
  double mcc, ece;       /* CLASSIFY_ONE; otherwise NAN */
  ClassifyClass *class;  /* (classes) */
  uint64_t *confusion;   /* CLASSIFY_ONE: (classes, classes) true class, predicted class */
} ClassifyScore;

/* Computes all scores. Fails if there are no texts, fewer than two classes (one, with CLASSIFY_MANY), a
 * label that is not a class, or a probability outside 0 … 1. */
NODISCARD Err classify_score(const ClassifyInput *in, ClassifyScore *score);
void classify_free(ClassifyScore *score);

/* The scores of all classes as a list, for tables and for resampling. */
enum {
  CLASSIFY_ACCURACY,
  CLASSIFY_F1_MACRO,
  CLASSIFY_F1_MICRO,
  CLASSIFY_F1_WEIGHTED,
  CLASSIFY_AUC,
  CLASSIFY_AVERAGE_PRECISION,
  CLASSIFY_MCC,
  CLASSIFY_LOG_LOSS,
  CLASSIFY_ECE,
  CLASSIFY_SCORES
};
const char *classify_title(int i); /* name in tables, "F1 macro" */
const char *classify_key(int i);   /* name in JSON, "f1_macro" */
double classify_value(const ClassifyScore *score, int i);

/* The scores of bootstrap samples of the texts: (CLASSIFY_SCORES, resamples). The same seed and number of
 * texts draw the same samples, so two classifiers can be compared on them. */
NODISCARD Err classify_resample(const ClassifyInput *in, size_t resamples, uint64_t seed,
                                double **value);

#endif
