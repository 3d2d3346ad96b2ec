/* Answers requests to the board with JSON. Every argument is checked; none becomes part of a path:
 * runs have ids. Depends on board_files, board_json, board_series, board_system. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/board_files.h"
#include "monitor/board_internal.h"
#include "monitor/board_json.h"

#define ZOOM_BYTES  ((size_t)16 << 20)  /* of a file, read for one answer */
#define LOAD_BYTES  ((size_t)256 << 10) /* a file of this size is read whole at once */
#define EVENT_BYTES ((size_t)1 << 20)   /* of the lines of events in one answer */
#define FIELDS      BUCKETS_COLUMNS     /* columns in one answer */

enum { OK = 200, BAD = 400, NOT_FOUND = 404, FAILED = 500 };

static int refuse(Str *out, int status, const char *why) {
  str_clear(out);
  str_add(out, why);
  return status;
}

static const char *get_argument(const BoardRequest *q, const char *name) {
  return q->argument(q->context, name);
}

/* Reads a number that is 0 or more. Returns false if the argument is something else; a missing
 * one is `missing`. */
static bool read_number(const BoardRequest *q, const char *name, double missing,
                        double *value) {
  const char *text = get_argument(q, name);
  char *end;
  *value = missing;
  if (!text) return true;
  if (text[0] < '0' || text[0] > '9' || strlen(text) > 20) return false;
  if (strspn(text, "0123456789.e+") != strlen(text)) return false;
  *value = strtod(text, &end);
  return *end == '\0' && isfinite(*value);
}

/* Finds the run that the request names; returns the HTTP status. */
static int find_run(Board *b, const BoardRequest *q, BoardRun **run, Str *out) {
  const char *id = get_argument(q, "run");
  if (!id || strlen(id) != RUN_ID || strspn(id, "0123456789abcdef") != RUN_ID)
    return refuse(out, BAD, "run: 16 hexadecimal digits are expected");
  *run = board_find_run(b, id);
  return *run ? OK : refuse(out, NOT_FOUND, "there is no such run");
}

static void add_fact(Str *out, const char *name, double value) {
  if (isnan(value)) return; /* not known */
  str_addf(out, ",\"%s\":", name);
  board_json_exact(out, value);
}

static void write_run(const BoardRun *r, Str *out) {
  str_addf(out, "{\"id\":\"%s\",\"name\":", r->id);
  board_json_text(out, r->name, strlen(r->name));
  str_addf(out, ",\"gone\":%s", r->is_gone ? "true" : "false");
  if (r->written.tv_sec)
    add_fact(out, "written",
             (double)r->written.tv_sec + 1e-3 * (double)(r->written.tv_nsec / 1000000));
  add_fact(out, "step", r->facts.step);
  add_fact(out, "steps", r->facts.steps);
  add_fact(out, "nll", r->facts.nll);
  add_fact(out, "valid_nll", r->facts.valid_nll);
  add_fact(out, "valid_bleu", r->facts.valid_bleu);
  add_fact(out, "valid_f1_macro", r->facts.valid_f1_macro);
  add_fact(out, "valid_pearson", r->facts.valid_pearson);
  add_fact(out, "tokens_per_s", r->facts.tokens_per_s);
  add_fact(out, "epoch", r->facts.epoch);
  str_addc(out, '}');
}

static int answer_runs(Board *b, const BoardRequest *q, Str *out) {
  double since;
  struct timespec now;
  bool is_first = true;
  if (!read_number(q, "since", 0, &since))
    return refuse(out, BAD, "since: a number is expected");
  clock_gettime(CLOCK_REALTIME, &now);
  str_addf(out, "{\"version\":%" PRIu64 ",\"searched\":%s,\"cut\":%s,\"now\":%lld,\"dir\":",
           b->version, b->is_searched ? "true" : "false", b->is_cut ? "true" : "false",
           (long long)now.tv_sec);
  board_json_text(out, b->dir, strlen(b->dir));
  str_add(out, ",\"runs\":[");
  for (size_t i = 0; i < b->runs; i++) {
    if ((double)b->run[i]->changed <= since) continue;
    if (!is_first) str_addc(out, ',');
    is_first = false;
    write_run(b->run[i], out);
  }
  str_add(out, "]}");
  return OK;
}

