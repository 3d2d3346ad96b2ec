/* A thread that writes one snapshot at a time. Depends on backend, base, checkpoint. */
#include "train/saver.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/progress.h"
#include "base/thread.h"

struct Saver {
  char *run;
  /* The files of the task and their contents, read at the start because the data set may be
   * changed or removed later. */
  ModelFile file[STORE_FILES];
  Str contents[STORE_FILES];
  int keep;
  SaveSteps steps;
  TrainArrays snapshot;
  const Backend *backend;
  float *pinned[4]; /* arrays w, e, m, v of the snapshot that are page-locked; otherwise NULL */
  uint64_t bytes;
  TrainCounters counters, validated;
  SaveMode mode;      /* mode of the current write */
  bool is_best;       /* the validated step is the best */
  bool is_writing;    /* the thread is writing the snapshot, which nobody else may access */
  bool is_adding;     /* the thread is adding `validated` to a checkpoint */
  Str outputs;        /* of the validation, for RUN/valid-best.txt */
  SaverReport report; /* NULL: report failures by warnings */
  void *report_context;
  Trace *trace; /* or NULL */
  bool stop, started;
  ErrRecord last;
  uint64_t not_best; /* last step whose best score was reported as not kept */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

static void remove_older(const Saver *s) {
  if (checkpoint_prune(s->run, s->keep, s->steps))
    log_warn("cannot remove older checkpoints, training goes on: %s", err_message());
}

static void write_snapshot(Saver *s) {
  fault_point(s->report ? "copy" : "save");
  double start = progress_clock();
  Err err = checkpoint_save(s->run, &s->snapshot, &s->counters);
  trace_span(s->trace, TRACE_SAVER, "write checkpoint", start, progress_clock(),
             (TraceArgs){{{TRACE_STEP, (double)s->counters.step}}});
  s->last = err ? err_take(err) : (ErrRecord){0};
  if (s->report)
    s->report(s->report_context, s->counters.step, err);
  else if (err && s->mode != SAVE_AWAITED)
    log_warn("the checkpoint of step %" PRIu64 " was not saved, %s: %s", s->counters.step,
             s->mode == SAVE_LAST ? "and is tried once more" : "training goes on",
             err_message());
  if (!err) remove_older(s);
}

static void write_outputs(const Saver *s) {
  char path[FILE_PATH_MAX];
  if (!s->outputs.len) return;
  Err err = file_join(path, s->run, "valid-best.txt");
  if (!err) err = file_write(path, s->outputs.s, s->outputs.len);
  if (err) log_warn("%s; reports cannot compare this run with others by BLEU", err_message());
}

static void write_validation(Saver *s) {
  if (s->last.code) {
    if (s->is_best && s->not_best != s->validated.step)
      log_warn("the score of step %" PRIu64
               ", the best so far, is not kept: its checkpoint is not on disk",
               s->validated.step);
    s->not_best = s->validated.step; /* the last step is tried twice */
    return;
  }
  Err err = checkpoint_add_validation(s->run, &s->validated, s->is_best);
  s->last = err ? err_take(err) : (ErrRecord){0};
  if (err)
    log_warn("the validation of step %" PRIu64
             " was not added to its checkpoint, training goes on: %s",
             s->validated.step, err_message());
  if (err || !s->is_best) return;
  write_outputs(s);
  remove_older(s); /* the previous best checkpoint may be removed */
}

static void *run_thread(void *argument) {
  Saver *s = argument;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (!s->is_writing && !s->is_adding && !s->stop)
      pthread_cond_wait(&s->changed, &s->lock);
    bool *task = s->is_writing ? &s->is_writing : s->is_adding ? &s->is_adding : NULL;
    if (!task) break;
    pthread_mutex_unlock(&s->lock);
    if (task == &s->is_writing)
      write_snapshot(s);
    else
      write_validation(s);
    pthread_mutex_lock(&s->lock);
    *task = false;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* thread_start blocks all signals in the thread, so no signal interrupts a write, and exceeding
 * a file size limit (SIGXFSZ) is an error of write(). */
static Err start_thread(Saver *s) {
  s->started = thread_start(&s->thread, run_thread, s);
  return s->started ? ERR_OK
                    : err_set(ERR_WORK,
                              "cannot start a thread to save checkpoints; raise the limit of "
                              "processes and threads (ulimit -u)");
}

static Err new_array(Saver *s, void *pointer, bool wanted, size_t bytes) {
  if (!wanted) return ERR_OK;
  s->bytes += bytes;
  return mem_alloc_aligned(pointer, bytes);
}

static Err new_snapshot(Saver *s, const TrainArrays *shape) {
  size_t floats = shape->params->padded * sizeof(float);
  TrainArrays *a = &s->snapshot;
  a->config = shape->config;
  a->params = shape->params;
  a->file = s->file;
  a->contents = s->contents;
  for (; a->files < shape->files; a->files++) {
    s->file[a->files] = shape->file[a->files];
    TRY(place_read_all(shape->file[a->files].path, STORE_FILE_LIMIT, &s->contents[a->files]));
  }
  TRY(new_array(s, &a->w, shape->w, floats));
  TRY(new_array(s, &a->e, shape->e, floats));
  TRY(new_array(s, &a->m, shape->m, floats));
  TRY(new_array(s, &a->v, shape->v, floats));
  return new_array(s, &a->second, shape->second, shape->params->count * sizeof *a->second);
}

/* Page-locks the snapshot. A GPU copies pageable memory through a buffer of the driver, which
 * is several times slower and blocks the GPU. */
static void pin_snapshot(Saver *s) {
  const TrainArrays *a = &s->snapshot;
  float *const list[] = {a->w, a->e, a->m, a->v};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    if (!list[i]) continue;
    if (s->backend->pin(s->backend, list[i], a->params->padded * sizeof(float))) {
      log_warn(
          "cannot pin host memory, so copies for checkpoints will block the GPU for longer: %s",
          err_message());
      return;
    }
    s->pinned[i] = list[i];
  }
}

Err saver_new(Saver **out, const char *run_dir, const TrainArrays *shape, int keep,
              SaveSteps steps, const Backend *backend) {
  Saver *s;
  *out = NULL;
  TRY(mem_alloc(&s, 1, sizeof *s));
  s->keep = keep;
  s->steps = steps;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  Err err = mem_dup(&s->run, run_dir, strlen(run_dir));
  s->backend = backend;
  if (!err) err = new_snapshot(s, shape);
  if (!err && !backend->host) pin_snapshot(s);
  if (!err) err = start_thread(s);
  if (err)
    saver_free(s);
  else
    *out = s;
  return err;
}

void saver_report_to(Saver *s, SaverReport act, void *context) {
  s->report = act;
  s->report_context = context;
}

void saver_set_trace(Saver *s, Trace *trace) {
  s->trace = trace;
}

bool saver_is_busy(Saver *s) {
  pthread_mutex_lock(&s->lock);
  bool is_busy = s->is_writing || s->is_adding;
  pthread_mutex_unlock(&s->lock);
  return is_busy;
}

TrainArrays *saver_begin(Saver *s) {
  saver_wait(s, NULL);
  return &s->snapshot;
}

void saver_commit(Saver *s, const TrainCounters *c, SaveMode mode) {
  pthread_mutex_lock(&s->lock);
  s->counters = *c;
  s->mode = mode;
  s->is_writing = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

void saver_add_validation(Saver *s, const TrainCounters *c, bool is_best) {
  pthread_mutex_lock(&s->lock);
  while (s->is_adding) pthread_cond_wait(&s->changed, &s->lock);
  s->validated = *c;
  s->is_best = is_best;
  s->is_adding = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

void saver_take_outputs(Saver *s, Str *outputs) {
  saver_wait(s, NULL);
  str_free(&s->outputs);
  s->outputs = *outputs;
  *outputs = (Str){0};
}

void saver_wait(Saver *s, Err *last) {
  pthread_mutex_lock(&s->lock);
  while (s->is_writing || s->is_adding) pthread_cond_wait(&s->changed, &s->lock);
  if (last) *last = s->last.code ? err_give(&s->last) : ERR_OK;
  pthread_mutex_unlock(&s->lock);
}

void saver_free(Saver *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->stop = true; /* the thread ends after the current write */
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  if (s->started) pthread_join(s->thread, NULL);
  for (size_t i = 0; i < sizeof s->pinned / sizeof *s->pinned; i++)
    if (s->pinned[i]) s->backend->unpin(s->backend, s->pinned[i]);
  TrainArrays *a = &s->snapshot;
  void *list[] = {a->w, a->e, a->m, a->v, a->second, s->run};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) mem_free(list[i]);
  for (size_t i = 0; i < STORE_FILES; i++) str_free(&s->contents[i]);
  str_free(&s->outputs);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  mem_free(s);
}

uint64_t saver_bytes(const Saver *s) {
  return s->bytes;
}
