/* Rows of CSV, TSV and JSON lines. A row of CSV may extend over several lines of the input. Depends on
 * base, input, jansson. */
#include "data/table.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "data/input.h"

struct Table {
  Input *in;
  TableKind kind;
  uint64_t line; /* first line of the current row */
  Str row;       /* fields of the current row, each followed by NUL */
  size_t *at;    /* (fields + 1) positions of the fields in `row` */
  size_t fields, at_capacity;
  size_t width;      /* number of fields of the first row; CSV and TSV only */
  const char **name; /* (columns) the columns that the caller reads */
  size_t *source;    /* (columns) number of the column in the file */
  TableField *found; /* (columns) */
  size_t columns;
};

Err table_kind(const char *path, TableKind *kind) {
  static const struct {
    const char *end;
    TableKind kind;
  } known[] = {{".csv", TABLE_CSV},
               {".tsv", TABLE_TSV},
               {".jsonl", TABLE_JSONL},
               {".json", TABLE_JSONL}};
  size_t len = strlen(path);
  if (str_ends(path, ".gz"))
    len -= 3;
  else if (str_ends(path, ".zst"))
    len -= 4;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    size_t n = strlen(known[i].end);
    if (len < n || memcmp(path + len - n, known[i].end, n) != 0) continue;
    *kind = known[i].kind;
    return ERR_OK;
  }
  return err_set(
      ERR_USAGE,
      "%s: the name does not say what the file contains; it should end with .csv, .tsv or "
      ".jsonl, also followed by .gz or .zst",
      path);
}

/* --- fields of a row --- */

static Err report_row(const Table *t, const char *what) {
  return err_set(ERR_WORK, "%s:%llu: %s", input_path(t->in), (unsigned long long)t->line, what);
}

static void begin_row(Table *t) {
  str_clear(&t->row);
  t->fields = 0;
}

static Err begin_field(Table *t) {
  if (t->fields == TABLE_COLUMNS) return report_row(t, "the row has more than 4,096 columns");
  TRY(mem_grow(&t->at, &t->at_capacity, t->fields + 2, sizeof *t->at));
  t->at[t->fields++] = t->row.len;
  return ERR_OK;
}

static Err end_field(Table *t) {
  if (t->row.len > TABLE_FIELD_LIMIT)
    return report_row(t, "the row is longer than 4,194,304 bytes; is a closing quote missing?");
  str_addc(&t->row, '\0');
  t->at[t->fields] = t->row.len;
  return str_check(&t->row);
}

static Err read_line(Table *t, const char **line, size_t *len) {
  TRY(input_line(t->in, line, len));
  if (*line && utf8_valid(*line, *len) != *len)
    return err_set(ERR_WORK,
                   "%s:%llu: byte %zu of the line is not UTF-8; convert the file with iconv",
                   input_path(t->in), (unsigned long long)input_number(t->in),
                   utf8_valid(*line, *len) + 1);
  return ERR_OK;
}

/* --- CSV and TSV --- */

/* Reads the rest of a field in quotes; *at is behind the first quote, and then behind the last. Takes
 * further lines of the input if the field contains line breaks. */
static Err read_quoted(Table *t, const char **line, size_t *len, size_t *at) {
  for (;;) {
    const char *quote = *at < *len ? memchr(*line + *at, '"', *len - *at) : NULL;
    size_t end = quote ? (size_t)(quote - *line) : *len;
    str_addn(&t->row, *line + *at, end - *at);
    if (t->row.len > TABLE_FIELD_LIMIT) return end_field(t);
    if (quote) {
      *at = end + 1;
      bool is_doubled = *at < *len && (*line)[*at] == '"';
      if (!is_doubled) return ERR_OK;
      str_addc(&t->row, '"');
      ++*at;
      continue;
    }
    str_add(&t->row, input_had_cr(t->in) ? "\r\n" : "\n");
    TRY(read_line(t, line, len));
    if (!*line) return report_row(t, "a quoted field of this row has no closing quote");
    *at = 0;
  }
}

/* Reads one row of CSV or TSV. Returns no fields at the end of the file. */
static Err read_fields(Table *t) {
  const char separator = t->kind == TABLE_CSV ? ',' : '\t';
  const char *line;
  size_t len, at = 0;
  begin_row(t);
  do {
    TRY(read_line(t, &line, &len));
    if (!line) return ERR_OK;
    t->line = input_number(t->in);
  } while (len == 0); /* an empty line, often the last */
  for (;;) {
    TRY(begin_field(t));
    if (t->kind == TABLE_CSV && at < len && line[at] == '"') {
      at++;
      TRY(read_quoted(t, &line, &len, &at));
      if (at < len && line[at] != separator)
        return err_set(
            ERR_WORK,
            "%s:%llu: field %zu of the row goes on after its closing quote; a quote inside "
            "a quoted field must be doubled",
            input_path(t->in), (unsigned long long)input_number(t->in), t->fields);
    }
    const char *next = at < len ? memchr(line + at, separator, len - at) : NULL;
    size_t end = next ? (size_t)(next - line) : len;
    str_addn(&t->row, line + at, end - at);
    TRY(end_field(t));
    if (!next) return ERR_OK;
    at = end + 1;
  }
}

