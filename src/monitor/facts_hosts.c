/* Use of hosts and ranks: busy devices, energy, network cards, times of each rank. Depends on
 * runlog, trend. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "monitor/facts_internal.h"
#include "monitor/trend.h"

#define LONGEST_GAP 10.0 /* seconds between two samples beyond which nothing is known */

/* Sum and number of the values of all series that match; their mean is sum / count. */
typedef struct {
  double sum, count;
} Sum;

static void add_series(Sum *sum, const RunSeries *s) {
  for (size_t i = 0; s && i < s->points; i++) {
    sum->sum += s->value[i];
    sum->count++;
  }
}

static double get_mean(const Sum *sum) {
  return sum->count > 0 ? sum->sum / sum->count : NAN;
}

/* Integrates power over time (trapezoids), without gaps. *covered: the seconds that were counted. */
static double integrate(const RunSeries *s, double *covered) {
  double joules = 0;
  double longest = LONGEST_GAP * s->stride;
  *covered = 0;
  for (size_t i = 1; i < s->points; i++) {
    double dt = s->time[i] - s->time[i - 1];
    if (!(dt > 0 && dt <= longest)) continue;
    joules += dt * (s->value[i] + s->value[i - 1]) / 2;
    *covered += dt;
  }
  return joules;
}

static void add_energy(RunFacts *f, double *joules, const RunSeries *s) {
  double covered;
  if (!s) return;
  double part = integrate(s, &covered);
  *joules = isnan(*joules) ? part : *joules + part;
  if (!(f->sampled_seconds >= covered)) f->sampled_seconds = covered;
}

static const RunSeries *get_gpu_series(const RunHost *h, size_t gpu, const char *name) {
  char key[RUNLOG_NAME];
  snprintf(key, sizeof key, "gpu/%zu/%s", gpu, name);
  return runlog_series(h, key);
}

static double get_max(const RunSeries *s) {
  double max = NAN;
  for (size_t i = 0; s && i < s->points; i++)
    if (!(max >= s->value[i])) max = s->value[i];
  return max;
}

static double larger(double a, double b) {
  return isnan(a) || b > a ? b : a;
}

#define GPUS 512 /* most GPUs of all hosts that are told apart */

/* Means of one GPU. */
typedef struct {
  double busy, watts, limit;
  double throttled; /* share of the samples */
} GpuUse;

typedef struct {
  GpuUse list[GPUS];
  size_t count;
} Gpus;

static double get_series_mean(const RunSeries *s) {
  Sum sum = {0};
  add_series(&sum, s);
  return get_mean(&sum);
}

/* Returns the share of the samples in which a reason lowered the clocks. "idle" is none. */
static double get_throttled(const RunHost *h, size_t gpu) {
  char prefix[RUNLOG_NAME];
  double most = 0;
  snprintf(prefix, sizeof prefix, "gpu/%zu/throttle/", gpu);
  for (size_t i = 0; i < h->series_count; i++) {
    const RunSeries *s = &h->series[i];
    if (!str_starts(s->name, prefix) || strstr(s->name, "idle")) continue;
    most = fmax(most, (double)s->points * s->stride);
  }
  return fmin(most / (double)h->samples, 1);
}

static void list_gpus(RunFacts *f, const RunHost *h, Gpus *gpus) {
  for (size_t gpu = 0; gpus->count < GPUS; gpu++) {
    const RunSeries *busy = get_gpu_series(h, gpu, "busy");
    const RunSeries *watts = get_gpu_series(h, gpu, "watts");
    const RunSeries *memory = get_gpu_series(h, gpu, "memory_used");
    if (!busy && !watts && !memory) break;
    gpus->list[gpus->count++] =
        (GpuUse){.busy = get_series_mean(busy),
                 .watts = get_series_mean(watts),
                 .limit = get_series_mean(get_gpu_series(h, gpu, "watts_limit")),
                 .throttled = get_throttled(h, gpu)};
    add_energy(f, &f->gpu_joules, watts);
    f->gpu_memory_used = larger(f->gpu_memory_used, get_max(memory));
    f->gpu_memory_total =
        larger(f->gpu_memory_total, get_max(get_gpu_series(h, gpu, "memory_total")));
    char key[RUNLOG_NAME];
    snprintf(key, sizeof key, "gpu/%zu/name", gpu);
    const char *name = runlog_text(h, key);
    if (name) snprintf(f->gpu_name, sizeof f->gpu_name, "%s", name);
  }
}

