/* Writes RUN/wandb/offline-run-DATE_TIME-ID/run-ID.wandb, which `wandb sync` uploads. A run has one
 * such file and one ID, however often it is resumed. Weights & Biases expects steps that increase, so
 * undone steps must not be in the file: it is cut before the first of them, and the run continues
 * there. All values of a step are in one record, which is replaced while it is the last one. See
 * docs/formats.md. Depends on format/wandb, rundir, wandb_stats, base. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/sysmem.h"
#include "base/url.h"
#include "format/hparams.h"
#include "format/wandb.h"
#include "train/metrics_sink.h"
#include "train/rundir.h"
#include "train/wandb_stats.h"

#define PREFIX    "offline-run-"
#define ID_DIGITS 8 /* of the run's id; wandb's own ids have as many characters */

/* What must be written before the next step. */
typedef enum { NEEDS_NOTHING, NEEDS_CONFIG, NEEDS_BEGIN } Needs;

typedef struct {
  LineFile file;
  WandbLog log; /* log.offset: size of the file */
  Needs needs;
  /* Steps after `undone_after` must be removed before anything is written. */
  bool has_undone;
  uint64_t undone_after;
  WandbStats stats;
  char *options, *project, *name;
  char dir[FILE_PATH_MAX]; /* the argument of `wandb sync` */
  char id[ID_DIGITS + 1];
  /* The last history record of the file. After it comes at most its summary. */
  bool has_step;
  uint64_t step, step_offset; /* step_offset: where the record begins */
  double seconds;
  Str values; /* its values: key and JSON text, each ends with NUL */
  Str before; /* values before a record of the same step was added */
} WandbSink;

static double get_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Appends the records in s->log.out to the file. On an error they are discarded. */
static Err append_records(WandbSink *s) {
  Err err = wandb_check(&s->log);
  if (!err && s->log.out.len) err = lines_add(&s->file, s->log.out.s, s->log.out.len);
  if (!err) s->log.offset += s->log.out.len;
  str_clear(&s->log.out);
  return err;
}

static Err cut_file(WandbSink *s, uint64_t size) {
  if (ftruncate(s->file.fd, (off_t)size) != 0)
    return err_errno("cannot remove undone steps from", s->file.path);
  s->log.offset = size;
  return ERR_OK;
}

/* Values of a step. */

static size_t get_value_len(const char *value) {
  size_t key_len = strlen(value) + 1;
  return key_len + strlen(value + key_len) + 1;
}

/* Sets a value; an earlier value of the same key is removed. */
static void set_value(Str *values, const char *key, size_t key_len, const char *json,
                      size_t json_len) {
  if (values->failed) return;
  for (size_t i = 0; i < values->len; i += get_value_len(values->s + i)) {
    char *value = values->s + i;
    if (strlen(value) != key_len || memcmp(value, key, key_len) != 0) continue;
    size_t len = get_value_len(value);
    memmove(value, value + len, values->len - i - len);
    values->len -= len;
    break;
  }
  str_addn(values, key, key_len);
  str_addc(values, '\0');
  str_addn(values, json, json_len);
  str_addc(values, '\0');
}

/* Tables and histograms are left out: wandb stores them in files of their own. */
static void set_values(Str *values, const MetricsRecord *r) {
  for (size_t i = 0; i < r->values; i++) {
    const MetricsValue *v = &r->value[i];
    char key[METRICS_TAG], json[WANDB_NUMBER];
    if (v->kind != METRICS_REAL && v->kind != METRICS_COUNT) continue;
    metrics_make_tag(key, v->name);
    wandb_print_number(json, v->kind == METRICS_COUNT ? (double)v->count : v->real);
    set_value(values, key, strlen(key), json, strlen(json));
  }
}

/* The names with an underscore are wandb's own: axes that its charts offer. */
static void add_values(WandbSink *s) {
  char time[WANDB_NUMBER];
  for (size_t i = 0; i < s->values.len; i += get_value_len(s->values.s + i)) {
    const char *key = s->values.s + i;
    wandb_add_item(&s->log, key, key + strlen(key) + 1);
  }
  snprintf(time, sizeof time, "%.3f", get_time());
  wandb_add_item(&s->log, "_timestamp", time);
  wandb_add_number(&s->log, "_runtime", s->seconds);
  wandb_add_number(&s->log, "_step", (double)s->step);
}

