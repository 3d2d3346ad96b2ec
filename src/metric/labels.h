/* Reads what `score --task classify` compares: a table with the true labels of texts, and tables with the
 * probabilities that a classifier computed for them. Depends on classify, data/table, text/stringmap. */
#ifndef METRIC_LABELS_H
#define METRIC_LABELS_H

#include "metric/classify.h"
#include "text/stringmap.h"

#define LABELS_MAX 4096 /* maximum number of classes */

/* The true labels. One column of labels: its values are the classes, in alphabetical order. Several
 * columns: each is a label, and its values are numbers. */
typedef struct {
  ClassifyKind kind;
  size_t texts, classes;
  const char **name; /* (classes) */
  uint32_t *label;   /* CLASSIFY_ONE: (texts) */
  uint8_t *has;      /* CLASSIFY_MANY: (texts, classes) */
  StringMap names;   /* holds the names of CLASSIFY_ONE */
} Labels;

/* Reads the columns `column` of a table. With several columns a text has a label if its number is at
 * least `threshold`. */
NODISCARD Err labels_read(Labels *labels, const char *path, const char *const *column,
                          size_t columns, double threshold);
void labels_free(Labels *labels); /* accepts a zeroed struct */

/* Reads the probabilities of a classifier: *probability (texts, classes), owned by the caller. CSV and TSV
 * have a column for each class; JSON lines have the object "probabilities". */
NODISCARD Err labels_read_probabilities(const Labels *labels, const char *path,
                                        double **probability);

#endif