static const char *get_field(const Table *t, size_t i, size_t *len) {
  *len = t->at[i + 1] - t->at[i] - 1;
  return t->row.s + t->at[i];
}

/* Finds the columns by the names in the first row. */
static Err find_columns(Table *t) {
  size_t len;
  for (size_t c = 0; c < t->columns; c++) {
    size_t i = 0;
    while (i < t->width && strcmp(get_field(t, i, &len), t->name[c]) != 0) i++;
    if (i == t->width) {
      Str names = {0};
      for (size_t k = 0; k < t->width && names.len < 300; k++)
        str_addf(&names, "%s%s", k ? ", " : "", get_field(t, k, &len));
      err_set(ERR_WORK, "%s has no column '%s'; its columns are %s", input_path(t->in),
              t->name[c], str_text(&names));
      str_free(&names);
      return ERR_WORK;
    }
    t->source[c] = i;
    while (++i < t->width)
      if (strcmp(get_field(t, i, &len), t->name[c]) == 0)
        return err_set(ERR_WORK, "%s has two columns '%s'; rename one of them",
                       input_path(t->in), t->name[c]);
  }
  return ERR_OK;
}

/* Refuses names with NUL bytes, which would end there. */
static Err check_names(const Table *t) {
  for (size_t i = 0; i < t->width; i++) {
    size_t len;
    if (strlen(get_field(t, i, &len)) != len)
      return err_set(ERR_WORK, "%s:%llu: the name of column %zu contains a NUL byte; remove it",
                     input_path(t->in), (unsigned long long)t->line, i + 1);
  }
  return ERR_OK;
}

static Err read_header(Table *t) {
  TRY(read_fields(t));
  if (t->fields == 0)
    return err_set(ERR_WORK, "%s is empty; its first row must name the columns",
                   input_path(t->in));
  t->width = t->fields;
  TRY(check_names(t));
  return find_columns(t);
}

static Err read_separated(Table *t, bool *is_end) {
  TRY(read_fields(t));
  *is_end = t->fields == 0;
  if (*is_end) return ERR_OK;
  if (t->fields != t->width)
    return err_set(ERR_WORK,
                   "%s:%llu: the row has %zu field%s, but the first row names %zu column%s",
                   input_path(t->in), (unsigned long long)t->line, t->fields,
                   str_plural(t->fields), t->width, str_plural(t->width));
  for (size_t c = 0; c < t->columns; c++) {
    t->found[c].text = get_field(t, t->source[c], &t->found[c].len);
  }
  return ERR_OK;
}

/* --- JSON lines --- */

/* Appends a value as text: true is 1 and false is 0. */
static Err add_json(Table *t, const json_t *value, const char *name) {
  TRY(begin_field(t));
  if (json_is_string(value)) {
    str_addn(&t->row, json_string_value(value), json_string_length(value));
  } else if (json_is_integer(value)) {
    str_addf(&t->row, "%lld", (long long)json_integer_value(value));
  } else if (json_is_real(value)) {
    str_addf(&t->row, "%.17g", json_real_value(value));
  } else if (json_is_boolean(value)) {
    str_addc(&t->row, json_is_true(value) ? '1' : '0');
  } else {
    return err_set(ERR_WORK, "%s:%llu: %s '%s'%s", input_path(t->in),
                   (unsigned long long)t->line, value ? "the value of" : "there is no", name,
                   value ? " is not a text, number or boolean" : " in the object");
  }
  return end_field(t);
}

/* Finds a member by its name or, if there is none and the name is "a.b", the member b of the object a. */
static const json_t *find_member(const json_t *object, const char *name) {
  const json_t *value = json_object_get(object, name);
  const char *dot = strchr(name, '.');
  char outer[64];
  if (value || !dot || (size_t)(dot - name) >= sizeof outer) return value;
  snprintf(outer, sizeof outer, "%.*s", (int)(dot - name), name);
  return json_object_get(json_object_get(object, outer), dot + 1);
}

/* Begins a row with the next line that is not empty. *line is NULL at the end of the file. */
static Err begin_line_row(Table *t, const char **line, size_t *len) {
  begin_row(t);
  do {
    TRY(read_line(t, line, len));
    if (!*line) return ERR_OK;
    t->line = input_number(t->in);
  } while (*len == 0);
  return ERR_OK;
}