/* Appends the history record of s->step and the summary that follows from it. */
static Err append_step(WandbSink *s) {
  TRY(str_check(&s->values));
  s->step_offset = s->log.offset + s->log.out.len;
  wandb_begin_history(&s->log, s->step);
  add_values(s);
  wandb_end(&s->log);
  wandb_begin_summary(&s->log, s->seconds);
  add_values(s);
  wandb_end(&s->log);
  return append_records(s);
}

/* Continuation of a file. */

/* What is kept of a file: all up to the last step that is not undone, and its summary. */
typedef struct {
  uint64_t last_step; /* later ones are undone */
  bool is_over;       /* an undone step or the end of the run was found */
  uint64_t end;       /* end of what is kept */
  bool has_run;
  double
      time; /* of the start of the run, or of the last measurements of a host that are kept */
  double latest_time; /* of the last measurements of a host */
  WandbSink *sink;
  Err err; /* no memory */
} Scan;

/* Notes the values of a step, which more may be added to. The file may have any number of them, and
 * each is compared with all others: those beyond VALUES_MOST are left out. */
static Err note_history(WandbSink *s, const WandbRecord *r) {
  enum { VALUES_MOST = 512 };
  ProtoBytes at = r->body;
  WandbItem item;
  s->has_step = true;
  s->step = r->step;
  s->step_offset = r->offset;
  str_clear(&s->values);
  for (int i = 0; i < VALUES_MOST && wandb_next_item(r, &at, &item); i++) {
    bool is_own = item.key_len && item.key[0] == '_';
    bool has_nul = memchr(item.key, 0, item.key_len) || memchr(item.json, 0, item.json_len);
    if (!is_own && !has_nul)
      set_value(&s->values, item.key, item.key_len, item.json, item.json_len);
  }
  return str_check(&s->values);
}

static Err note_record(void *context, const WandbRecord *r) {
  Scan *scan = context;
  bool is_undone = r->type == WANDB_HISTORY && r->step > scan->last_step;
  if (is_undone || r->type == WANDB_EXIT) scan->is_over = true;
  if (scan->is_over) return ERR_OK;
  if (r->type == WANDB_STATS && r->time > scan->latest_time) scan->latest_time = r->time;
  if (r->type == WANDB_STATS || r->type == WANDB_CONFIG) return ERR_OK;
  scan->end = r->end;
  if (r->type == WANDB_RUN) {
    scan->has_run = true;
    scan->latest_time = r->time;
  }
  scan->time = scan->latest_time;
  if (r->type == WANDB_HISTORY) scan->err = note_history(scan->sink, r);
  return scan->err;
}

/* Removes the steps after s->undone_after, the end of the run, and an incomplete record. Measurements of
 * hosts that come after the last step are removed too, and read again from system.jsonl. */
static Err remove_later(WandbSink *s) {
  Scan scan = {.last_step = s->undone_after, .sink = s};
  uint64_t end;
  s->has_step = false;
  str_clear(&s->values);
  Err err = wandb_read(s->file.path, note_record, &scan, &end);
  if (scan.err) return scan.err;
  if (err && !end) return err;
  if (err) log_warn("%s; the log ends there, later records are removed", err_message());
  s->needs = scan.has_run ? NEEDS_CONFIG : NEEDS_BEGIN;
  stats_restart(&s->stats, scan.time);
  TRY(cut_file(s, scan.end));
  s->has_undone = false;
  return ERR_OK;
}

/* Files. */

static Err make_dir(WandbSink *s, const char *wandb_dir) {
  char name[64], files[FILE_PATH_MAX];
  struct tm now;
  time_t seconds = time(NULL);
  localtime_r(&seconds, &now);
  size_t n = strftime(name, sizeof name, PREFIX "%Y%m%d_%H%M%S-", &now);
  snprintf(name + n, sizeof name - n, "%s", s->id);
  TRY(file_join(s->dir, wandb_dir, name));
  TRY(file_join(files, s->dir, "files")); /* `wandb sync` writes into it */
  return file_mkdirs(files);
}

typedef struct {
  char suffix[ID_DIGITS + 2]; /* -ID */
  char name[256];             /* "": none */
} DirSearch;

/* Of several directories of the run, which only a copy by hand can make, the first one is used. */
static Err note_dir(void *context, const char *name) {
  DirSearch *d = context;
  bool is_of_run = str_starts(name, PREFIX) && str_ends(name, d->suffix);
  if (!is_of_run || strlen(name) >= sizeof d->name) return ERR_OK;
  if (!*d->name || strcmp(name, d->name) < 0) snprintf(d->name, sizeof d->name, "%s", name);
  return ERR_OK;
}

