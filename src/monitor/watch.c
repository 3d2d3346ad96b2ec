/* Reads a run's files and derives its state. Depends on runlog, scan, base. */
#include "monitor/watch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "monitor/scan.h"

#define PROCESSES_LIMIT ((size_t)4 << 20) /* largest processes.jsonl that is read */
#define MAX_SECONDS     1e10              /* longer times are taken for damage */
#define RATE_RECORDS    20 /* the speed for the time left is the mean over so many records */

void watch_init(Watch *w, const char *dir) {
  *w = (Watch){.dir = dir, .left = -1};
}

void watch_close(Watch *w) {
  if (w->is_open) runlog_close(&w->log);
  w->is_open = false;
}

/* Reads the length of the run and its ranks from a line of processes.jsonl. */
static void scan_process(Watch *w, const char *line, size_t len) {
  Scan s = scan_begin(line, len);
  double steps = 0, ranks = 0;
  char device[RUNLOG_NAME] = "";
  ScanKind kind;
  while ((kind = scan_next(&s)) != SCAN_END) {
    if (kind == SCAN_ERROR) return;
    if (s.depth != 1) continue;
    if (kind == SCAN_NUMBER && scan_key_is(&s, "steps")) steps = s.number;
    if (kind == SCAN_NUMBER && scan_key_is(&s, "ranks")) ranks = s.number;
    if (kind == SCAN_TEXT && scan_key_is(&s, "device"))
      scan_unescape(s.text, s.text_len, device, sizeof device);
  }
  w->steps = steps > 0 && steps < 1e15 ? (uint64_t)steps : 0;
  w->ranks = ranks > 0 && ranks < 1e9 ? (uint64_t)ranks : 0;
  memcpy(w->device, device, sizeof device);
}

/* Reads the last complete line of processes.jsonl. Without the file the values stay unknown. */
static void read_process(Watch *w) {
  char path[FILE_PATH_MAX];
  Str text = {0};
  if (file_join(path, w->dir, "processes.jsonl") || !file_exists(path)) return;
  if (file_read(path, PROCESSES_LIMIT, &text) == ERR_OK && text.len) {
    const char *end = text.s + text.len;
    while (end > text.s && end[-1] != '\n') end--; /* a line that is being written */
    const char *begin = end > text.s ? end - 1 : end;
    while (begin > text.s && begin[-1] != '\n') begin--;
    if (end > begin) scan_process(w, begin, (size_t)(end - 1 - begin));
  }
  str_free(&text);
}

/* Returns the step of the latest checkpoint, to which a link points; 0 if there is none. */
static uint64_t read_saved_step(const Watch *w) {
  char path[FILE_PATH_MAX], name[64];
  uint64_t step;
  if (file_join(path, w->dir, "checkpoints/latest")) return 0;
  ssize_t len = readlink(path, name, sizeof name - 1);
  if (len < 0) return 0;
  name[len] = '\0';
  return sscanf(name, "step-%15" SCNu64, &step) == 1 ? step : 0;
}

/* Returns the seconds since one of the run's files was written; infinite if there is none. */
static double get_silence(const Watch *w) {
  static const char *const names[] = {"metrics.jsonl", "system.jsonl", "log.txt"};
  struct timespec now;
  double least = INFINITY;
  clock_gettime(CLOCK_REALTIME, &now);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[FILE_PATH_MAX];
    struct stat s;
    if (file_join(path, w->dir, names[i]) || stat(path, &s) != 0) continue;
    double age = (double)(now.tv_sec - s.st_mtim.tv_sec) +
                 1e-9 * (double)(now.tv_nsec - s.st_mtim.tv_nsec);
    least = fmin(least, fmax(age, 0));
  }
  return least;
}

/* Returns the column with the most recent record of a step. */
static const RunColumn *find_steps(const RunLog *log) {
  const RunColumn *c = runlog_column(log, "nll");
  if (!c) c = runlog_column(log, "loss");
  return c ? c : log->column_count ? &log->columns[0] : NULL;
}

/* Sets step, elapsed and left. Hosts report the step once a second, metrics.jsonl only every
 * --log-every steps; but a host's last sample may be of a process that ended. */
