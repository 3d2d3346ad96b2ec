/* Tables of true labels and of probabilities. Depends on data/table, text/stringmap. */
#include "metric/labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* Returns false if the field is not a number, true or false. */
static bool parse_value(const TableField *f, double *value) {
  *value = strcasecmp(f->text, "true") == 0;
  if (*value == 1 || strcasecmp(f->text, "false") == 0) return true;
  return !str_real(f->text, value);
}

static Err check_count(const Labels *l, const char *path, const char *what) {
  if (l->names.count <= LABELS_MAX) return ERR_OK;
  return err_set(ERR_WORK, "%s: %s more than %d different values; is it the column of labels?",
                 path, what, LABELS_MAX);
}

/* Reads a column of numbers as the classes 0 and 1. */
static Err read_above(Labels *l, Table *t, const char *path, const LabelsSpec *spec) {
  size_t capacity = 0;
  uint32_t number;
  TRY(stringmap_add(&l->names, "0", 1, &number));
  TRY(stringmap_add(&l->names, "1", 1, &number));
  for (const TableField *row;;) {
    double value;
    TRY(table_row(t, &row));
    if (!row) return ERR_OK;
    if (!parse_value(row, &value))
      return report_field(t, path, spec->column[0], row, "a number");
    TRY(mem_grow(&l->label, &capacity, l->texts + 1, sizeof *l->label));
    l->label[l->texts++] = value >= spec->threshold;
  }
}

