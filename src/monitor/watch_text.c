/* The figures below the curve: metrics, speed, parts of a step, hosts, ranks, the last event. Only
 * what was measured is shown. Depends on runlog, canvas. */
#include "monitor/watch.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "base/utf8.h"

#define MAX_RANKS   64   /* ranks that are listed */
#define MAX_GPUS    16   /* GPUs of a host that are listed */
#define WATCH_FIELD 1280 /* bytes of a field, with its NUL */

static WatchLine *add_line(WatchText *t, Style style) {
  t->is_full = t->lines == WATCH_LINES;
  if (t->is_full) return NULL;
  WatchLine *line = &t->line[t->lines++];
  *line = (WatchLine){.style = style};
  return line;
}

void watch_begin(WatchText *t, Style style, const char *name) {
  WatchLine *line = add_line(t, style);
  t->indent = canvas_width(name);
  if (t->indent > 8) t->indent = 2;
  if (line) snprintf(line->text, sizeof line->text, "%s", name);
}

/* Begins a line that continues the group. Returns NULL if there is no room. */
static WatchLine *continue_group(WatchText *t) {
  WatchLine *line = add_line(t, t->line[t->lines - 1].style);
  if (line) snprintf(line->text, sizeof line->text, "%*s", t->indent, "");
  return line;
}

/* Room in a line: columns of the terminal, and bytes of its text. */
typedef struct {
  int cols;
  size_t bytes;
} Room;

/* Returns the room for a field behind the text of a line, after two blanks. */
static Room get_room(const WatchText *t, const WatchLine *line) {
  size_t used = strlen(line->text) + 2;
  Room room = {.cols = t->cols - canvas_width(line->text) - 2};
  room.bytes = used < sizeof line->text ? sizeof line->text - 1 - used : 0;
  return room;
}

static bool has_room(Room room, const char *field) {
  return canvas_width(field) <= room.cols && strlen(field) <= room.bytes;
}

/* Returns how many bytes of a text to write into the room: all, or up to the last blank that is within
 * it, or as many characters as fit; at least one character, if it has the bytes. */
static size_t fit_text(const char *text, Room room) {
  const char *end = text + strlen(text), *at = text, *blank = NULL;
  for (int col = 0; at < end && (col < room.cols || col == 0); col++) {
    uint32_t code;
    size_t bytes = utf8_decode(at, end, &code);
    if (bytes == 0) bytes = 1;
    if ((size_t)(at - text) + bytes > room.bytes) break;
    if (*at == ' ') blank = at;
    at += bytes;
  }
  if (at == end || *at == ' ') return (size_t)(at - text);
  return (size_t)((blank && blank > text ? blank : at) - text);
}

/* Adds a field that is longer than a line: it continues on the next lines. */
static void add_long_field(WatchText *t, WatchLine *line, const char *field) {
  char word[WATCH_FIELD];
  snprintf(word, sizeof word, "%.*s", (int)strcspn(field, " "), field);
  bool is_empty = canvas_width(line->text) <= t->indent;
  if (!is_empty && !has_room(get_room(t, line), word)) line = continue_group(t);
  while (line && *field) {
    size_t len = strlen(line->text), bytes = fit_text(field, get_room(t, line));
    if (bytes > 0)
      snprintf(line->text + len, sizeof line->text - len, "  %.*s", (int)bytes, field);
    field += bytes;
    while (*field == ' ') field++;
    if (*field) line = continue_group(t);
  }
}

void watch_field(WatchText *t, const char *fmt, ...) {
  char field[WATCH_FIELD];
  va_list args;
  va_start(args, fmt);
  vsnprintf(field, sizeof field, fmt, args);
  va_end(args);
  if (!t->lines || t->is_full) return;
  WatchLine *line = &t->line[t->lines - 1];
  WatchLine next = {0}; /* a line that continues the group */
  snprintf(next.text, sizeof next.text, "%*s", t->indent, "");
  if (!has_room(get_room(t, &next), field)) {
    add_long_field(t, line, field);
    return;
  }
  bool is_empty = canvas_width(line->text) <= t->indent;
  if (!is_empty && !has_room(get_room(t, line), field)) line = continue_group(t);
  if (!line) return;
  size_t len = strlen(line->text);
  snprintf(line->text + len, sizeof line->text - len, "  %s", field);
}

