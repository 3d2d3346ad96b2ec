/* Writes RUN/metrics.jsonl: one JSON object per line, described in docs/formats.md. Depends on
 * base, Jansson. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/jsondoc.h"
#include "base/lines.h"
#include "base/mem.h"
#include "train/metrics_sink.h"

/* Bytes at the end of the file in which the last record is searched. A record of 4,096 ranks has
 * about 200 kB. */
#define TAIL_BYTES ((size_t)512 << 10)

typedef struct {
  LineFile file;
  char *line; /* the line that is written */
  size_t line_capacity;
  bool is_cut; /* the file ends with an incomplete line, as after a crash */
} JsonlSink;

/* Reads the step of the record in a line; returns false if the line is not a record. */
static bool read_step(const char *line, size_t len, uint64_t *step) {
  if (jsondoc_check(line, len, "metrics.jsonl")) return false;
  json_t *record = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
  const json_t *value = json_object_get(record, "step");
  bool is_step = json_is_integer(value) && json_integer_value(value) >= 0;
  if (is_step) *step = (uint64_t)json_integer_value(value);
  json_decref(record);
  return is_step;
}

/* Returns the step of the last complete record in the text, which may begin within a line. */
static uint64_t find_last_step(const char *text, size_t len) {
  uint64_t step = 0;
  size_t end = len;
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    if (read_step(text + begin, end - begin, &step)) return step;
    end = begin;
  }
  return 0;
}

static Err read_tail(int fd, uint64_t bytes, const char *path, char *tail, size_t *len) {
  uint64_t begin = bytes > TAIL_BYTES ? bytes - TAIL_BYTES : 0;
  *len = 0;
  while (*len < bytes - begin) {
    ssize_t n = pread(fd, tail + *len, (size_t)(bytes - begin) - *len, (off_t)(begin + *len));
    if (n < 0) return err_errno("cannot read", path);
    if (n == 0) break;
    *len += (size_t)n;
  }
  return ERR_OK;
}

static Err look_at_end(JsonlSink *s, uint64_t *last_step) {
  const char *path = s->file.path;
  int fd;
  uint64_t bytes;
  size_t len;
  char *tail;
  TRY(file_open(path, &fd, &bytes));
  Err err = mem_alloc(&tail, TAIL_BYTES, 1);
  if (!err) err = read_tail(fd, bytes, path, tail, &len);
  if (!err) {
    *last_step = find_last_step(tail, len);
    s->is_cut = len > 0 && tail[len - 1] != '\n';
  }
  mem_free(tail);
  close(fd);
  return err;
}

static void close_jsonl(void *sink) {
  JsonlSink *s = sink;
  if (!s) return;
  lines_close(&s->file);
  mem_free(s->line);
  mem_free(s);
}

/* Returns true for a regular file that is not empty. The file may be something else, such as
 * /dev/null. */
static bool has_records(const LineFile *file) {
  struct stat st;
  return fstat(file->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

static Err open_jsonl(void **sink, const MetricsSpec *spec, uint64_t *last_step) {
  char path[FILE_PATH_MAX];
  JsonlSink *s;
  *sink = NULL;
  *last_step = 0;
  TRY(file_join(path, spec->run_dir, "metrics.jsonl"));
  TRY(mem_alloc(&s, 1, sizeof *s));
  Err err = lines_open(&s->file, path);
  if (!err && has_records(&s->file)) err = look_at_end(s, last_step);
  if (err)
    close_jsonl(s);
  else
    *sink = s;
  return err;
}

/* Returns true for tables and histograms, which are not written. */
static bool is_left_out(const MetricsValue *v) {
  return v->kind == METRICS_TABLE || v->kind == METRICS_HISTOGRAM;
}

/* Returns true if the record has values, but only of kinds that are not written. */
static bool is_empty(const MetricsRecord *r) {
  for (size_t i = 0; i < r->values; i++)
    if (!is_left_out(&r->value[i])) return false;
  return r->values > 0;
}

/* Returns NULL if a number is not finite. */
static json_t *make_list(const MetricsList *list) {
  json_t *array = json_array();
  for (size_t i = 0; i < list->n; i++) {
    if (json_array_append_new(array, json_real(list->item[i])) == 0) continue;
    json_decref(array);
    return NULL;
  }
  return array;
}

/* Returns NULL if a text is not UTF-8. */
static json_t *make_texts(const MetricsTexts *texts) {
  json_t *array = json_array();
  for (size_t i = 0; i < texts->n; i++) {
    if (json_array_append_new(array, json_string(texts->item[i])) == 0) continue;
    json_decref(array);
    return NULL;
  }
  return array;
}

static json_t *make_value(const MetricsValue *v) {
  if (v->kind == METRICS_LIST) return make_list(&v->list);
  if (v->kind == METRICS_TEXTS) return make_texts(&v->texts);
  if (v->kind == METRICS_TEXT) return json_string(v->text);
  if (v->kind == METRICS_COUNT) return json_integer((json_int_t)v->count);
  return json_real(v->real);
}

static bool is_text(const MetricsValue *v) {
  return v->kind == METRICS_TEXT || v->kind == METRICS_TEXTS;
}

static Err add_values(json_t *line, const MetricsRecord *r, const char *path) {
  for (size_t i = 0; i < r->values; i++) {
    const MetricsValue *v = &r->value[i];
    if (is_left_out(v)) continue;
    json_t *value = make_value(v);
    if (!value)
      return err_set(ERR_WORK, "cannot write %s: %s of step %" PRIu64 " is not %s", path,
                     v->name, r->step, is_text(v) ? "UTF-8" : "finite");
    json_object_set_new(line, v->name, value);
  }
  return ERR_OK;
}

/* Writes a record. If the file ends with an incomplete line, a line break comes first. */
static Err write_line(JsonlSink *s, const json_t *line) {
  const size_t format = JSON_COMPACT | JSON_REAL_PRECISION(10);
  size_t begin = s->is_cut ? 1 : 0, n = json_dumpb(line, NULL, 0, format);
  if (n == 0) return err_set(ERR_WORK, "cannot write %s: out of memory", s->file.path);
  TRY(mem_grow(&s->line, &s->line_capacity, begin + n + 1, 1));
  json_dumpb(line, s->line + begin, n, format);
  if (s->is_cut) s->line[0] = '\n';
  s->line[begin + n] = '\n';
  TRY(lines_add(&s->file, s->line, begin + n + 1));
  s->is_cut = false;
  return ERR_OK;
}

static Err write_jsonl(void *sink, const MetricsRecord *r) {
  JsonlSink *s = sink;
  if (is_empty(r)) return ERR_OK;
  json_t *line = json_object();
  if (r->event) json_object_set_new(line, "event", json_string(r->event));
  Err err = add_values(line, r, s->file.path);
  if (!err) {
    json_int_t step = (json_int_t)r->step;
    if (r->undoes_later) json_object_set_new(line, "undone_after", json_integer(step));
    json_object_set_new(line, "step", json_integer(step));
    json_object_set_new(line, "seconds", json_real(r->seconds));
    err = write_line(s, line);
  }
  json_decref(line);
  return err;
}

const MetricsSink metrics_jsonl = {open_jsonl, write_jsonl, NULL, close_jsonl};
