/* The communication thread: its start, its queue of jobs, its end. A thread that waits for a job
 * runs the queue itself while it has nothing else to do, which saves two switches of threads.
 * Relies on carrier, watchdog. */
#include "comm/comm.h"

#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/thread.h"
#include "comm/comm_internal.h"
#include "comm/launcher.h"

static Err load_carrier(Comm *c, long ranks) {
  TRY(launcher_check());
  char count[32] = "several";
  if (ranks) snprintf(count, sizeof count, "%ld", ranks);
  if (plugin_open(&c->plugin, "libtrireme-mpi.so") != ERR_OK)
    return err_context(
        "%s ranks were started, but they cannot talk to each other (install "
        "libopenmpi-dev and run make again)",
        count);
  return plugin_symbol(&c->plugin, CARRIER_SYMBOL, &c->carrier);
}

/* 0 where the kernel does not say. */
static uint64_t identify_machine(void) {
  Str id = {0};
  bool known = file_read("/proc/sys/kernel/random/boot_id", 256, &id) == ERR_OK;
  uint64_t hash = known ? rng_hash(str_text(&id), id.len, 0) : 0;
  str_free(&id);
  return hash;
}

bool comm_is_same_host(const Identity *a, const Identity *b) {
  return a->machine == b->machine && strcmp(a->host, b->host) == 0;
}

static void identify(Identity *who) {
  struct stat space;
  const char *name = getenv("TRIREME_HOST"); /* for tests: as if on a machine of this name */
  gethostname(who->host, HOST_MAX - 1);
  if (name && *name) snprintf(who->host, HOST_MAX, "%s", name);
  who->machine = identify_machine();
  who->pid = (int32_t)getpid();
  who->pid_space = stat("/proc/self/ns/pid", &space) == 0 ? (uint64_t)space.st_ino : 0;
  who->cores = thread_cores();
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  who->core_set = rng_hash(&set, sizeof set, 0);
}

/* The communicator that this thread runs a job or the watchdog of. */
static _Thread_local const Comm *running_here;

static Err alloc_work(Comm *c) {
  size_t n = (size_t)c->size;
  TRY(mem_alloc(&c->peer, n, sizeof *c->peer));
  TRY(mem_alloc(&c->request, 8 * n, sizeof *c->request));
  TRY(mem_alloc(&c->term, n, sizeof *c->term));
  TRY(mem_alloc(&c->pair.send, n, sizeof *c->pair.send));
  TRY(mem_alloc(&c->pair.recv, n, sizeof *c->pair.recv));
  TRY(mem_alloc(&c->pair.send_n, n, sizeof *c->pair.send_n));
  TRY(mem_alloc(&c->pair.recv_n, n, sizeof *c->pair.recv_n));
  TRY(mem_alloc(&c->sent, HISTORY * n, sizeof *c->sent));
  TRY(mem_alloc(&c->sums, n * COMM_SUM_MOST, sizeof *c->sums));
  return mem_alloc(&c->offset, n + 1, sizeof *c->offset);
}

/* Ranks of this host that may use exactly the cores of this one. */
static int count_sharers(const Comm *c) {
  int sharers = 0;
  for (int r = 0; c->size > 1 && r < c->size; r++) {
    const Identity *a = &c->peer[r].who, *b = &c->peer[c->rank].who;
    sharers += comm_is_same_host(a, b) && a->core_set == b->core_set;
  }
  return sharers;
}

/* Runs on the communication thread. */
static Err begin_comm(Comm *c) {
  const char *wrong = c->carrier->begin(&c->info);
  if (wrong) return err_set(ERR_WORK, "the ranks cannot be joined: %s", wrong);
  c->rank = c->info.rank;
  c->size = c->info.size;
  if (launcher_check_size(c->size, c->info.about) != ERR_OK) {
    c->carrier->end();
    return ERR_WORK;
  }
  TRY(alloc_work(c));
  size_t n = (size_t)c->size;
  Identity *all;
  TRY(mem_alloc(&all, n, sizeof *all));
  for (size_t r = 0; r <= n; r++) c->offset[r] = r * sizeof *all;
  identify(&all[c->rank]);
  watchdog_begin(c);
  comm_allgather(c, "meeting", all, c->offset);
  int hosts = 0;
  for (int r = 0; r < c->size; r++) {
    bool seen = false;
    for (int q = 0; q < r && !seen; q++) seen = comm_is_same_host(&all[q], &all[r]);
    hosts += !seen;
    bool here = comm_is_same_host(&all[r], &all[c->rank]);
    c->local_size += here;
    c->local_rank += here && r < c->rank;
    c->peer[r].who = all[r];
  }
  mem_free(all);
  c->crowded = count_sharers(c) > thread_cores();
  TRY(shared_open(c));
  snprintf(c->about, sizeof c->about, "%d ranks on %d host%s over %s%s", c->size, hosts,
           hosts == 1 ? "" : "s", c->info.about, c->shared ? " and shared memory" : "");
  return ERR_OK;
}

