/* Reads and numbers labels. Depends on base, table, text/stringmap. */
#include "data/text_labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const char *const above_names[2] = {"0", "1"}; /* classes of a column with a threshold */

Err text_labels_begin(TextLabels *l, const LabelSpec *spec) {
  *l = (TextLabels){.spec = *spec, .lowest = INFINITY, .highest = -INFINITY};
  uint32_t ignored;
  TRY(mem_alloc(&l->value, spec->columns, sizeof *l->value));
  for (int i = 0; i < 2 && spec->kind == LABEL_CLASS && spec->has_threshold; i++)
    TRY(stringmap_add(&l->seen, above_names[i], 1, &ignored));
  return ERR_OK;
}

void text_labels_free(TextLabels *l) {
  stringmap_free(&l->seen);
  mem_free(l->class_of);
  for (size_t i = 0; l->name && i < l->labels; i++) mem_free(l->name[i]);
  mem_free(l->name);
  mem_free(l->value);
  *l = (TextLabels){0};
}

/* ---- fields ---- */

/* Removes blanks around the field. */
static TableField trim_field(TableField f) {
  while (f.len && (f.text[0] == ' ' || f.text[0] == '\t')) {
    f.text++;
    f.len--;
  }
  while (f.len && (f.text[f.len - 1] == ' ' || f.text[f.len - 1] == '\t')) f.len--;
  return f;
}

static Err refuse_field(const TextLabels *l, size_t column, const TableField *f,
                        const char *why) {
  return err_set(ERR_WORK, "the label '%.60s' in column '%s' %s", f->text,
                 l->spec.column[column], why);
}

/* Parses a number; true and false are 1 and 0. */
static bool parse_number(const TableField *f, double *value) {
  char text[64];
  if (f->len == 0 || f->len >= sizeof text) return false;
  memcpy(text, f->text, f->len);
  text[f->len] = '\0';
  if (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0) {
    *value = (text[0] | 0x20) == 't';
    return true;
  }
  char *end;
  *value = strtod(text, &end);
  return end == text + f->len && isfinite(*value);
}

static Err read_number(const TextLabels *l, size_t column, const TableField *f, double *value) {
  if (parse_number(f, value)) return ERR_OK;
  return refuse_field(l, column, f, "is not a number");
}

static void add_to_range(TextLabels *l, float value) {
  if (value < l->lowest) l->lowest = value;
  if (value > l->highest) l->highest = value;
}

static Err read_above(TextLabels *l, const TableField *f) {
  double value;
  TRY(read_number(l, 0, f, &value));
  l->label = value >= l->spec.threshold;
  l->stratum = (uint32_t)l->label;
  add_to_range(l, (float)l->label);
  return ERR_OK;
}

static Err check_name(const TextLabels *l, const TableField *f) {
  if (f->len == 0)
    return err_set(ERR_WORK, "the row has no label: column '%s' is empty", l->spec.column[0]);
  if (f->len >= LABEL_NAME_SIZE)
    return refuse_field(l, 0, f, "is longer than 255 bytes; is this the column of the labels?");
  for (size_t i = 0; i < f->len; i++)
    if ((unsigned char)f->text[i] < 0x20 || f->text[i] == 0x7f)
      return refuse_field(l, 0, f, "contains a line break or another control character");
  return ERR_OK;
}

static Err refuse_class(const TextLabels *l, const TableField *f) {
  Str names = {0};
  for (size_t i = 0; i < l->labels && names.len < 200; i++)
    str_addf(&names, "%s%s", i ? ", " : "", l->name[i]);
  Err err = err_set(ERR_WORK,
                    "the label '%.*s' does not occur in the training text, whose classes are "
                    "%s%s; add training texts with it, or leave these rows out",
                    (int)f->len, f->text, str_text(&names), names.len < 200 ? "" : ", …");
  str_free(&names);
  return err;
}

static Err read_class(TextLabels *l, const TableField *f) {
  size_t before = l->seen.count;
  TRY(check_name(l, f));
  TRY(stringmap_add(&l->seen, f->text, f->len, &l->stratum));
  bool is_new = l->seen.count > before;
  if (is_new && l->is_closed) return refuse_class(l, f);
  if (l->seen.count > LABELS_MAX)
    return err_set(ERR_WORK,
                   "column '%s' has more than %d different labels; is this the column of the "
                   "labels? For numbers pass --label-threshold or --label-type number",
                   l->spec.column[0], LABELS_MAX);
  l->label = (int32_t)(l->is_closed ? l->class_of[l->stratum] : l->stratum);
  return ERR_OK;
}

/* Reads a 0 or 1, or a number to compare with the threshold. */
static Err read_flag(TextLabels *l, size_t column, const TableField *f) {
  double value;
  TRY(read_number(l, column, f, &value));
  if (l->spec.has_threshold)
    value = value >= l->spec.threshold;
  else if (value != 0 && value != 1)
    return refuse_field(l, column, f,
                        "is neither 0 nor 1; pass --label-threshold X for numbers");
  l->value[column] = (float)value;
  return ERR_OK;
}