/* Reads a column whose values are the classes; the numbers of the labels are those of `names`. */
static Err read_classes(Labels *l, Table *t, const char *path, const LabelsSpec *spec) {
  const char *column = spec->column[0];
  size_t capacity = 0;
  if (spec->has_threshold) return read_above(l, t, path, spec);
  for (const TableField *row;;) {
    TRY(table_row(t, &row));
    if (!row) return ERR_OK;
    if (row->len == 0 || strlen(row->text) != row->len)
      return report_field(t, path, column, row, "a label");
    TRY(mem_grow(&l->label, &capacity, l->texts + 1, sizeof *l->label));
    TRY(stringmap_add(&l->names, row->text, row->len, &l->label[l->texts++]));
    TRY(check_count(l, path, "the column of labels has"));
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

/* Sets the labels of one text from a row. *is_known: false if a field is empty. */
static Err read_numbers(const Labels *l, const Table *t, const char *path,
                        const TableField *row, double threshold, bool *is_known) {
  uint8_t *has = l->has + l->texts * l->classes;
  *is_known = true;
  for (size_t c = 0; c < l->classes; c++) {
    double value = 0;
    if (row[c].len == 0)
      *is_known = false;
    else if (!parse_value(&row[c], &value))
      return report_field(t, path, l->name[c], &row[c], "a number");
    has[c] = value >= threshold;
  }
  return ERR_OK;
}

/* Reads columns of numbers, one for each label. */
static Err read_columns(Labels *l, Table *t, const char *path, double threshold) {
  size_t capacity = 0, row_capacity = 0;
  for (const TableField *row;; l->rows++) {
    TRY(table_row(t, &row));
    if (!row) return ERR_OK;
    TRY(mem_grow(&l->has, &capacity, (l->texts + 1) * l->classes, sizeof *l->has));
    TRY(mem_grow(&l->is_known, &row_capacity, l->rows + 1, sizeof *l->is_known));
    TRY(read_numbers(l, t, path, row, threshold, &l->is_known[l->rows]));
    l->texts += l->is_known[l->rows];
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

/* Returns true if every row has probabilities alone, which sum to 1: each column is a class. */
static bool has_only_classes(const char *path, TableKind kind, const StringMap *names) {
  const char *column[LABELS_MAX];
  Table *t = NULL;
  const TableField *row = NULL;
  bool is_good = names->count <= LABELS_MAX;
  for (uint32_t c = 0; is_good && c < names->count; c++) column[c] = stringmap_text(names, c);
  is_good = is_good && !table_open(&t, path, kind, column, names->count);
  while (is_good && !table_row(t, &row) && row) {
    double sum = 0, p;
    for (size_t c = 0; c < names->count && is_good; c++) {
      is_good = !str_real(row[c].text, &p) && p >= 0 && p <= 1;
      sum += is_good ? p : 0;
    }
    is_good = is_good && fabs(sum - 1) <= SUM_TOLERANCE;
  }
  table_close(t);
  return is_good;
}

static Err refuse_values(const char *path) {
  StringMap names = {0};
  Err err = table_list_names(path, TABLE_JSONL, "values", &names);
  if (!err && names.count)
    err = err_set(ERR_WORK,
                  "%s has the numbers of a regression model ('values'), not probabilities; "
                  "score --task classify scores classes and labels; errors of numbers are "
                  "printed by the validations of 'trireme train'",
                  path);
  stringmap_free(&names);
  return err;
}

/* Adds the classes of the predictions: a class may have no text in the reference. */
static Err add_predicted(Labels *l, const char *path) {
  StringMap names = {0};
  TableKind kind;
  uint32_t number;
  Err err;
  TRY(table_kind(path, &kind));
  TRY_DONE(table_list_names(path, kind, "probabilities", &names));
  if (kind == TABLE_JSONL && names.count == 0) TRY_DONE(refuse_values(path));
  if (l->kind != CLASSIFY_ONE) goto done;
  if (kind != TABLE_JSONL && !has_only_classes(path, kind, &names)) goto done;
  for (uint32_t c = 0; c < names.count; c++) {
    const char *name = stringmap_text(&names, c);
    TRY_DONE(stringmap_add(&l->names, name, strlen(name), &number));
  }
  err = check_count(l, path, "the probabilities have");
done:
  stringmap_free(&names);
  return err;
}

static Err check_rows(const Labels *l, const char *path) {
  if (l->rows == 0) return err_set(ERR_WORK, "%s has no rows: there is nothing to score", path);
  if (l->texts == 0)
    return err_set(ERR_WORK,
                   "%s: every row has an empty field, a label that is not known; give "
                   "--label-column fewer columns",
                   path);
  return ERR_OK;
}

Err labels_read(Labels *l, const char *path, const LabelsSpec *spec) {
  Table *t = NULL;
  Err err;
  *l = (Labels){.kind = spec->columns == 1 ? CLASSIFY_ONE : CLASSIFY_MANY};
  TRY_DONE(open_table(&t, path, spec->column, spec->columns));
  if (l->kind == CLASSIFY_ONE) {
    TRY_DONE(read_classes(l, t, path, spec));
    l->rows = l->texts;
  } else {
    TRY_DONE(name_columns(l, spec->column, spec->columns));
    TRY_DONE(read_columns(l, t, path, spec->threshold));
  }
  TRY_DONE(check_rows(l, path));
  TRY_DONE(add_predicted(l, spec->predictions));
  if (l->kind == CLASSIFY_ONE) err = sort_classes(l);
done:
  table_close(t);
  if (err) labels_free(l);
  return err;
}

void labels_free(Labels *l) {
  mem_free(l->name);
  mem_free(l->label);
  mem_free(l->has);
  mem_free(l->is_known);
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
    return err_set(ERR_WORK,
                   "%s:%llu: the probabilities of the %zu classes sum to %.4g, not to 1; if a "
                   "class of the "
                   "table has no text in the reference, leave out columns that are not classes",
                   path, (unsigned long long)table_line(t), l->classes, sum);
  return ERR_OK;
}

static Err read_texts(const Labels *l, Table *t, const char *path, double *p) {
  size_t rows = 0;
  for (const TableField *row;; rows++) {
    TRY(table_row(t, &row));
    if (!row) break;
    if (rows >= l->rows || (l->is_known && !l->is_known[rows])) continue;
    TRY(read_text(l, t, path, row, p));
    p += l->classes;
  }
  if (rows != l->rows)
    return err_set(
        ERR_WORK,
        "%s has %zu row%s, but the reference has %zu: each text needs its label; check "
        "that both belong to the same texts",
        path, rows, str_plural(rows), l->rows);
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