/* Adds the last value of a column with so many digits after the point; `label` is "" or ends with a
 * blank. */
static void add_fixed(const Watch *w, WatchText *t, const char *column, const char *label,
                      int digits) {
  RunPoint p;
  if (runlog_last(&w->log, column, &p)) watch_field(t, "%s%.*f", label, digits, p.value);
}

/* Adds the last value of a column with four significant digits; `label` and `unit` include their
 * blanks. */
static void add_short(const Watch *w, WatchText *t, const char *column, const char *label,
                      const char *unit) {
  RunPoint p;
  if (runlog_last(&w->log, column, &p)) watch_field(t, "%s%.4g%s", label, p.value, unit);
}

/* Adds a rate with thousands separated, such as "11,658 tokens/s". */
static void add_rate(const Watch *w, WatchText *t, const char *column, const char *unit) {
  RunPoint p;
  char count[32];
  if (!runlog_last(&w->log, column, &p) || !(p.value >= 0 && p.value < 1e15)) return;
  watch_field(t, "%s %s", str_of_count(count, (uint64_t)p.value), unit);
}

/* Adds the last and the best value of a metric of validations, if the run has it. */
static void add_score(const Watch *w, WatchText *t, const char *column, const char *label,
                      int digits) {
  const RunColumn *c = runlog_column(&w->log, column);
  RunPoint best = {0};
  char step[32];
  if (!c || !c->points) return;
  watch_field(t, "%s %.*f", label, digits, runlog_point(&w->log, c, c->points - 1).value);
  for (size_t i = 0; i < c->points; i++) {
    RunPoint p = runlog_point(&w->log, c, i);
    if (i == 0 || p.value > best.value) best = p;
  }
  watch_field(t, "best %s %.*f at step %s", label, digits, best.value,
              str_of_count(step, best.step));
}

static void add_figures(const Watch *w, WatchText *t) {
  watch_begin(t, STYLE_PLAIN, "loss");
  RunPoint p;
  add_fixed(w, t, runlog_last(&w->log, "nll", &p) ? "nll" : "loss", "", 4);
  add_short(w, t, "perplexity", "ppl ", "");
  add_fixed(w, t, "valid_nll", "valid ", 4);
  add_fixed(w, t, "valid_accuracy", "accuracy ", 4);
  add_fixed(w, t, "valid_auc", "AUC ", 4);
  add_fixed(w, t, "valid_mae", "MAE ", 4);
  add_score(w, t, "valid_bleu", "BLEU", 2);
  add_score(w, t, "valid_f1_macro", "macro-F1", 4);
  add_score(w, t, "valid_pearson", "correlation", 4);
  add_short(w, t, "lr", "lr ", "");
  add_fixed(w, t, "grad_norm", "gnorm ", 2);
  watch_begin(t, STYLE_PLAIN, "speed");
  add_rate(w, t, "target_tokens_per_s", "tokens/s");
  add_rate(w, t, "tokens_per_s", "tokens/s");
  add_rate(w, t, "texts_per_s", "texts/s");
  add_rate(w, t, "pairs_per_s", "pairs/s");
  add_short(w, t, "steps_per_s", "", " steps/s");
  add_short(w, t, "tflops_per_s", "", " TFLOP/s");
  if (runlog_last(&w->log, "mfu", &p)) watch_field(t, "MFU %.1f %%", 100 * p.value);
}