static Err read_values(TextLabels *l, const TableField *field) {
  for (size_t c = 0; c < l->spec.columns; c++) {
    TableField f = trim_field(field[c]);
    double value = NAN;
    l->value[c] = NAN;
    if (f.len == 0) continue;
    if (l->spec.kind == LABEL_MULTI) {
      TRY(read_flag(l, c, &f));
    } else {
      TRY(read_number(l, c, &f, &value));
      l->value[c] = (float)value;
      if (!isfinite(l->value[c])) return refuse_field(l, c, &f, "is too large");
    }
    add_to_range(l, l->value[c]);
  }
  return ERR_OK;
}

/* Sets the stratum of a row with several labels: the number of their combination. */
static Err find_combination(TextLabels *l) {
  Str key = {0};
  for (size_t c = 0; c < l->spec.columns; c++)
    str_addc(&key, isnan(l->value[c]) ? '?' : l->value[c] != 0 ? '1' : '0');
  Err err = str_check(&key);
  if (!err) err = stringmap_add(&l->seen, key.s, key.len, &l->stratum);
  str_free(&key);
  return err;
}

Err text_labels_read(TextLabels *l, const TableField *field) {
  if (l->spec.kind == LABEL_CLASS) {
    TableField f = trim_field(field[0]);
    return l->spec.has_threshold ? read_above(l, &f) : read_class(l, &f);
  }
  l->stratum = 0;
  TRY(read_values(l, field));
  return l->spec.kind == LABEL_MULTI && !l->is_closed ? find_combination(l) : ERR_OK;
}

/* ---- classes ---- */

typedef struct {
  const char *name;
  bool is_number;
  double value;
  uint32_t seen;
} Class;

static int compare_classes(const void *a, const void *b) {
  const Class *x = a, *y = b;
  if (x->is_number && y->is_number && x->value != y->value) return x->value < y->value ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* Numbers the classes: by value if all names are numbers, otherwise by name. */
static Err sort_classes(TextLabels *l) {
  Class *list;
  size_t n = l->seen.count;
  bool is_numeric = true;
  TRY(mem_alloc(&list, n, sizeof *list));
  for (uint32_t i = 0; i < n; i++) {
    TableField f = {stringmap_text(&l->seen, i), l->seen.entry[i].len};
    list[i] = (Class){.name = f.text, .seen = i};
    list[i].is_number = parse_number(&f, &list[i].value);
    is_numeric = is_numeric && list[i].is_number;
  }
  for (size_t i = 0; i < n; i++) list[i].is_number = is_numeric;
  qsort(list, n, sizeof *list, compare_classes);
  Err err = ERR_OK;
  for (uint32_t i = 0; i < n && !err; i++) {
    l->class_of[list[i].seen] = i;
    err = mem_dup(&l->name[i], list[i].name, strlen(list[i].name));
  }
  mem_free(list);
  return err;
}

/* Fails if all labels are equal. `lowest` and `highest` are set unless classes have names. */
static Err check_range(const TextLabels *l) {
  if (l->lowest < l->highest) return ERR_OK;
  if (l->lowest > l->highest)
    return err_set(ERR_WORK,
                   "no row of the training text has a label: the label columns are empty");
  return err_set(ERR_WORK,
                 "all labels of the training text are %g; a model needs at least two different "
                 "labels%s",
                 (double)l->lowest,
                 l->spec.has_threshold ? ": pass another --label-threshold" : "");
}

static Err close_classes(TextLabels *l) {
  if (l->spec.has_threshold) TRY(check_range(l));
  if (l->seen.count < 2)
    return err_set(ERR_WORK,
                   "column '%s' has one class alone, '%s'; a classifier needs at least two "
                   "classes in the training text",
                   l->spec.column[0], l->seen.count ? stringmap_text(&l->seen, 0) : "");
  l->labels = l->seen.count;
  TRY(mem_alloc(&l->class_of, l->labels, sizeof *l->class_of));
  TRY(mem_alloc(&l->name, l->labels, sizeof *l->name));
  return sort_classes(l);
}

static Err close_values(TextLabels *l) {
  l->labels = l->spec.columns;
  TRY(mem_alloc(&l->name, l->labels, sizeof *l->name));
  for (size_t i = 0; i < l->labels; i++)
    TRY(mem_dup(&l->name[i], l->spec.column[i], strlen(l->spec.column[i])));
  return check_range(l);
}

Err text_labels_close(TextLabels *l) {
  if (l->spec.kind == LABEL_CLASS) TRY(close_classes(l));
  if (l->spec.kind == LABEL_MULTI || l->spec.kind == LABEL_NUMBER) TRY(close_values(l));
  l->is_closed = true;
  return ERR_OK;
}

void text_labels_print(const TextLabels *l, Str *out) {
  for (size_t i = 0; i < l->labels; i++) str_addf(out, "%s\n", l->name[i]);
}
