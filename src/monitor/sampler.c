/* The thread that samples, and RUN/system.jsonl. Depends on system, base. */
#include "monitor/sampler.h"

#include <stdatomic.h>
#include <time.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/thread.h"
#include "comm/group.h"
#include "monitor/system.h"

#define PERIOD     1.0 /* seconds between two samples */
#define SHORTEST   0.2 /* seconds; a shorter interval would make the rates of a sample noise */
#define STOP_LIMIT 3.0 /* seconds for which sampler_stop waits for the thread */

_Static_assert(SYSTEM_LINE <= COMM_POST_BYTES, "a sample fits into a post");

struct Sampler {
  Comm *comm;
  const char *run_dir; /* NULL: not rank 0; samples are posted */
  Identity self;       /* name of this host */
  int *pid;            /* processes of this host's ranks */
  size_t pids;
  double started;
  pthread_t thread;
  _Atomic uint64_t step; /* UINT64_MAX: not known */
  pthread_mutex_t lock;  /* guards the fields below */
  pthread_cond_t changed;
  bool is_stopping; /* sampler_stop was called */
  bool is_over;     /* the thread uses neither comm nor file any more */
  /* sampler_stop has given up waiting: when the thread returns, it must not use comm. */
  bool is_abandoned;
  SamplerCount count;
  /* Only the thread uses these, and sampler_stop after its end: */
  LineFile file;
  bool is_warned;
  SystemSample sample;
  char line[SYSTEM_LINE], post[COMM_POST_BYTES];
};

/* Opens the file, and completes a line that a killed process left incomplete. */
static Err open_file(Sampler *s) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, s->run_dir, "system.jsonl"));
  TRY(lines_open(&s->file, path));
  Err err = lines_complete(&s->file);
  if (err) lines_close(&s->file);
  return err;
}

/* Rank 0: appends a line to the file. The first failure is a warning. Only one thread calls it, without
 * s->lock: a disk that hangs must not stop sampler_stop. */
static void write_line(Sampler *s, const char *line, size_t len) {
  fault_point("system-line");
  Err err = s->file.is_open ? ERR_OK : open_file(s);
  if (!err) err = lines_add(&s->file, line, len);
  if (!err) return;
  pthread_mutex_lock(&s->lock);
  s->count.lost++;
  pthread_mutex_unlock(&s->lock);
  if (!s->is_warned)
    log_warn("%s; lines of system.jsonl are lost until the file can be written again",
             err_message());
  s->is_warned = true;
}

/* Returns true if the bytes are one line of printable characters: they come from another process. */
static bool is_line(const char *bytes, size_t n) {
  for (size_t i = 0; i + 1 < n; i++)
    if (bytes[i] < ' ' || bytes[i] > '~') return false;
  return n > 1 && bytes[0] == '{' && bytes[n - 1] == '\n';
}

/* Rank 0: takes a sample of another host that has arrived. Returns false if there is none, or if comm must
 * not be used any more. */
static bool take_post(Sampler *s, size_t *n) {
  pthread_mutex_lock(&s->lock);
  bool is_taken = !s->is_abandoned && comm_take_post(s->comm, s->post, n);
  pthread_mutex_unlock(&s->lock);
  return is_taken;
}

/* Rank 0: writes the samples of other hosts that have arrived. */
static void write_posts(Sampler *s) {
  size_t n;
  while (take_post(s, &n))
    if (is_line(s->post, n)) write_line(s, s->post, n);
}

/* Turns s->sample into a line, and posts it unless this is rank 0. Returns the length of the line, or 0 if
 * sampler_stop has given up. */
static size_t make_line(Sampler *s) {
  size_t n = 0;
  pthread_mutex_lock(&s->lock);
  if (!s->is_abandoned) {
    uint64_t step = s->step, dropped = s->run_dir ? 0 : comm_dropped_posts(s->comm);
    if (step != UINT64_MAX) s->sample.step = (double)step;
    if (dropped) s->sample.dropped = (double)dropped;
    n = system_write(&s->sample, s->line, sizeof s->line);
    s->count.samples++;
    if (!s->run_dir) comm_post(s->comm, s->line, n);
  }
  pthread_mutex_unlock(&s->lock);
  return n;
}

/* Passes on the sample in s->sample: rank 0 writes it and those that other hosts have posted. */
static void deliver_sample(Sampler *s) {
  size_t n = make_line(s);
  if (!n || !s->run_dir) return;
  write_line(s, s->line, n);
  write_posts(s);
}

static double read_thread_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Waits until the time `due` or until sampler_stop. Returns with s->lock held. */
static void wait_until(Sampler *s, double due) {
  pthread_mutex_lock(&s->lock);
  for (double now; !s->is_stopping && (now = progress_clock()) < due;)
    thread_cond_wait_for(&s->changed, &s->lock, due - now);
}

