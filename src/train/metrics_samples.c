/* Writes RUN/samples.jsonl: the samples of each validation, one JSON object per line, described in
 * docs/formats.md. The file is created with the first samples. Depends on base, Jansson. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/lines.h"
#include "base/mem.h"
#include "train/metrics_sink.h"

typedef struct {
  char path[FILE_PATH_MAX];
  LineFile file; /* open if the file exists */
} SamplesSink;

static Err open_file(SamplesSink *s) {
  if (s->file.is_open) return ERR_OK;
  TRY(lines_open(&s->file, s->path));
  return lines_complete(&s->file);
}

static void close_samples(void *sink) {
  SamplesSink *s = sink;
  if (!s) return;
  lines_close(&s->file);
  mem_free(s);
}

/* A run that continues undoes the samples of later steps. Whether there are any is not looked up:
 * undoing nothing does no harm. */
static Err open_samples(void **sink, const MetricsSpec *spec, uint64_t *last_step) {
  SamplesSink *s;
  *sink = NULL;
  *last_step = 0;
  TRY(mem_alloc(&s, 1, sizeof *s));
  Err err = file_join(s->path, spec->run_dir, "samples.jsonl");
  if (!err && file_exists(s->path)) {
    *last_step = UINT64_MAX;
    err = open_file(s);
  }
  if (err)
    close_samples(s);
  else
    *sink = s;
  return err;
}

/* Makes [{"source": "…", "translation": "…"}] of a table whose first row has the names. Returns
 * NULL if a text is not UTF-8 or memory is lacking. */
static json_t *make_rows(const MetricsTable *t) {
  json_t *rows = json_array();
  const char *cell = t->cells;
  for (size_t r = 0; rows && r < t->rows; r++) {
    json_t *row = json_object();
    const char *name = t->cells;
    for (size_t c = 0; c < t->columns; c++) {
      bool is_set = r == 0 || json_object_set_new(row, name, json_string(cell)) == 0;
      if (!is_set) {
        json_decref(row);
        json_decref(rows);
        return NULL;
      }
      cell += strlen(cell) + 1;
      name += strlen(name) + 1;
    }
    if (r == 0)
      json_decref(row);
    else
      json_array_append_new(rows, row);
  }
  return rows;
}

static Err write_line(SamplesSink *s, const json_t *line) {
  char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(10));
  size_t len = text ? strlen(text) : 0;
  if (!text) return err_set(ERR_WORK, "cannot write %s: out of memory", s->path);
  text[len] = '\n'; /* instead of the NUL, which lines_add does not need */
  Err err = open_file(s);
  if (!err) err = lines_add(&s->file, text, len + 1);
  free(text);
  return err;
}

static Err write_samples(void *sink, const MetricsRecord *r) {
  SamplesSink *s = sink;
  const MetricsTable *table = NULL;
  for (size_t i = 0; i < r->values; i++)
    if (r->value[i].kind == METRICS_TABLE) table = &r->value[i].table;
  if (!table && (!r->undoes_later || !s->file.is_open)) return ERR_OK;
  json_t *line = json_object();
  json_int_t step = (json_int_t)r->step;
  json_t *rows = table ? make_rows(table) : NULL;
  if (table) json_object_set_new(line, "samples", rows);
  if (r->undoes_later) json_object_set_new(line, "undone_after", json_integer(step));
  json_object_set_new(line, "step", json_integer(step));
  json_object_set_new(line, "seconds", json_real(r->seconds));
  Err err = ERR_OK;
  if (table && !rows)
    err = err_set(ERR_WORK, "cannot write %s: a sample of step %" PRIu64 " is not UTF-8",
                  s->path, r->step);
  if (!err) err = write_line(s, line);
  json_decref(line);
  return err;
}

const MetricsSink metrics_samples = {open_samples, write_samples, NULL, close_samples};
