/* Checks a file of `train --trace`: the trace-event format, that the spans of each thread nest,
 * that every rank has the same steps and collectives, every bucket in every step, and that the
 * clocks of the ranks agree.
 *   check_trace FILE [PROVE_US]
 *
 * Clocks. An all-reduce ends on no rank before it has begun on every rank. So rank r's clock is
 * ahead of rank 0's by at least max(start on r - end on 0) and at most min(end on r - start on 0).
 * It is an error if this interval is more than 100 us (or the error that the file states, if that
 * is larger) away from 0. With PROVE_US the all-reduces must also prove that the clocks differ by
 * less; if they are too slow for that, the exit status is 3. Depends on Jansson. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_LIMIT 100e3 /* ns by which clocks may contradict the order of events */
#define BUCKETS     4096

typedef struct {
  const char *name;
  int64_t start, end; /* ns */
  int pid, tid;
  int64_t step, collective, bucket, bytes; /* -1: not given */
} Span;

static Span *spans;
static size_t count;
static int ranks;

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  fprintf(stderr, "check_trace: ");
  vfprintf(stderr, fmt, args);
  fprintf(stderr, "\n");
  va_end(args);
  exit(1);
}

static const json_t *need(const json_t *object, const char *key, size_t i) {
  const json_t *value = json_object_get(object, key);
  if (!value) fail("event %zu has no \"%s\"", i, key);
  return value;
}

static double need_number(const json_t *object, const char *key, size_t i) {
  const json_t *value = need(object, key, i);
  if (!json_is_number(value)) fail("event %zu: \"%s\" is not a number", i, key);
  return json_number_value(value);
}

static int need_id(const json_t *object, const char *key, size_t i) {
  const json_t *value = need(object, key, i);
  if (!json_is_integer(value) || json_integer_value(value) < 0 ||
      json_integer_value(value) > 65535)
    fail("event %zu: \"%s\" is not an id", i, key);
  return (int)json_integer_value(value);
}

