/* Samples of system.jsonl: series by host and name. Depends on base, nameindex, scan. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "monitor/runlog_internal.h"

#define VALUES 1024 /* most values of a sample; further ones are ignored */

typedef struct RunReading {
  char name[RUNLOG_NAME];
  double value;
  char text[RUNLOG_NAME]; /* not empty: a text and no number */
} Reading;

/* Path of the names of the objects and arrays that are open. */
typedef struct {
  size_t len[SCAN_DEPTH + 2];     /* of the path at each depth, and of a value at the deepest */
  uint32_t index[SCAN_DEPTH + 1]; /* next item of the array at each depth */
  char text[RUNLOG_NAME];
  bool is_cut; /* it did not fit: values below it are ignored */
} Path;

typedef struct {
  double time;
  char host[256];
  uint32_t cores;
  double cpu_sum, cpu_max;
  Path path;
  size_t values;
  Reading *value; /* VALUES of them */
} Sample;

static void free_host(RunHost *host) {
  for (size_t i = 0; i < host->series_count; i++) {
    mem_free(host->series[i].time);
    mem_free(host->series[i].value);
  }
  mem_free(host->series);
  mem_free(host->texts);
  nameindex_free(&host->series_index);
  nameindex_free(&host->text_index);
}

void runlog_drop_hosts(RunLog *log) {
  for (size_t i = 0; i < log->host_count; i++) free_host(&log->hosts[i]);
  log->host_count = 0;
  nameindex_free(&log->host_index);
  log->left_out_host[0] = 0;
  log->left_out_series[0] = 0;
}

const RunSeries *runlog_series(const RunHost *host, const char *name) {
  for (size_t i = 0; i < host->series_count; i++)
    if (strcmp(host->series[i].name, name) == 0)
      return host->series[i].points ? &host->series[i] : NULL;
  return NULL;
}

const char *runlog_text(const RunHost *host, const char *name) {
  for (size_t i = 0; i < host->text_count; i++)
    if (strcmp(host->texts[i].name, name) == 0) return host->texts[i].text;
  return NULL;
}

/* Appends "/name" to the path of depth `depth` and stores its length as that of depth + 1. */
static void enter_path(Path *p, int depth, const char *name, size_t len) {
  size_t at = p->len[depth];
  bool has_parent = at > 0;
  size_t begin = at + (has_parent ? 1 : 0);
  if (p->is_cut || begin + len >= sizeof p->text ||
      !scan_copy_name(p->text + begin, sizeof p->text - begin, name, len)) {
    p->is_cut = true;
    return;
  }
  if (has_parent) p->text[at] = '/';
  p->len[depth + 1] = begin + len;
}

/* Enters the path of the scanned value, which lies at `depth`. */
static void enter_value(Path *p, const Scan *scan, int depth) {
  char index[16];
  p->is_cut = false;
  if (scan->key) {
    enter_path(p, depth, scan->key, scan->key_len);
    return;
  }
  int len = snprintf(index, sizeof index, "%u", p->index[depth]++);
  enter_path(p, depth, index, (size_t)len);
}

static void add_reading(Sample *s, int depth, double value, const char *text, size_t len) {
  if (s->path.is_cut || s->values == VALUES) return;
  Reading *r = &s->value[s->values];
  size_t path = s->path.len[depth + 1];
  memcpy(r->name, s->path.text, path);
  r->name[path] = 0;
  r->value = value;
  r->text[0] = 0;
  if (text) scan_unescape(text, len, r->text, sizeof r->text);
  s->values++;
}

/* Reads the list of cores: mean and maximum are kept, as machines have hundreds of cores. */
static bool read_cores(Scan *scan, Sample *s) {
  for (;;) {
    ScanKind kind = scan_next(scan);
    if (kind == SCAN_CLOSE && scan->depth == 1) return true;
    if (kind == SCAN_ERROR || kind == SCAN_END) return false;
    if (kind == SCAN_OPEN && !scan_skip(scan)) return false;
    if (kind != SCAN_NUMBER) continue;
    s->cores++;
    s->cpu_sum += scan->number;
    s->cpu_max = scan->number > s->cpu_max ? scan->number : s->cpu_max;
  }
}

