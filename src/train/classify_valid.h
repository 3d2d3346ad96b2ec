/* Validation of a classifier: its outputs for the validation texts, gathered from the ranks, and
 * their scores. Outputs and scores have the same bits for every number of ranks, because a rank
 * computes whole batches and rank 0 scores all texts in their order. Depends on comm,
 * data/dataset, metric/classify. */
#ifndef TRAIN_CLASSIFY_VALID_H
#define TRAIN_CLASSIFY_VALID_H

#include "comm/comm.h"
#include "data/dataset.h"

/* The metrics, in the order of TaskKind.metrics. Those of classes are NAN for numbers, and
 * METRIC_MAE and METRIC_PEARSON are NAN for classes. */
enum {
  METRIC_LOSS, /* mean negative log-likelihood of a label; numbers: mean squared error */
  METRIC_ACCURACY,
  METRIC_F1_MACRO,
  METRIC_AUC,
  METRIC_F1_MICRO,
  METRIC_AVERAGE_PRECISION,
  METRIC_MCC,
  METRIC_ECE,
  METRIC_MAE,
  METRIC_PEARSON,
  METRIC_COUNT
};
/* Values of --metric: "auto", then the metrics in their order. */
#define METRIC_NAMES \
  "auto|loss|accuracy|macro-f1|auc|micro-f1|average-precision|mcc|ece|mae|pearson"

#define CLASSIFY_THRESHOLD 0.5 /* probability above which a text has a label */

typedef struct {
  LabelKind kind;
  size_t texts, labels;
  size_t targets;  /* floats of a text in `target` */
  float *target;   /* (texts, targets) labels, as in TextBatch.target */
  float *output;   /* (texts, labels) logits, or numbers */
  uint32_t *batch; /* (batches) number of texts of each batch of this validation */
  size_t batches;  /* batches so far; every rank counts all of them */
  uint64_t first;  /* number of the first text of the last batch */
} ClassifyValid;

/* Reads the labels of the validation texts. */
NODISCARD Err classify_valid_open(ClassifyValid *v, DataSet *d);
void classify_valid_free(ClassifyValid *v);
/* Sets *metric to the number of the metric with this name in METRIC_NAMES; "auto" is macro-f1, or
 * loss for numbers. Fails if the metric is not defined for the labels of the validation texts,
 * if there are any. */
NODISCARD Err classify_valid_choose(const ClassifyValid *v, const char *name, int *metric);

/* Begins a validation. */
void classify_valid_begin(ClassifyValid *v);
/* Adds a batch of the next `texts` texts, which one of the ranks runs. */
void classify_valid_add(ClassifyValid *v, uint32_t texts);
/* Returns where the outputs of the last batch belong: (texts, labels). */
float *classify_valid_place(ClassifyValid *v);
/* Gathers the outputs and, on rank 0, computes all metrics. Every rank calls it. */
NODISCARD Err classify_valid_score(ClassifyValid *v, Comm *comm, double value[METRIC_COUNT]);
/* Computes the probabilities of the classes or labels of a text (labels), from which the metrics are
 * computed. Not for numbers. */
void classify_valid_probabilities(const ClassifyValid *v, size_t text, double *probability);

#endif