/* Sorts the busiest first; GPUs of unknown use come last. */
static int compare_gpus(const void *a, const void *b) {
  const GpuUse *left = a, *right = b;
  double x = isnan(left->busy) ? -1 : left->busy, y = isnan(right->busy) ? -1 : right->busy;
  return (x < y) - (x > y);
}

static void add_value(Sum *sum, double value) {
  if (isnan(value)) return;
  sum->sum += value;
  sum->count++;
}

/* Means over the GPUs of the run. Hosts may have more GPUs than the run has ranks: the busiest ones
 * count, one per rank. */
static void sum_gpus(RunFacts *f, Gpus *gpus) {
  Sum busy = {0}, watts = {0}, limit = {0}, throttled = {0};
  size_t used = gpus->count;
  if (used == 0) return;
  f->gpus = (double)used;
  qsort(gpus->list, used, sizeof *gpus->list, compare_gpus);
  if (f->ranks < (double)used) used = (size_t)f->ranks;
  for (size_t i = 0; i < used; i++) {
    add_value(&busy, gpus->list[i].busy);
    add_value(&watts, gpus->list[i].watts);
    add_value(&limit, gpus->list[i].limit);
    add_value(&throttled, gpus->list[i].throttled);
  }
  f->gpus_used = (double)used;
  f->gpu_busy = get_mean(&busy);
  f->gpu_watts = get_mean(&watts);
  f->gpu_watts_limit = get_mean(&limit);
  f->gpu_throttled = get_mean(&throttled);
}

/* Compares a card with the busiest one so far. */
static void compare_card(RunFacts *f, const RunHost *h, const char *card) {
  char key[3][2 * RUNLOG_NAME];
  static const char *const names[] = {"sent", "received", "speed"};
  const RunSeries *series[3];
  for (int i = 0; i < 3; i++) {
    snprintf(key[i], sizeof key[i], "net/%s/%s", card, names[i]);
    series[i] = runlog_series(h, key[i]);
  }
  CardUse use = {.sent = get_series_mean(series[0]), .received = get_series_mean(series[1])};
  double most = larger(use.sent, use.received);
  if (isnan(most) || most <= larger(f->card.sent, f->card.received)) return;
  const RunSeries *busier = use.received > use.sent ? series[1] : series[0];
  use.peak = busier ? trend_quantile(busier->value, busier->points, 0.95) : NAN;
  use.speed = get_max(series[2]) * 125000; /* Mbit/s to bytes per second */
  snprintf(use.host, sizeof use.host, "%.63s", h->name);
  snprintf(use.card, sizeof use.card, "%s", card);
  f->card = use;
}

/* The loopback does not count: it is no network. */
static void find_busiest_card(RunFacts *f, const RunHost *h) {
  for (size_t i = 0; i < h->series_count; i++) {
    const char *name = h->series[i].name;
    if (!str_starts(name, "net/") || !str_ends(name, "/sent")) continue;
    char card[RUNLOG_NAME];
    snprintf(card, sizeof card, "%.*s", (int)(strlen(name) - strlen("net/") - strlen("/sent")),
             name + strlen("net/"));
    if (strcmp(card, "lo") != 0) compare_card(f, h, card);
  }
}

