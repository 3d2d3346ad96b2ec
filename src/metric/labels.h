/* Reads what `score --task classify` compares: a table with the true labels of texts, and tables with the
 * probabilities that a classifier computed for them. Depends on classify, data/table, text/stringmap. */
#ifndef METRIC_LABELS_H
#define METRIC_LABELS_H

#include "metric/classify.h"
#include "text/stringmap.h"

#define LABELS_MAX 4096 /* maximum number of classes */

/* The true labels. One column of labels: its values are the classes, in alphabetical order. Several
 * columns: each is a label, and its values are numbers; a text with an empty field, a label that is not
 * known, is left out, as in validation. */
typedef struct {
  ClassifyKind kind;
  size_t texts, classes;
  size_t rows;       /* of the table */
  bool *is_known;    /* CLASSIFY_MANY: (rows) the text of the row is one of `texts` */
  const char **name; /* (classes) */
  uint32_t *label;   /* CLASSIFY_ONE: (texts) */
  uint8_t *has;      /* CLASSIFY_MANY: (texts, classes) */
  StringMap names;   /* holds the names of CLASSIFY_ONE */
} Labels;

/* What to read. */
typedef struct {
  const char *const *column; /* (columns) */
  size_t columns;
  /* Several columns: a text has a label if its number is at least `threshold`; true and false are 1
   * and 0. One column and has_threshold: the classes are 1 and 0. */
  double threshold;
  bool has_threshold;
  const char *predictions; /* probabilities of a classifier: its classes are counted, too */
} LabelsSpec;

NODISCARD Err labels_read(Labels *labels, const char *path, const LabelsSpec *spec);
void labels_free(Labels *labels); /* accepts a zeroed struct */

/* Reads the probabilities of a classifier: *probability (texts, classes), owned by the caller. CSV and TSV
 * have a column for each class; JSON lines have the object "probabilities". */
NODISCARD Err labels_read_probabilities(const Labels *labels, const char *path,
                                        double **probability);

#endif
