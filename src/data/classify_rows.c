/* Reads the tables of a split, row by row. Depends on base, table, meta. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "data/classify_work.h"

Err classify_input_bytes(const ClassifyWork *w, uint64_t *bytes) {
  *bytes = 0;
  for (int s = 0; s < SPLITS; s++) {
    for (size_t i = 0; i < w->spec->inputs[s]; i++) {
      uint64_t size;
      int fd;
      TRY(file_open(w->spec->input[s][i], &fd,
                    &size)); /* refuses pipes: a table is read twice */
      close(fd);
      *bytes += size;
    }
  }
  return ERR_OK;
}

Err classify_read_labels(ClassifyWork *w, const ClassifyRow *row) {
  if (text_labels_read(&w->labels, row->field + w->spec->texts))
    return err_context("%s:%" PRIu64, row->path, row->line);
  return ERR_OK;
}

/* Who receives the rows. */
typedef struct {
  ClassifyTake take;
  void *context;
} Receiver;

static Err read_rows(ClassifyWork *w, Table *t, ClassifyRow *row, const Receiver *to) {
  uint64_t before = w->progress.done;
  for (uint64_t n = 0;; n++, row->index++) {
    TRY(table_row(t, &row->field));
    if (n % 256 == 0) {
      TRY(prepare_check_stop(&w->state));
      progress_set(&w->progress, before + table_bytes(t));
    }
    if (!row->field) break;
    row->line = table_line(t);
    TRY(to->take(to->context, row));
  }
  progress_set(&w->progress, before + table_bytes(t));
  return ERR_OK;
}

/* Records a table in meta. */
static Err record_source(ClassifyWork *w, Split split, Table *t, const char *path,
                         uint64_t rows) {
  const char *slash = strrchr(path, '/');
  MetaSource source = {.lines = rows};
  if (!utf8_escape(slash ? slash + 1 : path, source.name[0], sizeof source.name[0]))
    return err_set(ERR_WORK, "%s: the file name is too long", path);
  source.bytes[0] = table_bytes(t);
  table_sha256(t, source.sha256[0]);
  return meta_add_source(&w->meta->split[split], &source);
}

static Err compare_source(const MetaSource *source, Table *t, const char *path) {
  char hex[65];
  table_sha256(t, hex);
  if (strcmp(hex, source->sha256[0]) == 0) return ERR_OK;
  return err_set(ERR_WORK, "%s has changed while it was read; start again", path);
}

static Err read_table(ClassifyWork *w, size_t i, ClassifyRow *row, const Receiver *to) {
  const char *path = w->spec->input[row->split][i];
  MetaSplit *split = &w->meta->split[row->split];
  uint64_t first = row->index;
  TableKind kind;
  Table *t;
  if (w->spec->text_column)
    TRY(table_kind(path, &kind));
  else
    kind = TABLE_TEXT;
  TRY(table_open(&t, path, kind, w->column, w->columns));
  row->path = path;
  Err err = read_rows(w, t, row, to);
  if (!err)
    err = i < split->sources ? compare_source(&split->source[i], t, path)
                             : record_source(w, row->split, t, path, row->index - first);
  table_close(t);
  return err;
}

Err classify_read(ClassifyWork *w, Split split, ClassifyTake take, void *context) {
  Receiver to = {take, context};
  ClassifyRow row = {.split = split};
  for (size_t i = 0; i < w->spec->inputs[split]; i++) TRY(read_table(w, i, &row, &to));
  if (w->spec->inputs[split] && row.index == 0)
    return err_set(ERR_WORK, "%s has no %s", w->spec->input[split][0],
                   w->spec->text_column ? "rows after the one that names the columns"
                                        : "line that is not empty");
  return ERR_OK;
}