static int64_t get_arg(const json_t *args, const char *key) {
  const json_t *value = json_object_get(args, key);
  return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

static bool is_named[65536][8]; /* pid, tid: has a thread_name */
static bool is_process[65536];

static void read_metadata(const json_t *e, size_t i) {
  static const char *const known[] = {"process_name", "thread_name", "process_sort_index",
                                      "thread_sort_index"};
  const char *name = json_string_value(need(e, "name", i));
  const json_t *args = need(e, "args", i);
  int pid = need_id(e, "pid", i), tid = need_id(e, "tid", i);
  bool is_known = false;
  for (size_t k = 0; k < sizeof known / sizeof *known; k++)
    if (name && strcmp(name, known[k]) == 0) is_known = true;
  if (!is_known) fail("event %zu: metadata \"%s\" is not known", i, name ? name : "");
  bool is_name = strstr(name, "_name") != NULL;
  const json_t *value = json_object_get(args, is_name ? "name" : "sort_index");
  if (is_name ? !json_is_string(value) : !json_is_integer(value))
    fail("event %zu: %s without its value", i, name);
  if (strcmp(name, "process_name") == 0) is_process[pid] = true;
  if (strcmp(name, "thread_name") == 0 && tid < 8) is_named[pid][tid] = true;
}

static void read_span(const json_t *e, size_t i) {
  const json_t *args = need(e, "args", i);
  double ts = need_number(e, "ts", i), length = need_number(e, "dur", i);
  if (!isfinite(ts) || !isfinite(length) || ts < 0 || length < 0)
    fail("event %zu: time %g, length %g", i, ts, length);
  if (!json_is_object(args)) fail("event %zu: \"args\" is not an object", i);
  const char *name = json_string_value(need(e, "name", i));
  if (!name || !*name) fail("event %zu has no name", i);
  Span *s = &spans[count++];
  *s = (Span){.name = name,
              .start = llround(ts * 1e3),
              .pid = need_id(e, "pid", i),
              .tid = need_id(e, "tid", i),
              .step = get_arg(args, "step"),
              .collective = get_arg(args, "collective"),
              .bucket = get_arg(args, "bucket"),
              .bytes = get_arg(args, "bytes")};
  s->end = s->start + llround(length * 1e3);
  if (s->tid >= 8) fail("event %zu: thread %d", i, s->tid);
  if (s->bucket >= BUCKETS) fail("event %zu: bucket %" PRId64, i, s->bucket);
}

static void read_events(const json_t *events) {
  size_t n = json_array_size(events);
  if (!json_is_array(events) || !n) fail("no \"traceEvents\"");
  spans = calloc(n, sizeof *spans);
  if (!spans) fail("out of memory");
  for (size_t i = 0; i < n; i++) {
    const json_t *e = json_array_get(events, i);
    const char *phase = json_string_value(need(e, "ph", i));
    if (phase && strcmp(phase, "M") == 0)
      read_metadata(e, i);
    else if (phase && strcmp(phase, "X") == 0)
      read_span(e, i);
    else
      fail("event %zu: phase \"%s\" is not known", i, phase ? phase : "");
  }
  for (size_t i = 0; i < count; i++) {
    if (!is_process[spans[i].pid] || !is_named[spans[i].pid][spans[i].tid])
      fail("'%s': process %d or thread %d has no name", spans[i].name, spans[i].pid,
           spans[i].tid);
    if (spans[i].pid >= ranks) ranks = spans[i].pid + 1;
  }
}

/* Orders by thread, then by start; of spans that start together the longer is outside. */
static int compare(const void *x, const void *y) {
  const Span *a = x, *b = y;
  if (a->pid != b->pid) return a->pid < b->pid ? -1 : 1;
  if (a->tid != b->tid) return a->tid < b->tid ? -1 : 1;
  if (a->start != b->start) return a->start < b->start ? -1 : 1;
  if (a->end != b->end) return a->end > b->end ? -1 : 1;
  return 0;
}

static void check_nesting(void) {
  enum { DEPTH = 64 };
  const Span *open[DEPTH];
  int depth = 0;
  for (size_t i = 0; i < count; i++) {
    const Span *s = &spans[i];
    if (i && (s->pid != s[-1].pid || s->tid != s[-1].tid)) depth = 0;
    while (depth && open[depth - 1]->end <= s->start) depth--;
    if (depth && s->end > open[depth - 1]->end)
      fail("rank %d, thread %d: '%s' (%" PRId64 " to %" PRId64
           " ns) begins inside '%s' and ends after it (%" PRId64 " ns)",
           s->pid, s->tid, s->name, s->start, s->end, open[depth - 1]->name,
           open[depth - 1]->end);
    if (depth == DEPTH) fail("spans nest too deep");
    open[depth++] = s;
  }
}

static bool is_step(const Span *s) {
  return strncmp(s->name, "step ", 5) == 0;
}

/* Counts how often each bucket was reduced within a step of a rank. */
static void count_buckets(const Span *step, int *times) {
  memset(times, 0, BUCKETS * sizeof *times);
  for (size_t i = 0; i < count; i++) {
    const Span *s = &spans[i];
    if (s->pid == step->pid && s->bucket >= 0 && s->start >= step->start && s->end <= step->end)
      times[s->bucket]++;
  }
}

/* Every rank has the same steps, and in each of them reduces the same buckets, each as often as
 * the others. */
static void check_steps(int64_t first, int64_t steps, int *buckets) {
  static int times[BUCKETS], expected[BUCKETS];
  *buckets = -1;
  for (int r = 0; r < ranks; r++) {
    int64_t next = first;
    for (size_t i = 0; i < count; i++) {
      const Span *s = &spans[i];
      if (s->pid != r || !is_step(s)) continue;
      if (s->step != next)
        fail("rank %d: step %" PRId64 " follows step %" PRId64, r, s->step, next - 1);
      next++;
      count_buckets(s, times);
      if (*buckets < 0) {
        memcpy(expected, times, sizeof expected);
        for (*buckets = 0; *buckets < BUCKETS && expected[*buckets];) ++*buckets;
      }
      for (int b = 0; b < BUCKETS; b++)
        if (times[b] != expected[b] || (times[b] && times[b] != times[0]))
          fail("rank %d, step %" PRId64 ": bucket %d was reduced %d times", r, s->step, b,
               times[b]);
    }
    if (next != first + steps)
      fail("rank %d has %" PRId64 " steps, not %" PRId64, r, next - first, steps);
  }
}

static const Span *find_collective(int rank, int64_t number) {
  for (size_t i = 0; i < count; i++)
    if (spans[i].pid == rank && spans[i].collective == number) return &spans[i];
  return NULL;
}

/* Compares the collectives of rank r with those of rank 0, and narrows the interval in which
 * the difference of their clocks (rank r - rank 0, ns) must be. */
static void compare_rank(int r, double *least, double *most, int *used) {
  size_t mine = 0, theirs = 0;
  for (size_t i = 0; i < count; i++) {
    const Span *a = &spans[i];
    if (a->collective < 0) continue;
    if (a->pid == r) theirs++;
    if (a->pid != 0) continue;
    mine++;
    const Span *b = find_collective(r, a->collective);
    if (!b) fail("rank %d has no collective %" PRId64 " ('%s')", r, a->collective, a->name);
    if (strcmp(a->name, b->name) != 0 || a->bytes != b->bytes)
      fail("collective %" PRId64 " is '%s' on rank 0 and '%s' on rank %d", a->collective,
           a->name, b->name, r);
    if (strncmp(a->name, "all-reduce", 10) != 0) continue;
    *most = fmin(*most, (double)(b->end - a->start));
    *least = fmax(*least, (double)(b->start - a->end));
    ++*used;
  }
  if (mine != theirs) fail("rank 0 has %zu collectives, rank %d has %zu", mine, r, theirs);
}

/* Returns true if NCCL reduces the gradients, and sums the losses with them. */
static bool queues_buckets(void) {
  for (size_t i = 0; i < count; i++)
    if (strncmp(spans[i].name, "queue all-reduce bucket", 23) == 0 ||
        strncmp(spans[i].name, "queue reduce-scatter bucket", 27) == 0)
      return true;
  return false;
}

/* Returns false if the all-reduces do not prove that the clocks differ by less than `prove`. */
static bool check_clocks(const json_t *list, double prove) {
  bool is_proven = true;
  for (int r = 1; r < ranks; r++) {
    double least = -INFINITY, most = INFINITY;
    int used = 0;
    const json_t *about = json_array_get(list, (size_t)r);
    double error = json_number_value(json_object_get(about, "clock_error_us"));
    double offset = json_number_value(json_object_get(about, "clock_offset_us"));
    double limit = fmax(CLOCK_LIMIT, 1e3 * error);
    compare_rank(r, &least, &most, &used);
    if (!used && queues_buckets()) { /* the host has no collectives, whose times are compared */
      printf("clock of rank %d: offset %.1f us, error at most %.1f us\n", r, offset, error);
      if (isfinite(prove)) is_proven = false;
      continue;
    }
    if (!used) fail("no all-reduce on rank %d", r);
    printf(
        "clock of rank %d: offset %.1f us, error at most %.1f us; by %d all-reduces it is "
        "%.1f to %.1f us ahead of rank 0\n",
        r, offset, error, used, 1e-3 * least, 1e-3 * most);
    if (least > limit || most < -limit)
      fail("the clock of rank %d contradicts the order of the all-reduces", r);
    if (least < -prove || most > prove) is_proven = false;
  }
  return is_proven;
}

/* Prints how much of the steps of each rank is inside a span below "step". */
static void print_coverage(void) {
  for (int r = 0; r < ranks; r++) {
    int64_t total = 0, named = 0, until = 0;
    const Span *step = NULL;
    for (size_t i = 0; i < count; i++) {
      const Span *s = &spans[i];
      if (s->pid != r || s->tid != 0) continue;
      if (is_step(s)) {
        step = s;
        until = s->start;
        total += s->end - s->start;
      } else if (step && s->start >= until && s->end <= step->end) {
        named += s->end - s->start;
        until = s->end;
      }
    }
    printf("rank %d: %.1f ms of steps, %.1f %% of them in a named part\n", r,
           1e-6 * (double)total, total ? 100 * (double)named / (double)total : 0);
  }
}

int main(int argc, char **argv) {
  json_error_t wrong;
  if (argc < 2) fail("usage: check_trace FILE [PROVE_US]");
  double prove = argc > 2 ? 1e3 * atof(argv[2]) : INFINITY;
  json_t *doc = json_load_file(argv[1], JSON_REJECT_DUPLICATES, &wrong);
  if (!doc) fail("%s:%d: %s", argv[1], wrong.line, wrong.text);
  const json_t *about = json_object_get(doc, "otherData");
  int64_t first = get_arg(about, "first_step"), steps = get_arg(about, "steps");
  int buckets;
  read_events(json_object_get(doc, "traceEvents"));
  qsort(spans, count, sizeof *spans, compare);
  check_nesting();
  check_steps(first, steps, &buckets);
  const json_t *list = json_object_get(about, "ranks");
  if ((size_t)ranks != json_array_size(list))
    fail("%d ranks have spans, %zu are listed", ranks, json_array_size(list));
  bool is_proven = check_clocks(list, prove);
  print_coverage();
  printf("%d ranks, steps %" PRId64 " to %" PRId64 ", %zu spans, %d buckets per step\n", ranks,
         first, first + steps - 1, count, buckets);
  free(spans);
  json_decref(doc);
  return is_proven ? 0 : 3;
}
