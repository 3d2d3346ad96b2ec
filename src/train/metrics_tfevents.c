/* Writes RUN/events.out.tfevents.*, which TensorBoard shows. Each process of a run writes a file
 * of its own. A file begins with the version of the format and a session start, at which readers
 * discard the steps that this process trains again; a roll-back writes another session start.
 * Tags and files are described in docs/monitoring.md and docs/formats.md. Depends on format/tfevents,
 * base. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "format/tfevents.h"
#include "train/metrics_sink.h"

#define PREFIX "events.out.tfevents."

/* Second tags, for users of OpenSeq2Seq. */
static const struct {
  const char *name, *tag;
} aliases[] = {
    {"loss", "train_loss"},
    {"lr", "learning_rate"},
    {"grad_norm", "Loss_Optimization/global_gradient_norm"},
    {"loss_scale", "loss_scale"},
    {"steps_per_s", "global_step/sec"},
    {"epoch", "epoch"},
    {"valid_nll", "eval_loss"},
    {"valid_bleu", "Eval_BLEU_Score"},
};
#define ALIASES (sizeof aliases / sizeof *aliases)

typedef struct {
  LineFile file;
  Str header;         /* the first records of the file; empty once they are written */
  Str out;            /* the record that is being written */
  uint64_t step;      /* the step at which this process began */
  Str written;        /* tags that earlier files have at `step`, each ends with NUL */
  bool has_start;     /* earlier files have a session start */
  bool has_hparams;   /* earlier files have the hyperparameters */
  uint64_t last_time; /* the latest time in the name of an earlier file */
} TfeventsSink;

static double get_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Earlier files. A validation may be repeated at the step at which the run resumes, if its
 * process was killed before the result was in the checkpoint. Its values are in the earlier file
 * and are not written again, because readers would see the step twice. */

/* Returns true if an earlier file has the tag at this step. */
static bool is_repeated(const TfeventsSink *s, uint64_t step, const char *tag) {
  if (step != s->step) return false;
  for (size_t at = 0; at < s->written.len; at += strlen(s->written.s + at) + 1)
    if (strcmp(s->written.s + at, tag) == 0) return true;
  return false;
}

static Err note_event(void *context, const TfEvent *event) {
  TfeventsSink *s = context;
  TfValue v;
  if (event->is_start) {
    bool is_undone = s->has_start && event->step <= (int64_t)s->step;
    if (is_undone) str_clear(&s->written);
    s->has_start = true;
  }
  for (size_t at = 0; tfevents_next_value(event, &at, &v);) {
    if (v.tag_len == strlen(TFEVENTS_HPARAMS_TAG) &&
        memcmp(v.tag, TFEVENTS_HPARAMS_TAG, v.tag_len) == 0)
      s->has_hparams = true;
    if (event->step != (int64_t)s->step) continue;
    str_addn(&s->written, v.tag, v.tag_len);
    str_addc(&s->written, '\0');
  }
  return str_check(&s->written);
}