static void measure_progress(Watch *w) {
  const RunColumn *c = find_steps(&w->log);
  w->step = 0;
  w->elapsed = 0;
  w->left = -1;
  if (c && c->points) {
    RunPoint last = runlog_point(&w->log, c, c->points - 1);
    size_t back = c->points > RATE_RECORDS ? c->points - 1 - RATE_RECORDS : 0;
    RunPoint first = runlog_point(&w->log, c, back);
    if (back == 0 && c->points < 3) first = (RunPoint){0};
    double rate = (double)(last.step - first.step) / (last.seconds - first.seconds);
    w->step = last.step;
    if (last.seconds >= 0 && last.seconds < MAX_SECONDS) w->elapsed = last.seconds;
    if (w->steps > last.step && isfinite(rate) && rate > 0)
      w->left = (double)(w->steps - last.step) / rate;
    if (w->left >= MAX_SECONDS) w->left = -1;
  }
  for (size_t i = 0; i < w->log.host_count && w->silence < WATCH_NEWS; i++) {
    const RunSeries *s = runlog_series(&w->log.hosts[i], "step");
    double step = s && s->points ? s->value[s->points - 1] : 0;
    if (step > (double)w->step && step < 1e15) w->step = (uint64_t)step;
  }
  /* Earlier versions did not record the last step if it was no multiple of --log-every. */
  if (read_saved_step(w) >= w->steps && w->step < w->steps) w->step = w->steps;
  if (w->step >= w->steps) w->left = -1;
}

static WatchState judge(const Watch *w) {
  if (!w->is_open) return WATCH_ABSENT;
  if (w->steps && w->step >= w->steps) return WATCH_COMPLETE;
  if (!w->log.column_count && !w->log.host_count) return WATCH_EMPTY;
  return w->silence < WATCH_NEWS ? WATCH_RUNNING : WATCH_SILENT;
}

Err watch_read(Watch *w) {
  bool is_there = file_is_dir(w->dir);
  if (w->is_open && !is_there) watch_close(w);
  if (!w->is_open && is_there) {
    Err err = runlog_open(&w->log, w->dir);
    if (err && file_is_dir(w->dir)) return err; /* else it was removed meanwhile */
    w->is_open = !err;
  }
  w->steps = 0;
  w->ranks = 0;
  w->device[0] = '\0';
  w->step = 0;
  w->left = -1;
  if (w->is_open) {
    TRY(runlog_read(&w->log));
    read_process(w);
    w->silence = get_silence(w);
    measure_progress(w);
  }
  w->state = judge(w);
  return ERR_OK;
}

/* Columns in the order in which the keys select them; others follow. */
static const char *const preferred[] = {"nll",
                                        "loss",
                                        "valid_nll",
                                        "valid_bleu",
                                        "valid_f1_macro",
                                        "valid_accuracy",
                                        "valid_auc",
                                        "valid_pearson",
                                        "valid_mae",
                                        "target_tokens_per_s",
                                        "tokens_per_s",
                                        "texts_per_s",
                                        "grad_norm",
                                        "lr",
                                        "perplexity",
                                        "accuracy",
                                        "tflops_per_s",
                                        "mfu"};
#define PREFERRED (sizeof preferred / sizeof *preferred)

static bool is_preferred(const char *name) {
  for (size_t i = 0; i < PREFERRED; i++)
    if (strcmp(name, preferred[i]) == 0) return true;
  return false;
}

/* Fills `list` with the columns in the order of selection; returns their number. */
static size_t order_columns(const Watch *w, const RunColumn *list[RUNLOG_COLUMNS]) {
  size_t n = 0;
  if (!w->is_open) return 0;
  for (size_t i = 0; i < PREFERRED; i++) {
    const RunColumn *c = runlog_column(&w->log, preferred[i]);
    if (c && c->points) list[n++] = c;
  }
  for (size_t i = 0; i < w->log.column_count && n < RUNLOG_COLUMNS; i++) {
    const RunColumn *c = &w->log.columns[i];
    if (c->points && !is_preferred(c->name)) list[n++] = c;
  }
  return n;
}

static size_t find_selected(const RunColumn *const *list, size_t n, const WatchView *view) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(list[i]->name, view->metric) == 0) return i;
  return 0;
}

const RunColumn *watch_column(const Watch *w, const WatchView *view) {
  const RunColumn *list[RUNLOG_COLUMNS];
  size_t n = order_columns(w, list);
  return n ? list[find_selected(list, n, view)] : NULL;
}

void watch_select(const Watch *w, WatchView *view, int direction) {
  const RunColumn *list[RUNLOG_COLUMNS];
  size_t n = order_columns(w, list);
  if (!n) return;
  size_t i = find_selected(list, n, view);
  i = direction > 0 ? (i + 1) % n : (i + n - 1) % n;
  memcpy(view->metric, list[i]->name, sizeof view->metric);
}