/* Writes the value of one column for each bucket: "mean", or the smallest or largest value. */
static void write_column(const Buckets *b, int column, size_t from, const char *what,
                         Str *out) {
  str_addf(out, "\"%s\":[", what);
  for (size_t i = from; i < b->count; i++) {
    const BucketCell *c = buckets_cell(b, i, column);
    double value = what[1] == 'e' ? c->mean : what[1] == 'i' ? c->min : c->max;
    if (i > from) str_addc(out, ',');
    board_json_number(out, c->values ? value : NAN);
  }
  str_addc(out, ']');
}

/* Returns the tokens at a step, between the buckets of the training records. Validations have no
 * token counts of their own. */
static double find_tokens(const Buckets *train, double step) {
  size_t low = 0, high = train->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (train->bucket[middle].last.step < step)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == train->count) return low ? train->bucket[low - 1].last.tokens : NAN;
  BucketPlace right = train->bucket[low].last;
  BucketPlace left = low ? train->bucket[low - 1].last : (BucketPlace){0};
  double share = right.step > left.step ? (step - left.step) / (right.step - left.step) : 1;
  return left.tokens + share * (right.tokens - left.tokens);
}

static void write_axes(const Buckets *b, const Buckets *train, size_t from, Str *out) {
  static const char *const axis[] = {"step", "seconds", "tokens"};
  for (int a = 0; a < 3; a++) {
    str_addf(out, ",\"%s\":[", axis[a]);
    for (size_t i = from; i < b->count; i++) {
      BucketPlace p = b->bucket[i].last;
      if (isnan(p.tokens) && a == 2 && train) p.tokens = find_tokens(train, p.step);
      if (i > from) str_addc(out, ',');
      board_json_exact(out, a == 0 ? p.step : a == 1 ? p.seconds : p.tokens);
    }
    str_addc(out, ']');
  }
}

/* Writes buckets. The client sends the epoch and the number of buckets that it has: of the same
 * epoch it needs only the last of these, which may have grown, and later ones. */
static int write_buckets(const BoardRequest *q, const Buckets *b, const Buckets *train,
                         const char *epoch, Str *out) {
  const char *fields = get_argument(q, "fields"), *known = get_argument(q, "epoch");
  double have;
  if (!read_number(q, "have", 0, &have)) return refuse(out, BAD, "have: a number is expected");
  bool is_known = known && strcmp(known, epoch) == 0 && have >= 1 && have <= (double)b->count;
  size_t from = is_known ? (size_t)have - 1 : 0;
  str_addf(out, "\"epoch\":\"%s\",\"from\":%zu,\"each\":%u", epoch, from, b->each);
  write_axes(b, train, from, out);
  str_add(out, ",\"columns\":{");
  bool is_first = true;
  for (int n = 0; fields && *fields; n++) {
    size_t len = strcspn(fields, ",");
    if (n == FIELDS) return refuse(out, BAD, "fields: too many names");
    int column = buckets_find_column(b, fields, len);
    if (column >= 0) {
      str_addf(out, "%s\"%s\":{", is_first ? "" : ",", b->name[column]);
      write_column(b, column, from, "mean", out);
      if (b->each > 1) {
        str_addc(out, ',');
        write_column(b, column, from, "min", out);
        str_addc(out, ',');
        write_column(b, column, from, "max", out);
      }
      str_addc(out, '}');
      is_first = false;
    }
    fields += len + (fields[len] == ',');
  }
  str_add(out, "}}");
  return OK;
}

static bool read_kind(const BoardRequest *q, LineKind *kind) {
  static const char *const names[LINE_KINDS] = {"train", "valid", "average"};
  const char *text = get_argument(q, "kind");
  for (int k = 0; text && k < LINE_KINDS; k++) {
    *kind = (LineKind)k;
    if (strcmp(text, names[k]) == 0) return true;
  }
  return false;
}

/* Loads a small run, or a sample of a large one, unless it is loaded; the reader thread reads the
 * rest. */