static Err find_dir(WandbSink *s, const char *run_dir) {
  char wandb_dir[FILE_PATH_MAX], id[RUN_ID_SIZE];
  TRY(rundir_read_id(run_dir, id));
  if (!*id)
    return err_set(ERR_WORK, "cannot read %s/id, from which --wandb takes the id of the run",
                   run_dir);
  snprintf(s->id, sizeof s->id, "%.*s", ID_DIGITS, id);
  DirSearch d = {0};
  snprintf(d.suffix, sizeof d.suffix, "-%s", s->id);
  TRY(file_join(wandb_dir, run_dir, "wandb"));
  if (file_is_dir(wandb_dir)) TRY(place_list(wandb_dir, note_dir, &d));
  return *d.name ? file_join(s->dir, wandb_dir, d.name) : make_dir(s, wandb_dir);
}

static Err open_file(WandbSink *s) {
  char name[64], path[FILE_PATH_MAX];
  snprintf(name, sizeof name, "run-%s.wandb", s->id);
  TRY(file_join(path, s->dir, name));
  return lines_open(&s->file, path);
}

/* Removes the mark that `wandb sync` has made: with it, another call would upload nothing, although
 * the run has new steps. */
static Err remove_mark(const WandbSink *s) {
  char name[64], path[FILE_PATH_MAX];
  snprintf(name, sizeof name, "run-%s.wandb.synced", s->id);
  TRY(file_join(path, s->dir, name));
  return file_exists(path) ? file_remove_all(path) : ERR_OK;
}

/* The first records of a new file. */
static Err begin_file(WandbSink *s) {
  char host[HOST_NAME_MAX + 1] = "localhost", system[512] = "Linux";
  struct utsname u;
  uint64_t left, memory = 0;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  double now = get_time();
  gethostname(host, sizeof host - 1);
  if (uname(&u) == 0)
    snprintf(system, sizeof system, "%s %s %s", u.sysname, u.release, u.machine);
  if (sysmem_read("", &left, &memory)) memory = 0;
  WandbRun run = {.id = s->id,
                  .project = s->project,
                  .name = s->name,
                  .host = host,
                  .options = s->options,
                  .start = now};
  WandbEnvironment environment = {.id = s->id,
                                  .system = system,
                                  .host = host,
                                  .program = "trireme train",
                                  .start = now,
                                  .cores = cores > 0 ? (uint64_t)cores : 0,
                                  .memory = memory};
  TRY(cut_file(s, 0));
  stats_restart(&s->stats, now);
  wandb_add_header(&s->log, "trireme " TRIREME_VERSION);
  wandb_add_run(&s->log, &run);
  wandb_add_environment(&s->log, &environment);
  return append_records(s);
}

/* Writes what must come before the next step. A file that continues gets the options of this process,
 * as they may differ from those of the beginning. */
static Err write_needs(WandbSink *s) {
  if (s->needs == NEEDS_BEGIN) TRY(begin_file(s));
  if (s->needs == NEEDS_CONFIG) {
    wandb_add_config(&s->log, s->options);
    TRY(append_records(s));
  }
  s->needs = NEEDS_NOTHING;
  return ERR_OK;
}

static void free_sink(WandbSink *s) {
  lines_close(&s->file);
  wandb_free(&s->log);
  stats_close(&s->stats);
  str_free(&s->values);
  str_free(&s->before);
  mem_free(s->options);
  mem_free(s->project);
  mem_free(s->name);
  mem_free(s);
}

static void close_wandb(void *sink) {
  WandbSink *s = sink;
  Str dir = {0};
  if (!s) return;
  str_add_shell(&dir, s->dir);
  log_info("wandb    upload the run with: wandb sync %s", str_text(&dir));
  str_free(&dir);
  free_sink(s);
}

/* Copies the options for the upload: URLs lose passwords and tokens. */
static Err copy_options(WandbSink *s, const char *options) {
  char shown[URL_SHOWN_MAX];
  Str all = {0}, value = {0};
  Hparam h;
  while (hparams_next(&options, &h)) {
    str_clear(&value);
    str_addn(&value, h.text, h.text_len);
    str_addn(&all, h.name, h.name_len);
    str_addf(&all, " = %s\n", url_mask_path(str_text(&value), shown));
  }
  Err err = str_check(&value);
  if (!err) err = str_check(&all);
  if (!err) err = mem_dup(&s->options, str_text(&all), all.len);
  str_free(&value);
  str_free(&all);
  return err;
}

