/* The labels of texts, read from columns of a table. Two passes: the first finds the classes of the
 * training rows, the second turns the fields of a row into numbers.
 *
 *   LABEL_CLASS   one column: the class of the text, any text, or a number above or below a threshold
 *   LABEL_MULTI   several columns: 1 if the text has the label, 0 if not, an empty field if not known
 *   LABEL_NUMBER  one or several columns with numbers, an empty field if not known
 *   LABEL_NONE    no column: texts without labels
 * Depends on base, table, text/stringmap. */
#ifndef DATA_TEXT_LABELS_H
#define DATA_TEXT_LABELS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "data/meta.h"
#include "data/table.h"
#include "text/stringmap.h"

typedef struct {
  LabelKind kind;
  const char *const *column; /* (columns) names of the label columns */
  size_t columns;
  bool has_threshold; /* a number of at least `threshold` is 1, a smaller one 0 */
  double threshold;
} LabelSpec;

typedef struct {
  LabelSpec spec;
  /* LABEL_CLASS: the classes, in the order of their first rows. LABEL_MULTI: the combinations of
   * labels that occur. LABEL_NUMBER: empty. */
  StringMap seen;
  uint32_t *class_of;    /* (seen.count) LABEL_CLASS: final number of each class */
  size_t labels;         /* number of classes, or of label columns; set by text_labels_close */
  char **name;           /* (labels) */
  float lowest, highest; /* of all values; not used for classes that have names */
  bool is_closed;

  /* Result of text_labels_read: */
  uint32_t stratum; /* rows of one stratum have equal labels */
  int32_t label; /* LABEL_CLASS: number of the class; before text_labels_close that in `seen` */
  float *value;  /* (columns) otherwise: the values; NaN: not known */
} TextLabels;

NODISCARD Err text_labels_begin(TextLabels *l, const LabelSpec *spec);
/* Reads the label fields of a row. Before text_labels_close a new class is added; after it a class that
 * is not known is an error. Errors do not name the row. */
NODISCARD Err text_labels_read(TextLabels *l, const TableField *field);
/* Ends the first pass: sorts the classes, numbers by value and other names by their bytes. Fails if
 * the rows do not have two different labels. */
NODISCARD Err text_labels_close(TextLabels *l);
/* Appends the names, one per line: the contents of labels.txt. */
void text_labels_print(const TextLabels *l, Str *out);
void text_labels_free(TextLabels *l);

#endif