static Err load_run(Board *b, BoardRun *r) {
  Series *s = &r->series;
  r->wanted = board_now();
  if (!series_data(s)) {
    board_make_room(b);
    if (series_refresh(s))
      TRY(s->size <= LOAD_BYTES ? series_read(s, LOAD_BYTES) : series_sample(s));
  }
  pthread_cond_broadcast(&b->wake);
  return ERR_OK;
}

/* Answers with the records of a range of steps, read again from the file. */
static int answer_zoom(const BoardRequest *q, const Series *s, LineKind kind, double from,
                       double to, Str *out) {
  Buckets zoomed = {0};
  bool is_read;
  Err err = series_zoom(s, kind, from, to, ZOOM_BYTES, &zoomed, &is_read);
  const Buckets *train = &series_data(s)->kind[LINE_TRAIN].buckets;
  int status = err ? refuse(out, FAILED, err_message()) : OK;
  if (!err) {
    str_addf(out, "{\"exact\":%s,\"zoomed\":%s,", s->sample ? "false" : "true",
             is_read ? "true" : "false");
    status = write_buckets(q, &zoomed, train, "zoom", out);
  }
  buckets_free(&zoomed);
  return status;
}

static int answer_series(Board *b, const BoardRequest *q, Str *out) {
  BoardRun *r;
  LineKind kind;
  double from, to;
  char epoch[80];
  int status = find_run(b, q, &r, out);
  if (status != OK) return status;
  if (!read_kind(q, &kind))
    return refuse(out, BAD, "kind: train, valid or average is expected");
  bool are_numbers = read_number(q, "from", -1, &from);
  are_numbers = read_number(q, "to", -1, &to) && are_numbers;
  if (!are_numbers || (from < 0) != (to < 0) || from > to)
    return refuse(out, BAD, "from, to: two steps are expected, the smaller one first");
  if (load_run(b, r)) return refuse(out, FAILED, err_message());
  const Series *s = &r->series;
  const SeriesData *d = series_data(s);
  static const Buckets none;
  if (d && from >= 0) return answer_zoom(q, s, kind, from, to, out);
  const Buckets *buckets = d ? &d->kind[kind].buckets : &none;
  snprintf(epoch, sizeof epoch, "%" PRIu64 ".%d.%" PRIu64, s->generation, s->sample ? 0 : 1,
           buckets->epoch);
  str_addf(out, "{\"exact\":%s,", s->sample ? "false" : "true");
  return write_buckets(q, buckets, d ? &d->kind[LINE_TRAIN].buckets : NULL, epoch, out);
}

/* Returns the number of the first event to write: the last ones whose lines have EVENT_BYTES. */
static uint64_t find_first_event(const SeriesData *d) {
  uint64_t least = d->events > SERIES_EVENTS ? d->events - SERIES_EVENTS : 0;
  uint64_t first = d->events;
  for (size_t bytes = 0; first > least; first--) {
    bytes += d->event[(first - 1) % SERIES_EVENTS].len;
    if (bytes > EVENT_BYTES) break;
  }
  return first;
}

static void write_events(const Series *s, const SeriesData *d, Str *out) {
  uint64_t first = find_first_event(d);
  bool is_first = true;
  for (uint64_t i = first; i < d->events; i++) {
    Str line = {0};
    size_t before = out->len;
    series_line(s, d->event[i % SERIES_EVENTS], &line);
    if (!is_first) str_addc(out, ',');
    if (board_json_line(out, str_text(&line), line.len))
      is_first = false;
    else
      out->len = before; /* removes the comma */
    str_free(&line);
  }
}

static void write_columns(const Buckets *b, Str *out) {
  str_addc(out, '[');
  for (size_t c = 0; c < b->columns; c++) str_addf(out, "%s\"%s\"", c ? "," : "", b->name[c]);
  str_addc(out, ']');
}