static void read_text(const Scan *scan, Sample *s) {
  int depth = scan->depth;
  if (depth == 1 && scan_key_is(scan, "host")) {
    scan_unescape(scan->text, scan->text_len, s->host, sizeof s->host);
    return;
  }
  s->path.is_cut = false;
  if (scan->key) {
    enter_value(&s->path, scan, depth);
    add_reading(s, depth, 0, scan->text, scan->text_len);
  } else {
    enter_path(&s->path, depth, scan->text, scan->text_len);
    add_reading(s, depth, 1, NULL, 0);
  }
}

/* Reads a line into a sample. Returns false if the line is damaged. */
static bool read_sample(Scan *scan, Sample *s) {
  for (;;) {
    switch (scan_next(scan)) {
      case SCAN_NUMBER:
        if (scan->depth == 1 && scan_key_is(scan, "time")) {
          s->time = scan->number;
          break;
        }
        enter_value(&s->path, scan, scan->depth);
        add_reading(s, scan->depth, scan->number, NULL, 0);
        break;
      case SCAN_TEXT:
        read_text(scan, s);
        break;
      case SCAN_OPEN:
        if (scan->depth == 1) break;
        if (scan->depth == 2 && scan_key_is(scan, "cpu")) {
          if (!read_cores(scan, s)) return false;
          break;
        }
        enter_value(&s->path, scan, scan->depth - 1);
        s->path.index[scan->depth] = 0;
        if (s->path.is_cut && !scan_skip(scan)) return false;
        break;
      case SCAN_ERROR:
        return false;
      case SCAN_END:
        if (s->host[0] && isfinite(s->time)) return true;
        scan->why = "the sample has no host or no time";
        return false;
      case SCAN_OTHER:
      case SCAN_CLOSE:
        break;
    }
  }
}

/* Finds or adds a host. *host is NULL if there are too many. */
static Err find_host(RunLog *log, const char *name, RunHost **host) {
  size_t count = log->host_count;
  size_t found =
      nameindex_find(&log->host_index, log->hosts, sizeof *log->hosts, name, strlen(name));
  *host = found == NAMEINDEX_NONE ? NULL : &log->hosts[found];
  if (*host) return ERR_OK;
  if (count == RUNLOG_HOSTS) {
    if (!log->left_out_host[0])
      snprintf(log->left_out_host, sizeof log->left_out_host, "%s", name);
    return ERR_OK;
  }
  TRY(mem_grow(&log->hosts, &log->host_capacity, count + 1, sizeof **host));
  log->hosts[count] = (RunHost){0};
  snprintf(log->hosts[count].name, sizeof log->hosts[count].name, "%s", name);
  TRY(nameindex_add(&log->host_index, log->hosts, sizeof *log->hosts, count));
  log->host_count++;
  *host = &log->hosts[count];
  return ERR_OK;
}

static void note_left_out(RunLog *log, const RunHost *host, const char *name) {
  if (log->left_out_series[0]) return;
  memcpy(log->left_out_series, name, RUNLOG_NAME);
  memcpy(log->left_out_series_host, host->name, sizeof host->name);
}

/* Finds or adds a series. *series is NULL if the host has too many. */
static Err find_series(RunLog *log, RunHost *host, const char *name, RunSeries **series) {
  size_t count = host->series_count;
  size_t found = nameindex_find(&host->series_index, host->series, sizeof *host->series, name,
                                strlen(name));
  *series = found == NAMEINDEX_NONE ? NULL : &host->series[found];
  if (*series) return ERR_OK;
  if (count == RUNLOG_COLUMNS) {
    note_left_out(log, host, name);
    return ERR_OK;
  }
  TRY(mem_grow(&host->series, &host->series_capacity, count + 1, sizeof **series));
  host->series[count] = (RunSeries){.stride = 1};
  memcpy(host->series[count].name, name, RUNLOG_NAME);
  TRY(nameindex_add(&host->series_index, host->series, sizeof *host->series, count));
  host->series_count++;
  *series = &host->series[count];
  return ERR_OK;
}