/* The run is shown under the name of its directory. */
static Err copy_spec(WandbSink *s, const MetricsSpec *spec) {
  char path[PATH_MAX];
  if (!realpath(spec->run_dir, path)) return err_errno("cannot open", spec->run_dir);
  const char *name = strrchr(path, '/') + 1;
  TRY(mem_dup(&s->name, name, strlen(name)));
  TRY(mem_dup(&s->project, spec->wandb_project, strlen(spec->wandb_project)));
  return copy_options(s, spec->options);
}

static Err open_sink(WandbSink *s, const MetricsSpec *spec) {
  TRY(copy_spec(s, spec));
  TRY(stats_open(&s->stats, spec->run_dir));
  TRY(find_dir(s, spec->run_dir));
  TRY(open_file(s));
  TRY(remove_mark(s));
  s->has_undone = true;
  s->undone_after = spec->step;
  TRY(remove_later(s));
  if (s->needs == NEEDS_BEGIN) (void)!write_needs(s); /* the next record reports the error */
  return ERR_OK;
}

static Err open_wandb(void **sink, const MetricsSpec *spec, uint64_t *last_step) {
  WandbSink *s;
  *sink = NULL;
  *last_step = 0; /* later steps are removed here */
  if (!spec->wandb_project) return ERR_OK;
  TRY(mem_alloc(&s, 1, sizeof *s));
  Err err = open_sink(s, spec);
  if (err)
    free_sink(s);
  else
    *sink = s;
  return err;
}

/* Records. */

static Err append_new_step(WandbSink *s, const MetricsRecord *r) {
  TRY(write_needs(s));
  TRY(stats_add(&s->stats, &s->log));
  str_clear(&s->values);
  set_values(&s->values, r);
  s->step = r->step;
  s->seconds = r->seconds;
  Err err = append_step(s);
  s->has_step = !err;
  return err;
}

/* Adds values to the last step of the file. If the disk is full, the record is written as it
 * was. */
static Err extend_step(WandbSink *s, const MetricsRecord *r) {
  str_clear(&s->before);
  str_addn(&s->before, str_text(&s->values), s->values.len);
  TRY(str_check(&s->before));
  set_values(&s->values, r);
  s->seconds = r->seconds;
  TRY(cut_file(s, s->step_offset));
  Err err = append_step(s);
  if (!err) return ERR_OK;
  ErrRecord reason = err_copy();
  Str failed = s->values;
  s->values = s->before;
  s->before = failed;
  (void)!append_step(s);
  return err_give(&reason);
}

static bool has_numbers(const MetricsRecord *r) {
  for (size_t i = 0; i < r->values; i++)
    if (r->value[i].kind == METRICS_REAL || r->value[i].kind == METRICS_COUNT) return true;
  return false;
}

/* Events such as a restart are not written: they are no curves, and a step may have several. An
 * event that undoes steps still removes these from the file. */
static Err write_wandb(void *sink, const MetricsRecord *r) {
  WandbSink *s = sink;
  if (r->undoes_later) {
    s->undone_after = s->has_undone && s->undone_after < r->step ? s->undone_after : r->step;
    s->has_undone = true;
  }
  if (s->has_undone) TRY(remove_later(s));
  if (r->event || !has_numbers(r)) return ERR_OK;
  if (s->has_step && r->step < s->step)
    return err_set(ERR_WORK,
                   "cannot write step %" PRIu64 " to %s, which has step %" PRIu64 " already",
                   r->step, s->file.path, s->step);
  return s->has_step && r->step == s->step ? extend_step(s, r) : append_new_step(s, r);
}

/* Without the exit record, `wandb sync` marks the run as failed. */
static Err finish_wandb(void *sink, double seconds) {
  WandbSink *s = sink;
  const int success = 0;
  if (s->has_undone) TRY(remove_later(s));
  TRY(write_needs(s));
  TRY(stats_add(&s->stats, &s->log));
  wandb_add_exit(&s->log, success, seconds);
  TRY(append_records(s));
  return remove_mark(s); /* made while the run trained */
}

const MetricsSink metrics_wandb = {open_wandb, write_wandb, finish_wandb, close_wandb};