/* Runs the first job, or with none the watchdog alone. The lock is held before and after.
 * A thread that runs its own job wakes nobody: where cores are idle, a wake-up of the communication
 * thread would cost as much as a small sum. */
static void run_next(Comm *c) {
  CommJob *job = c->first;
  const Comm *before = running_here;
  if (job) c->first = job->next_;
  if (!c->first) c->last = NULL;
  c->running = true;
  c->patient = !pthread_equal(pthread_self(), c->thread);
  pthread_mutex_unlock(&c->lock);
  running_here = c;
  if (job) {
    c->doing = job->name;
    job->run(c, job->context);
    c->doing = NULL;
  }
  watchdog_look(c);
  running_here = before;
  pthread_mutex_lock(&c->lock);
  c->running = false;
  if (job) job->done_ = true;
  if (c->waiters) pthread_cond_broadcast(&c->job_done);
  if (c->first && c->idle) pthread_cond_signal(&c->job_queued);
}

/* Waits for `change`, for at most 50 ms; counts itself in *sleepers meanwhile. The lock is held before
 * and after. */
static void sleep_until(Comm *c, pthread_cond_t *change, int *sleepers) {
  ++*sleepers;
  thread_cond_wait_for(change, &c->lock, 0.05);
  --*sleepers;
}

static void *talk(void *argument) {
  Comm *c = argument;
  running_here = c;
  Err err = begin_comm(c);
  pthread_mutex_lock(&c->lock);
  if (err) c->error = err_take(err);
  c->ready = true;
  pthread_cond_broadcast(&c->job_done);
  while (!err && !(c->leaving && !c->first)) {
    if (!c->first || c->running) sleep_until(c, &c->job_queued, &c->idle);
    if (!c->running) run_next(c);
  }
  pthread_mutex_unlock(&c->lock);
  if (!err) watchdog_end(c);
  shared_close(c);
  if (!err && !c->failed) c->carrier->end();
  return NULL;
}

static void free_all(Comm *c) {
  void *list[] = {c->peer,      c->request,     c->term,        (void *)c->pair.send,
                  c->pair.recv, c->pair.send_n, c->pair.recv_n, c->sent,
                  c->sums,      c->offset};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) mem_free(list[i]);
  pthread_cond_destroy(&c->job_queued);
  pthread_cond_destroy(&c->job_done);
  pthread_mutex_destroy(&c->lock);
  pthread_mutex_destroy(&c->at_loss);
  mem_free(c); /* the plug-in stays loaded: MPI does not like to be unloaded */
}

Err comm_open(Comm **out, double silence) {
  Comm *c;
  *out = NULL;
  TRY(mem_alloc(&c, 1, sizeof *c));
  c->size = c->local_size = 1;
  c->silence = silence;
  c->remedy = "continue it from the last checkpoint with --resume";
  pthread_mutex_init(&c->lock, NULL);
  pthread_mutex_init(&c->at_loss, NULL);
  thread_cond_init(&c->job_queued);
  thread_cond_init(&c->job_done);
  snprintf(c->about, sizeof c->about, "one process");
  Err err = ERR_OK;
  long ranks;
  if (launcher_has_ranks(&ranks)) {
    c->local_size = 0;
    TRY_DONE(load_carrier(c, ranks));
    c->started = thread_start(&c->thread, talk, c);
    if (!c->started) TRY_DONE(err_set(ERR_WORK, "cannot start the communication thread"));
    pthread_mutex_lock(&c->lock);
    while (!c->ready) pthread_cond_wait(&c->job_done, &c->lock);
    pthread_mutex_unlock(&c->lock);
    if (c->error.code) {
      pthread_join(c->thread, NULL);
      err = err_give(&c->error);
    }
  }
done:
  if (err)
    free_all(c);
  else
    *out = c;
  return err;
}

void comm_advise(Comm *c, const char *remedy) {
  pthread_mutex_lock(&c->lock);
  c->remedy = remedy;
  pthread_mutex_unlock(&c->lock);
}