/* Reads the object of the next row, which the caller releases; NULL at the end of the file. */
static Err parse_object(Table *t, json_t **out) {
  const char *line;
  size_t len;
  *out = NULL;
  TRY(begin_line_row(t, &line, &len));
  if (!line) return ERR_OK;
  char where[FILENAME_MAX + 32];
  snprintf(where, sizeof where, "%s:%llu", input_path(t->in), (unsigned long long)t->line);
  TRY(jsondoc_check(line, len, where));
  json_error_t wrong;
  json_t *object = json_loadb(line, len, JSON_ALLOW_NUL, &wrong);
  if (!object) return err_set(ERR_WORK, "%s: is not JSON: %s", where, wrong.text);
  if (!json_is_object(object)) {
    json_decref(object);
    return err_set(ERR_WORK, "%s: is not a JSON object {…}", where);
  }
  *out = object;
  return ERR_OK;
}

static Err read_object(Table *t, bool *is_end) {
  json_t *object;
  TRY(parse_object(t, &object));
  *is_end = !object;
  if (!object) return ERR_OK;
  Err err = ERR_OK;
  for (size_t c = 0; c < t->columns && !err; c++)
    err = add_json(t, find_member(object, t->name[c]), t->name[c]);
  json_decref(object);
  /* Only now, because adding a field may move the earlier ones. */
  for (size_t c = 0; c < t->columns && !err; c++)
    t->found[c].text = get_field(t, c, &t->found[c].len);
  return err;
}

/* --- plain text --- */

static Err read_text(Table *t, bool *is_end) {
  const char *line;
  size_t len;
  TRY(begin_line_row(t, &line, &len));
  *is_end = !line;
  if (!line) return ERR_OK;
  TRY(begin_field(t));
  str_addn(&t->row, line, len);
  TRY(end_field(t));
  t->found[0].text = get_field(t, 0, &t->found[0].len);
  return ERR_OK;
}

/* --- */

Err table_open(Table **out, const char *path, TableKind kind, const char *const *column,
               size_t columns) {
  Table *t;
  Err err;
  *out = NULL;
  TRY(mem_alloc(&t, 1, sizeof *t));
  t->kind = kind;
  t->columns = columns;
  TRY_DONE(mem_alloc(&t->name, columns, sizeof *t->name));
  TRY_DONE(mem_alloc(&t->source, columns, sizeof *t->source));
  TRY_DONE(mem_alloc(&t->found, columns, sizeof *t->found));
  for (size_t c = 0; c < columns; c++) t->name[c] = column[c];
  TRY_DONE(input_open(&t->in, path));
  if (kind == TABLE_CSV || kind == TABLE_TSV) TRY_DONE(read_header(t));
done:
  if (err)
    table_close(t);
  else
    *out = t;
  return err;
}

static Err add_columns(const Table *t, StringMap *names) {
  uint32_t number;
  for (size_t i = 0; i < t->width; i++) {
    size_t len;
    const char *name = get_field(t, i, &len);
    TRY(stringmap_add(names, name, strlen(name), &number));
  }
  return ERR_OK;
}

static Err add_members(Table *t, const char *member, StringMap *names) {
  json_t *object, *value;
  const char *name;
  uint32_t number;
  Err err = ERR_OK;
  TRY(parse_object(t, &object));
  json_object_foreach(json_object_get(object, member), name, value) {
    if (!err) err = stringmap_add(names, name, strlen(name), &number);
  }
  json_decref(object);
  return err;
}

Err table_list_names(const char *path, TableKind kind, const char *member, StringMap *names) {
  Table *t;
  TRY(table_open(&t, path, kind, NULL, 0));
  Err err = kind == TABLE_JSONL ? add_members(t, member, names) : add_columns(t, names);
  table_close(t);
  return err;
}

Err table_row(Table *t, const TableField **row) {
  bool is_end = false;
  *row = NULL;
  if (t->kind == TABLE_TEXT)
    TRY(read_text(t, &is_end));
  else
    TRY(t->kind == TABLE_JSONL ? read_object(t, &is_end) : read_separated(t, &is_end));
  if (!is_end) *row = t->found;
  return ERR_OK;
}

uint64_t table_line(const Table *t) {
  return t->line;
}

uint64_t table_bytes(const Table *t) {
  return input_bytes(t->in);
}

void table_sha256(Table *t, char hex[65]) {
  input_sha256(t->in, hex);
}

void table_close(Table *t) {
  if (!t) return;
  input_close(t->in);
  str_free(&t->row);
  mem_free(t->at);
  mem_free(t->name);
  mem_free(t->source);
  mem_free(t->found);
  mem_free(t);
}