/* Adds the parts of a step on rank 0, in percent of their sum. */
static void add_parts(const Watch *w, WatchText *t) {
  static const struct {
    const char *column, *name;
  } parts[] = {{"data_wait_ms", "data"},    {"forward_ms", "forward"},
               {"backward_ms", "backward"}, {"comm_wait_ms", "all-reduce"},
               {"update_ms", "update"},     {"checkpoint_ms", "checkpoint"}};
  enum { PARTS = sizeof parts / sizeof *parts };
  double ms[PARTS] = {0}, sum = 0;
  for (int i = 0; i < PARTS; i++) {
    RunPoint p;
    if (runlog_last(&w->log, parts[i].column, &p) && p.value > 0) ms[i] = p.value;
    sum += ms[i];
  }
  if (!(sum > 0)) return;
  watch_begin(t, STYLE_PLAIN, "step");
  watch_field(t, "%.3g ms:", sum);
  for (int i = 0; i < PARTS; i++)
    if (ms[i] >= 0.005 * sum) watch_field(t, "%s %.0f %%", parts[i].name, 100 * ms[i] / sum);
}

/* Returns the last value of a host's column, if it was measured in the last sample or soon
 * before. */
static bool get_last(const RunHost *h, const char *name, double *value) {
  const RunSeries *s = runlog_series(h, name);
  if (!s || !s->points || h->last_time - s->time[s->points - 1] > WATCH_NEWS) return false;
  *value = s->value[s->points - 1];
  return isfinite(*value) && *value >= 0 && *value < 1e18;
}

static bool get_gpu(const RunHost *h, int gpu, const char *field, double *value) {
  char name[RUNLOG_NAME];
  snprintf(name, sizeof name, "gpu/%d/%s", gpu, field);
  return get_last(h, name, value);
}

static void add_gpu(const RunHost *h, WatchText *t, int gpu) {
  double busy, used, total, watts, celsius;
  char name[RUNLOG_NAME], left[32], right[32];
  if (!get_gpu(h, gpu, "busy", &busy) && !get_gpu(h, gpu, "memory_used", &used)) return;
  snprintf(name, sizeof name, "  GPU %d", gpu);
  watch_begin(t, STYLE_PLAIN, name);
  if (get_gpu(h, gpu, "busy", &busy)) watch_field(t, "%.0f %%", busy);
  if (get_gpu(h, gpu, "memory_used", &used) && get_gpu(h, gpu, "memory_total", &total))
    watch_field(t, "%s of %s", str_of_bytes(left, (uint64_t)used),
                str_of_bytes(right, (uint64_t)total));
  if (get_gpu(h, gpu, "watts", &watts)) watch_field(t, "%.0f W", watts);
  if (get_gpu(h, gpu, "celsius", &celsius)) watch_field(t, "%.0f C", celsius);
  snprintf(name, sizeof name, "gpu/%d/throttle/", gpu);
  for (size_t i = 0; i < h->series_count; i++)
    if (str_starts(h->series[i].name, name) && get_last(h, h->series[i].name, &busy))
      watch_field(t, "slowed: %s", h->series[i].name + strlen(name));
}

/* Adds bytes per second of all network cards. */
static void add_network(const RunHost *h, WatchText *t) {
  double received = 0, sent = 0;
  bool is_known = false;
  char in[32], out[32];
  for (size_t i = 0; i < h->series_count; i++) {
    const char *name = h->series[i].name;
    double value;
    if (!str_starts(name, "net/") || !get_last(h, name, &value)) continue;
    if (str_ends(name, "/received")) received += value;
    if (str_ends(name, "/sent")) sent += value;
    is_known = true;
  }
  if (is_known) /* the sum of many cards may be larger than a uint64_t */
    watch_field(t, "net %s/s in, %s/s out", str_of_bytes(in, (uint64_t)fmin(received, 1e18)),
                str_of_bytes(out, (uint64_t)fmin(sent, 1e18)));
}