static Err note_name(void *context, const char *name) {
  Str *names = context;
  if (!str_starts(name, PREFIX)) return ERR_OK;
  str_add(names, name);
  str_addc(names, '\n');
  return str_check(names);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Reads an earlier file as far as it is intact, as TensorBoard does. */
static Err read_earlier(TfeventsSink *s, const char *run_dir, const char *name) {
  char path[FILE_PATH_MAX];
  uint64_t time = strtoull(name + strlen(PREFIX), NULL, 10);
  if (time > s->last_time && time < ULLONG_MAX) s->last_time = time;
  TRY(file_join(path, run_dir, name));
  if (tfevents_read(path, note_event, s))
    log_warn("%s; TensorBoard shows the file up to there", err_message());
  return str_check(&s->written);
}

/* Reads the earlier files of the run in the order of their names, which is that of
 * TensorBoard. */
static Err read_earlier_files(TfeventsSink *s, const char *run_dir) {
  Str names = {0};
  char **list = NULL;
  size_t count = 0;
  Err err;
  TRY_DONE(place_list(run_dir, note_name, &names));
  for (size_t i = 0; i < names.len; i++) count += names.s[i] == '\n';
  TRY_DONE(mem_alloc(&list, count + 1, sizeof *list));
  char *at = names.s;
  for (size_t i = 0; i < count; i++) {
    list[i] = at;
    at += strcspn(at, "\n");
    *at++ = '\0';
  }
  if (count) qsort(list, count, sizeof *list, compare_names);
  for (size_t i = 0; i < count; i++) TRY_DONE(read_earlier(s, run_dir, list[i]));
done:
  mem_free(list);
  str_free(&names);
  return err;
}

/* Opening and closing. */

/* Readers take the files in the order of their names. The time in the name is therefore later
 * than that of all earlier files, even if the clock was set back or another host's is slow. */
static Err open_file(TfeventsSink *s, const char *run_dir) {
  char name[HOST_NAME_MAX + 96], host[HOST_NAME_MAX + 1] = "localhost", path[FILE_PATH_MAX];
  uint64_t time = (uint64_t)get_time();
  if (time <= s->last_time) time = s->last_time + 1;
  gethostname(host, sizeof host - 1);
  snprintf(name, sizeof name, PREFIX "%010" PRIu64 ".%s.%ld.0", time, host, (long)getpid());
  TRY(file_join(path, run_dir, name));
  return lines_open(&s->file, path);
}

static void close_tfevents(void *sink) {
  TfeventsSink *s = sink;
  if (!s) return;
  lines_close(&s->file);
  str_free(&s->header);
  str_free(&s->out);
  str_free(&s->written);
  mem_free(s);
}

static Err make_header(TfeventsSink *s, const MetricsSpec *spec) {
  double now = get_time();
  tfevents_add_version(&s->header, now);
  tfevents_add_start(&s->header, now, spec->step + 1);
  if (!s->has_hparams) {
    const uint64_t first_step = 0; /* a session start never discards step 0 */
    TfSummary summary = tfevents_begin(&s->header, now, first_step);
    tfevents_add_hparams(&summary, spec->options, now);
    tfevents_end(&summary);
  }
  return str_check(&s->header);
}

/* The header is needed before any other record. If the disk is full, it is tried again with the
 * next record. */
static Err write_header(TfeventsSink *s) {
  if (!s->header.len) return ERR_OK;
  TRY(lines_add(&s->file, s->header.s, s->header.len));
  str_clear(&s->header);
  return ERR_OK;
}

static Err open_sink(TfeventsSink *s, const MetricsSpec *spec) {
  TRY(read_earlier_files(s, spec->run_dir));
  TRY(open_file(s, spec->run_dir));
  TRY(make_header(s, spec));
  (void)!write_header(s); /* the next record reports the error */
  return ERR_OK;
}

static Err open_tfevents(void **sink, const MetricsSpec *spec, uint64_t *last_step) {
  TfeventsSink *s;
  *sink = NULL;
  *last_step = 0; /* the header undoes later steps */
  if (!spec->with_tensorboard) return ERR_OK;
  TRY(mem_alloc(&s, 1, sizeof *s));
  s->step = spec->step;
  Err err = open_sink(s, spec);
  if (err)
    close_tfevents(s);
  else
    *sink = s;
  return err;
}

/* Records. */

/* Adds a number under its tag and its second tag. */
static void add_number(const TfeventsSink *s, const TfSummary *to, uint64_t step,
                       const char *tag, const MetricsValue *v) {
  double value = v->kind == METRICS_COUNT ? (double)v->count : v->real;
  if (!is_repeated(s, step, tag)) tfevents_add_scalar(to, tag, (float)value);
  for (size_t i = 0; i < ALIASES; i++) {
    if (strcmp(aliases[i].name, v->name) != 0) continue;
    if (!is_repeated(s, step, aliases[i].tag))
      tfevents_add_scalar(to, aliases[i].tag, (float)value);
  }
}

static void add_histogram(const TfSummary *to, const char *tag, const Histogram *h) {
  TfHistogram out = {.min = h->min,
                     .max = h->max,
                     .count = h->count,
                     .sum = h->sum,
                     .square_sum = h->square_sum,
                     .buckets = h->buckets,
                     .limit = h->limit,
                     .bucket = h->bucket};
  tfevents_add_histogram(to, tag, &out);
}

/* Texts occur only in records of events, which are not written. */
static void add_value(const TfeventsSink *s, const TfSummary *to, uint64_t step,
                      const MetricsValue *v) {
  char tag[METRICS_TAG];
  metrics_make_tag(tag, v->name);
  if (v->kind == METRICS_REAL || v->kind == METRICS_COUNT) {
    add_number(s, to, step, tag, v);
  } else if (is_repeated(s, step, tag)) {
    return;
  } else if (v->kind == METRICS_TABLE) {
    tfevents_add_table(to, tag, v->table.cells, v->table.rows, v->table.columns);
  } else if (v->kind == METRICS_HISTOGRAM) {
    add_histogram(to, tag, v->histogram);
  }
}

static void add_values(TfeventsSink *s, const MetricsRecord *r) {
  size_t begin = s->out.len;
  TfSummary to = tfevents_begin(&s->out, get_time(), r->step);
  size_t empty = s->out.len;
  for (size_t i = 0; i < r->values; i++) add_value(s, &to, r->step, &r->value[i]);
  if (s->out.failed) return;
  if (s->out.len > empty)
    tfevents_end(&to);
  else
    s->out.len = begin;
}

/* Events such as a restart may occur several times at one step, and TensorBoard cannot show
 * them: of their records only the session start is written. */
static Err write_tfevents(void *sink, const MetricsRecord *r) {
  TfeventsSink *s = sink;
  str_clear(&s->out);
  if (r->undoes_later) tfevents_add_start(&s->out, get_time(), r->step + 1);
  /* A process that began with an in-memory copy may roll back to an earlier step. Readers then
   * discard the values in `written`, so these are written again. */
  if (r->undoes_later && r->step < s->step) str_clear(&s->written);
  if (!r->event) add_values(s, r);
  TRY(str_check(&s->out));
  TRY(write_header(s));
  return s->out.len ? lines_add(&s->file, s->out.s, s->out.len) : ERR_OK;
}

const MetricsSink metrics_tfevents = {open_tfevents, write_tfevents, NULL, close_tfevents};