void comm_close(Comm *c, Err err) {
  if (!c) return;
  if (c->started) {
    pthread_mutex_lock(&c->lock);
    c->leaving = true;
    c->failed = err != ERR_OK;
    pthread_cond_broadcast(&c->job_queued);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
  }
  free_all(c);
}

int comm_rank(const Comm *c) {
  return c->rank;
}

int comm_size(const Comm *c) {
  return c->size;
}

int comm_local_size(const Comm *c) {
  return c->local_size;
}

int comm_local_rank(const Comm *c) {
  return c->local_rank;
}

const char *comm_about(const Comm *c) {
  return c->about;
}

const char *comm_host(const Comm *c, int r) {
  return c->size > 1 ? c->peer[r].who.host : "this machine";
}

bool comm_is_shared_host(const Comm *c, int a, int b) {
  return c->size == 1 || comm_is_same_host(&c->peer[a].who, &c->peer[b].who);
}

/* Ranks bound to the same cores share them. */
int comm_threads(const Comm *c) {
  int cores = thread_cores(), sharers = count_sharers(c);
  int mine = sharers > 1 ? cores / sharers : cores;
  return mine > 0 ? mine : 1;
}

void comm_at(Comm *c, double allowed, const char *fmt, ...) {
  if (c->size == 1) return;
  /* Tests lower every limit but COMM_WHILE_ALIVE, which is none. */
  if (isfinite(allowed))
    allowed = fmin(allowed, (double)fault_number("rank-limit", UINT64_MAX));
  va_list args;
  va_start(args, fmt);
  pthread_mutex_lock(&c->lock);
  vsnprintf(c->here.place, sizeof c->here.place, fmt, args);
  c->here.allowed = allowed > c->silence ? allowed : c->silence;
  c->here.ticks++;
  pthread_mutex_unlock(&c->lock);
  va_end(args);
}

void comm_waiting(Comm *c, bool waiting) {
  pthread_mutex_lock(&c->lock);
  c->here.waiting += waiting ? 1 : -1;
  c->here.ticks += !waiting;
  pthread_mutex_unlock(&c->lock);
}

void comm_at_loss(Comm *c, void (*act)(void *), void *context) {
  pthread_mutex_lock(&c->at_loss);
  c->loss = act, c->loss_context = context;
  pthread_mutex_unlock(&c->at_loss);
}

bool comm_on_thread(const Comm *c) {
  return c->size > 1 && running_here == c;
}

void comm_submit(Comm *c, CommJob *job) {
  job->next_ = NULL, job->done_ = false;
  if (c->size == 1) {
    job->run(c, job->context);
    job->done_ = true;
    return;
  }
  pthread_mutex_lock(&c->lock);
  if (c->last)
    c->last->next_ = job;
  else
    c->first = job;
  c->last = job;
  bool runs_itself = job->awaited && c->info.any_thread;
  if (!runs_itself && c->idle) pthread_cond_signal(&c->job_queued);
  pthread_mutex_unlock(&c->lock);
}

void comm_wait(Comm *c, CommJob *job) {
  if (c->size == 1) return;
  pthread_mutex_lock(&c->lock);
  c->here.waiting++;
  while (!job->done_) {
    if (c->first && !c->running && c->info.any_thread)
      run_next(c);
    else
      sleep_until(c, &c->job_done, &c->waiters);
  }
  c->here.waiting--;
  c->here.ticks++;
  pthread_mutex_unlock(&c->lock);
}

/* Soon first, then seldom: the cores belong to the model, and with more ranks than cores to the
 * rank that is waited for. A thread that has its core to itself does not yield it: on a busy
 * machine that would be for a whole time slice. */
static void pause_polling(const Comm *c, unsigned turn) {
  bool alone = c->patient && !c->crowded;
  unsigned soon = alone ? 2000 : 20;
  long pause = turn < soon + 180 ? 20000 : 100000;
  if (turn >= soon)
    nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
  else if (!alone)
    sched_yield();
}

void comm_settle(Comm *c, CarrierRequest *request, size_t n) {
  size_t done = 0;
  for (unsigned turn = 0; done < n; turn++) {
    bool over = false;
    comm_check(c, c->carrier->test(&request[done], &over));
    if (over) {
      done++;
      turn = 0;
      c->progress++;
      continue;
    }
    watchdog_look(c);
    pause_polling(c, turn);
  }
}