void facts_sum_hosts(RunFacts *f) {
  Gpus gpus = {0};
  Sum cpu = {0};
  double first = INFINITY, last = -INFINITY;
  for (size_t i = 0; i < f->log.host_count; i++) {
    const RunHost *h = &f->log.hosts[i];
    add_series(&cpu, runlog_series(h, "cpu"));
    if (h->cores) f->cores = isnan(f->cores) ? h->cores : f->cores + h->cores;
    add_energy(f, &f->cpu_joules, runlog_series(h, "watts_cpu"));
    list_gpus(f, h, &gpus);
    find_busiest_card(f, h);
    first = fmin(first, h->first_time);
    last = fmax(last, h->last_time);
  }
  f->cpu_busy = get_mean(&cpu);
  sum_gpus(f, &gpus);
  if (last > first) f->wall_seconds = last - first;
  if (isnan(f->hosts) && f->log.host_count) f->hosts = (double)f->log.host_count;
}

/* Returns true for a "ranks" event of the present ranks whose step was not undone. */
static bool is_ranks_record(const RunFacts *f, const RunEvent *e) {
  return !e->is_undone && (double)e->step > f->since_step && strcmp(e->kind, "ranks") == 0;
}

/* Finds the last "ranks" event: it has the latest number of ranks. */
static const RunEvent *find_last_ranks(const RunFacts *f) {
  for (size_t i = f->log.event_count; i-- > 0;)
    if (is_ranks_record(f, &f->log.events[i])) return &f->log.events[i];
  return NULL;
}

/* Adds the times of a record to sum (3, ranks). Returns false if it has another number of ranks, or not
 * all three times. */
static bool add_record(const RunEvent *e, double *sum, size_t ranks) {
  static const char *const names[3] = {"rank_ms", "rank_wait_ms", "rank_data_ms"};
  double values[3][FACTS_RANKS];
  for (int i = 0; i < 3; i++)
    if (runlog_event_numbers(e, names[i], values[i], FACTS_RANKS) != ranks) return false;
  for (int i = 0; i < 3; i++)
    for (size_t r = 0; r < ranks; r++) sum[(size_t)i * ranks + r] += values[i][r];
  return true;
}

static void set_times(RunFacts *f, const RunEvent *last, const double *sum, double records) {
  size_t n = f->rank_count;
  for (size_t r = 0; r < n; r++) {
    RankTimes *t = &f->rank[r];
    t->total = sum[r] / records;
    t->wait = sum[n + r] / records;
    t->data = sum[2 * n + r] / records;
    t->work = fmax(t->total - t->wait - t->data, 0);
    if (!runlog_event_item(last, "hosts", r, t->host, sizeof t->host)) t->host[0] = 0;
  }
}

Err facts_sum_ranks(RunFacts *f) {
  double values[FACTS_RANKS], records = 0, *sum;
  const RunEvent *last = find_last_ranks(f);
  if (!last) return ERR_OK;
  size_t n = runlog_event_numbers(last, "rank_ms", values, FACTS_RANKS), seen = 0, skipped = 0;
  bool is_of_others = !isnan(f->ranks) && (double)n != fmin(f->ranks, FACTS_RANKS);
  if (n == 0 || is_of_others) return ERR_OK;
  for (size_t i = 0; i < f->log.event_count; i++) seen += is_ranks_record(f, &f->log.events[i]);
  TRY(mem_alloc(&f->rank, n, sizeof *f->rank));
  TRY(mem_alloc(&sum, 3 * n, sizeof *sum));
  for (size_t i = 0; i < f->log.event_count; i++) {
    const RunEvent *e = &f->log.events[i];
    if (!is_ranks_record(f, e)) continue;
    /* Like the times of rank 0, without the first of four or more records: it contains the start. */
    if (seen >= 4 && skipped++ == 0) continue;
    if (add_record(e, sum, n)) records++;
  }
  if (records > 0) f->rank_count = n;
  if (records > 0) set_times(f, last, sum, records);
  mem_free(sum);
  if (isnan(f->ranks)) f->ranks = (double)n;
  return ERR_OK;
}