static void add_host(const Watch *w, const RunHost *h, WatchText *t) {
  double cpu, busiest, used, total, newest = 0;
  char left[32], right[32];
  for (size_t i = 0; i < w->log.host_count; i++)
    newest = fmax(newest, w->log.hosts[i].last_time);
  watch_begin(t, STYLE_PLAIN, "host");
  watch_field(t, "%s", h->name);
  if (newest - h->last_time > WATCH_NEWS) {
    if (!t->is_full) t->line[t->lines - 1].style = STYLE_WARN;
    watch_field(t, "no sample for %s", str_of_seconds(left, newest - h->last_time));
    return;
  }
  if (get_last(h, "cpu", &cpu)) watch_field(t, "CPU %.0f %%", cpu);
  if (get_last(h, "cpu_max", &busiest) && h->cores > 1)
    watch_field(t, "busiest of %u cores %.0f %%", h->cores, busiest);
  if (get_last(h, "memory_used", &used) && get_last(h, "memory_total", &total))
    watch_field(t, "memory %s of %s", str_of_bytes(left, (uint64_t)used),
                str_of_bytes(right, (uint64_t)total));
  add_network(h, t);
  if (get_last(h, "disk_free", &used))
    watch_field(t, "disk %s free", str_of_bytes(left, (uint64_t)used));
  for (int gpu = 0; gpu < MAX_GPUS; gpu++) add_gpu(h, t, gpu);
}

static const RunEvent *find_last_event(const Watch *w, bool is_of_ranks) {
  for (size_t i = w->log.event_count; i-- > 0;) {
    const RunEvent *e = &w->log.events[i];
    if ((strcmp(e->kind, "ranks") == 0) == is_of_ranks && (!is_of_ranks || !e->is_undone))
      return e;
  }
  return NULL;
}

/* Adds the time of a step on each rank. The slowest, for which the others wait, is marked. */
static void add_ranks(const Watch *w, WatchText *t) {
  const RunEvent *e = find_last_event(w, true);
  double ms[MAX_RANKS], wait[MAX_RANKS], data[MAX_RANKS];
  if (!e) return;
  size_t n = runlog_event_numbers(e, "rank_ms", ms, MAX_RANKS), slowest = 0;
  size_t waits = runlog_event_numbers(e, "rank_wait_ms", wait, MAX_RANKS);
  size_t datas = runlog_event_numbers(e, "rank_data_ms", data, MAX_RANKS);
  for (size_t r = 1; r < n && r < waits; r++)
    if (ms[r] - wait[r] > ms[slowest] - wait[slowest]) slowest = r;
  for (size_t r = 0; r < n; r++) {
    char name[32], host[RUNLOG_NAME];
    bool is_slowest = n > 1 && waits == n && r == slowest;
    snprintf(name, sizeof name, "rank %zu", r);
    watch_begin(t, is_slowest ? STYLE_WARN : STYLE_PLAIN, name);
    if (runlog_event_item(e, "hosts", r, host, sizeof host)) watch_field(t, "%s", host);
    watch_field(t, "%.3g ms", ms[r]);
    if (r < waits) watch_field(t, "waits %.3g ms", wait[r]);
    if (r < datas) watch_field(t, "data %.3g ms", data[r]);
    if (is_slowest) watch_field(t, "slowest");
  }
}

static void add_event(const Watch *w, WatchText *t) {
  const RunEvent *e = find_last_event(w, false);
  char reason[512], step[32];
  if (!e) return;
  watch_begin(t, STYLE_WARN, e->kind);
  watch_field(t, "at step %s", str_of_count(step, e->step));
  if (runlog_event_text(e, "restart_reason", reason, sizeof reason))
    watch_field(t, "%s", reason);
}

void watch_describe(const Watch *w, WatchText *t) {
  if (!w->is_open) return;
  if (w->log.column_count) add_figures(w, t);
  add_parts(w, t);
  for (size_t i = 0; i < w->log.host_count; i++) add_host(w, &w->log.hosts[i], t);
  add_ranks(w, t);
  add_event(w, t);
  if (w->log.damaged_lines) {
    watch_begin(t, STYLE_WARN, "damaged");
    watch_field(t, "%" PRIu64 " lines are skipped, first: %s", w->log.damaged_lines,
                w->log.damage);
  }
  char left_out[RUNLOG_LEFT_OUT];
  if (runlog_left_out(&w->log, left_out, sizeof left_out)) {
    watch_begin(t, STYLE_WARN, "left out");
    watch_field(t, "%s", left_out);
  }
}
