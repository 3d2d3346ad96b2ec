/* Tables of true labels and of probabilities. Depends on data/table, text/stringmap. */
#include "metric/labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "data/table.h"

#define SUM_TOLERANCE 1e-2 /* probabilities are often rounded to a few digits */

static Err open_table(Table **table, const char *path, const char *const *column,
                      size_t columns) {
  TableKind kind;
  TRY(table_kind(path, &kind));
  return table_open(table, path, kind, column, columns);
}

static Err report_field(const Table *t, const char *path, const char *column,
                        const TableField *field, const char *wanted) {
  return err_set(ERR_WORK, "%s:%llu: column '%s' has '%.60s', which is not %s", path,
                 (unsigned long long)table_line(t), column, field->text, wanted);
}

/* --- true labels --- */

/* Reads a column whose values are the classes; the numbers of the labels are those of `names`. */
static Err read_classes(Labels *l, Table *t, const char *path, const char *column) {
  size_t capacity = 0;
  for (const TableField *row;;) {
    TRY(table_row(t, &row));
    if (!row) return ERR_OK;
    if (row->len == 0 || strlen(row->text) != row->len)
      return report_field(t, path, column, row, "a label");
    TRY(mem_grow(&l->label, &capacity, l->texts + 1, sizeof *l->label));
    TRY(stringmap_add(&l->names, row->text, row->len, &l->label[l->texts++]));
    if (l->names.count > LABELS_MAX)
      return err_set(ERR_WORK,
                     "%s: column '%s' has more than %d different values; is it the column of "
                     "labels?",
                     path, column, LABELS_MAX);
  }
}

typedef struct {
  const char *name;
  uint32_t number;
} NamedLabel;

static int by_name(const void *a, const void *b) {
  return strcmp(((const NamedLabel *)a)->name, ((const NamedLabel *)b)->name);
}

/* Sorts the classes by name and numbers the labels accordingly. */
static Err sort_classes(Labels *l) {
  NamedLabel *sorted = NULL;
  uint32_t *number = NULL; /* (classes) from the order of appearance to the sorted one */
  Err err;
  l->classes = l->names.count;
  TRY_DONE(mem_alloc(&sorted, l->classes, sizeof *sorted));
  TRY_DONE(mem_alloc(&number, l->classes, sizeof *number));
  TRY_DONE(mem_alloc(&l->name, l->classes, sizeof *l->name));
  for (uint32_t c = 0; c < l->classes; c++)
    sorted[c] = (NamedLabel){.name = stringmap_text(&l->names, c), .number = c};
  qsort(sorted, l->classes, sizeof *sorted, by_name);
  for (uint32_t c = 0; c < l->classes; c++) {
    l->name[c] = sorted[c].name;
    number[sorted[c].number] = c;
  }
  for (size_t i = 0; i < l->texts; i++) l->label[i] = number[l->label[i]];
done:
  mem_free(sorted);
  mem_free(number);
  return err;
}

/* Reads columns of numbers, one for each label. */
static Err read_numbers(Labels *l, Table *t, const char *path, double threshold) {
  size_t capacity = 0;
  for (const TableField *row;;) {
    TRY(table_row(t, &row));
    if (!row) return ERR_OK;
    TRY(mem_grow(&l->has, &capacity, (l->texts + 1) * l->classes, sizeof *l->has));
    for (size_t c = 0; c < l->classes; c++) {
      double value;
      if (str_real(row[c].text, &value))
        return report_field(t, path, l->name[c], &row[c], "a number");
      l->has[l->texts * l->classes + c] = value >= threshold;
    }
    l->texts++;
  }
}

static Err name_columns(Labels *l, const char *const *column, size_t columns) {
  l->classes = columns;
  TRY(mem_alloc(&l->name, columns, sizeof *l->name));
  for (size_t c = 0; c < columns; c++) {
    for (size_t i = 0; i < c; i++)
      if (strcmp(column[i], column[c]) == 0)
        return err_set(ERR_USAGE, "--label-column %s was given twice; leave one out",
                       column[c]);
    l->name[c] = column[c];
  }
  return ERR_OK;
}

Err labels_read(Labels *l, const char *path, const char *const *column, size_t columns,
                double threshold) {
  Table *t = NULL;
  Err err;
  *l = (Labels){.kind = columns == 1 ? CLASSIFY_ONE : CLASSIFY_MANY};
  TRY_DONE(open_table(&t, path, column, columns));
  if (l->kind == CLASSIFY_ONE) {
    TRY_DONE(read_classes(l, t, path, column[0]));
    TRY_DONE(sort_classes(l));
  } else {
    TRY_DONE(name_columns(l, column, columns));
    TRY_DONE(read_numbers(l, t, path, threshold));
  }
  if (l->texts == 0) err = err_set(ERR_WORK, "%s has no rows: there is nothing to score", path);
done:
  table_close(t);
  if (err) labels_free(l);
  return err;
}

void labels_free(Labels *l) {
  mem_free(l->name);
  mem_free(l->label);
  mem_free(l->has);
  stringmap_free(&l->names);
  *l = (Labels){0};
}

/* --- probabilities --- */

/* Reads the probabilities of one text. */
static Err read_text(const Labels *l, const Table *t, const char *path, const TableField *row,
                     double *p) {
  double sum = 0;
  for (size_t c = 0; c < l->classes; c++) {
    if (str_real(row[c].text, &p[c]) || !(p[c] >= 0 && p[c] <= 1))
      return report_field(t, path, l->name[c], &row[c], "a probability from 0 to 1");
    sum += p[c];
  }
  if (l->kind == CLASSIFY_ONE && fabs(sum - 1) > SUM_TOLERANCE)
    return err_set(
        ERR_WORK,
        "%s:%llu: the probabilities of the %zu classes in the reference sum to %.4g, "
        "not to 1; is a class missing in the reference?",
        path, (unsigned long long)table_line(t), l->classes, sum);
  return ERR_OK;
}

static Err read_texts(const Labels *l, Table *t, const char *path, double *p) {
  size_t texts = 0;
  for (const TableField *row;; texts++) {
    TRY(table_row(t, &row));
    if (!row) break;
    if (texts < l->texts) TRY(read_text(l, t, path, row, p + texts * l->classes));
  }
  if (texts != l->texts)
    return err_set(
        ERR_WORK,
        "%s has %zu rows, but the reference has %zu: each text needs its label; check "
        "that both belong to the same texts",
        path, texts, l->texts);
  return ERR_OK;
}

Err labels_read_probabilities(const Labels *l, const char *path, double **probability) {
  const char **column = NULL;
  Str names = {0};
  Table *t = NULL;
  TableKind kind;
  Err err;
  *probability = NULL;
  TRY_DONE(table_kind(path, &kind));
  TRY_DONE(mem_alloc(&column, l->classes, sizeof *column));
  TRY_DONE(mem_alloc(probability, l->texts * l->classes, sizeof **probability));
  const char *prefix = kind == TABLE_JSONL ? "probabilities." : "";
  for (size_t c = 0; c < l->classes; c++) {
    str_addf(&names, "%s%s", prefix, l->name[c]);
    str_addc(&names, '\0');
  }
  TRY_DONE(str_check(&names));
  const char *at = str_text(&names);
  for (size_t c = 0; c < l->classes; c++, at += strlen(at) + 1) column[c] = at;
  TRY_DONE(table_open(&t, path, kind, column, l->classes));
  TRY_DONE(read_texts(l, t, path, *probability));
done:
  table_close(t);
  str_free(&names);
  mem_free(column);
  if (err) {
    mem_free(*probability);
    *probability = NULL;
  }
  return err;
}