/* Answers with what the page shows of one run beside its curves. */
static int answer_run(Board *b, const BoardRequest *q, Str *out) {
  BoardRun *r;
  Str ranks = {0};
  int status = find_run(b, q, &r, out);
  if (status != OK) return status;
  if (load_run(b, r)) return refuse(out, FAILED, err_message());
  const SeriesData *d = series_data(&r->series);
  str_add(out, "{\"config\":");
  board_files_config(r->path, out);
  str_add(out, ",\"process\":");
  board_files_process(r->path, out);
  str_add(out, ",\"checkpoints\":");
  board_files_checkpoints(r->path, out);
  str_addf(out, ",\"exact\":%s,\"columns\":{", r->series.sample ? "false" : "true");
  if (d) {
    str_add(out, "\"train\":");
    write_columns(&d->kind[LINE_TRAIN].buckets, out);
    str_add(out, ",\"valid\":");
    write_columns(&d->kind[LINE_VALID].buckets, out);
    str_add(out, ",\"average\":");
    write_columns(&d->kind[LINE_AVERAGE].buckets, out);
  }
  str_add(out, "},\"events\":[");
  if (d) write_events(&r->series, d, out);
  str_add(out, "],\"ranks\":");
  if (d && d->ranks.len) series_line(&r->series, d->ranks, &ranks);
  if (!board_json_line(out, str_text(&ranks), ranks.len)) str_add(out, "null");
  str_addc(out, '}');
  str_free(&ranks);
  return OK;
}

static int answer_samples(Board *b, const BoardRequest *q, Str *out) {
  BoardRun *r;
  int status = find_run(b, q, &r, out);
  if (status != OK) return status;
  str_add(out, "{\"samples\":");
  board_files_samples(r->path, out);
  str_addc(out, '}');
  return OK;
}

static Err load_hosts(Board *b, BoardRun *r) {
  r->system_wanted = board_now();
  if (!r->system.hosts) board_make_host_room(b);
  return board_system_refresh(&r->system, r->path);
}

static int answer_system(Board *b, const BoardRequest *q, Str *out) {
  BoardRun *r;
  int status = find_run(b, q, &r, out);
  if (status != OK) return status;
  if (load_hosts(b, r)) return refuse(out, FAILED, err_message());
  str_addf(out, "{\"cut\":%s,\"hosts\":[", r->system.is_cut ? "true" : "false");
  for (size_t i = 0; i < r->system.hosts; i++) {
    const BoardHost *h = &r->system.host[i];
    str_add(out, i ? ",{\"name\":" : "{\"name\":");
    board_json_text(out, h->name, strlen(h->name));
    str_add(out, ",\"columns\":");
    write_columns(&h->history, out);
    str_add(out, ",\"latest\":");
    if (!board_json_line(out, str_text(&h->latest), h->latest.len)) str_add(out, "null");
    str_addc(out, '}');
  }
  str_add(out, "]}");
  return OK;
}

static int answer_host(Board *b, const BoardRequest *q, Str *out) {
  BoardRun *r;
  double number;
  char epoch[80];
  int status = find_run(b, q, &r, out);
  if (status != OK) return status;
  if (!read_number(q, "host", 0, &number) || number != floor(number))
    return refuse(out, BAD, "host: a whole number is expected");
  if (load_hosts(b, r)) return refuse(out, FAILED, err_message());
  if (number >= (double)r->system.hosts) return refuse(out, NOT_FOUND, "there is no such host");
  const Buckets *history = &r->system.host[(size_t)number].history;
  snprintf(epoch, sizeof epoch, "%" PRIu64 ".%" PRIu64, r->system.generation, history->epoch);
  str_addc(out, '{');
  return write_buckets(q, history, NULL, epoch, out);
}

int board_answer(Board *b, const BoardRequest *request, Str *out) {
  static const struct {
    const char *path;
    int (*answer)(Board *, const BoardRequest *, Str *);
  } paths[] = {{"/api/runs", answer_runs},     {"/api/series", answer_series},
               {"/api/run", answer_run},       {"/api/samples", answer_samples},
               {"/api/system", answer_system}, {"/api/host", answer_host}};
  int status = refuse(out, NOT_FOUND, "there is no such page");
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    if (strcmp(request->path, paths[i].path) != 0) continue;
    str_clear(out);
    b->waiting++;
    pthread_mutex_lock(&b->lock);
    b->waiting--;
    status = paths[i].answer(b, request, out);
    pthread_mutex_unlock(&b->lock);
  }
  return str_check(out) ? FAILED : status;
}