/* Replaces each two points by their mean. */
static void halve_series(RunSeries *s) {
  for (size_t i = 0; i < s->points / 2; i++) {
    s->time[i] = (s->time[2 * i] + s->time[2 * i + 1]) / 2;
    s->value[i] = (s->value[2 * i] + s->value[2 * i + 1]) / 2;
  }
  s->points /= 2;
  s->stride *= 2;
}

static Err add_sample(RunLog *log, RunSeries *s, double time, double value) {
  s->time_sum += time;
  s->value_sum += value;
  if (++s->pending < s->stride) return ERR_OK;
  TRY(mem_grow(&s->time, &s->time_capacity, s->points + 1, sizeof *s->time));
  TRY(mem_grow(&s->value, &s->value_capacity, s->points + 1, sizeof *s->value));
  s->time[s->points] = s->time_sum / s->pending;
  s->value[s->points] = s->value_sum / s->pending;
  s->points++;
  s->pending = 0;
  s->time_sum = 0;
  s->value_sum = 0;
  if (s->points < RUNLOG_SAMPLES || s->stride > UINT32_MAX / 2) return ERR_OK;
  halve_series(s);
  log->revision++;
  return ERR_OK;
}

static Err set_text(RunLog *log, RunHost *host, const Reading *r) {
  size_t count = host->text_count;
  size_t i = nameindex_find(&host->text_index, host->texts, sizeof *host->texts, r->name,
                            strlen(r->name));
  if (i == NAMEINDEX_NONE && count == RUNLOG_COLUMNS) {
    note_left_out(log, host, r->name);
    return ERR_OK;
  }
  if (i == NAMEINDEX_NONE) {
    i = count;
    TRY(mem_grow(&host->texts, &host->text_capacity, count + 1, sizeof *host->texts));
    memcpy(host->texts[i].name, r->name, sizeof r->name);
    TRY(nameindex_add(&host->text_index, host->texts, sizeof *host->texts, count));
    host->text_count++;
  }
  memcpy(host->texts[i].text, r->text, sizeof r->text);
  return ERR_OK;
}

static Err add_value(RunLog *log, RunHost *host, const Reading *r, double time) {
  RunSeries *series;
  if (r->text[0]) return set_text(log, host, r);
  TRY(find_series(log, host, r->name, &series));
  return series ? add_sample(log, series, time, r->value) : ERR_OK;
}

static Err store_sample(RunLog *log, const Sample *s) {
  RunHost *host;
  TRY(find_host(log, s->host, &host));
  if (!host) return ERR_OK;
  if (host->samples++ == 0) host->first_time = s->time;
  host->last_time = s->time;
  if (s->cores > 0) {
    host->cores = s->cores;
    Reading mean = {.name = "cpu", .value = s->cpu_sum / s->cores};
    Reading max = {.name = "cpu_max", .value = s->cpu_max};
    TRY(add_value(log, host, &mean, s->time));
    TRY(add_value(log, host, &max, s->time));
  }
  for (size_t i = 0; i < s->values; i++) TRY(add_value(log, host, &s->value[i], s->time));
  return ERR_OK;
}

LineResult runlog_take_sample(RunLog *log, Scan *scan) {
  if (!log->readings && mem_alloc(&log->readings, VALUES, sizeof *log->readings))
    return LINE_FAILED;
  Sample s = {.time = NAN, .value = log->readings};
  if (!read_sample(scan, &s)) return LINE_DAMAGED;
  return store_sample(log, &s) ? LINE_FAILED : LINE_TAKEN;
}