/* Measures at fixed times; after a delay the missed times are left out. The last sample is taken when
 * the run ends, so that a short run has one. */
static void sample_until_stopped(Sampler *s, System *system) {
  double due = progress_clock() + PERIOD, taken = 0;
  for (bool is_last = false; !is_last;) {
    wait_until(s, due);
    is_last = s->is_stopping;
    pthread_mutex_unlock(&s->lock);
    if (is_last && progress_clock() - taken < SHORTEST) break;
    system_take(system, &s->sample);
    deliver_sample(s);
    double now = progress_clock();
    taken = now;
    due = due + PERIOD > now ? due + PERIOD : now + PERIOD;
  }
}

/* Only passes on the samples of other hosts: this one cannot be measured. */
static void relay_until_stopped(Sampler *s) {
  for (bool is_last = false; !is_last;) {
    wait_until(s, progress_clock() + PERIOD);
    is_last = s->is_stopping;
    pthread_mutex_unlock(&s->lock);
    if (s->run_dir) write_posts(s);
  }
}

static void free_sampler(Sampler *s) {
  lines_close(&s->file);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  mem_free(s->pid);
  mem_free(s);
}

static void *run_sampler(void *argument) {
  Sampler *s = argument;
  System *system;
  SystemSpec spec = {.root = "",
                     .nvml = "libnvidia-ml.so.1",
                     .host = s->self.host,
                     .dir = s->run_dir,
                     .pid = s->pid,
                     .pids = s->pids};
  if (system_open(&system, &spec)) {
    log_warn("%s; this host is not measured", err_message());
    relay_until_stopped(s);
  } else {
    sample_until_stopped(s, system);
    system_close(system);
    if (s->run_dir) write_posts(s);
  }
  pthread_mutex_lock(&s->lock);
  s->is_over = true;
  s->count.cpu = read_thread_time();
  s->count.seconds = progress_clock() - s->started;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* Lists the processes of the ranks on this host. */
static Err list_processes(Sampler *s) {
  int ranks = comm_size(s->comm);
  TRY(mem_alloc(&s->pid, (size_t)ranks, sizeof *s->pid));
  for (int r = 0; r < ranks; r++) {
    int pid = comm_pid(s->comm, r);
    if (pid) s->pid[s->pids++] = pid;
  }
  return ERR_OK;
}

Err sampler_start(Sampler **out, Comm *comm, const char *run_dir) {
  Sampler *s;
  *out = NULL;
  TRY(comm_open_posts(comm));
  if (comm_local_rank(comm) > 0) return ERR_OK;
  TRY(mem_alloc(&s, 1, sizeof *s));
  s->comm = comm;
  s->run_dir = comm_rank(comm) == 0 ? run_dir : NULL;
  identity_read(&s->self);
  s->step = UINT64_MAX;
  s->started = progress_clock();
  pthread_mutex_init(&s->lock, NULL);
  thread_cond_init(&s->changed);
  Err err = list_processes(s);
  if (!err && !thread_start(&s->thread, run_sampler, s))
    err = err_set(ERR_WORK,
                  "cannot start the thread that measures this host; raise the limit of "
                  "processes and threads (ulimit -u), or pass --system-metrics no");
  if (err)
    free_sampler(s);
  else
    *out = s;
  return err;
}

void sampler_set_step(Sampler *s, uint64_t step) {
  if (s) s->step = step;
}

/* Waits for the thread. Returns false if it hangs. */
static bool wait_for_thread(Sampler *s) {
  double limit = progress_clock() + STOP_LIMIT;
  pthread_mutex_lock(&s->lock);
  s->is_stopping = true;
  pthread_cond_broadcast(&s->changed);
  for (double now; !s->is_over && (now = progress_clock()) < limit;)
    thread_cond_wait_for(&s->changed, &s->lock, limit - now);
  s->is_abandoned = !s->is_over;
  bool is_over = s->is_over;
  pthread_mutex_unlock(&s->lock);
  return is_over;
}

SamplerCount sampler_stop(Sampler *s) {
  if (!s) return (SamplerCount){0};
  bool is_over = wait_for_thread(s);
  if (is_over) {
    pthread_join(s->thread, NULL);
  } else {
    pthread_detach(s->thread); /* the thread still uses its memory, which is never freed */
    log_warn(
        "the thread that measures this host hangs in a driver or while writing system.jsonl; "
        "the run ends without waiting for it");
  }
  pthread_mutex_lock(&s->lock);
  SamplerCount count = s->count;
  pthread_mutex_unlock(&s->lock);
  count.dropped = comm_dropped_posts(s->comm);
  if (is_over) free_sampler(s);
  return count;
}
