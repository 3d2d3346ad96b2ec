/* The communication thread: its start, its queue of jobs, its end. Relies on
 * carrier, watchdog. */
#include "comm/comm.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

static void identify(Identity *who) {
  struct stat space;
  gethostname(who->host, HOST_MAX - 1);
  who->pid = (int32_t)getpid();
  who->pid_space = stat("/proc/self/ns/pid", &space) == 0 ? (uint64_t)space.st_ino : 0;
  who->cores = thread_cores();
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  who->core_set = rng_hash(&set, sizeof set, 0);
}

/* Runs on the communication thread. */
static Err begin(Comm *c) {
  char carrier[64] = "";
  const char *wrong = c->carrier->begin(&c->rank, &c->size, carrier);
  if (wrong) return err_set(ERR_WORK, "the ranks cannot be joined: %s", wrong);
  if (launcher_check_size(c->size, carrier) != ERR_OK) {
    c->carrier->end();
    return ERR_WORK;
  }
  size_t n = (size_t)c->size;
  TRY(mem_alloc(&c->peer, n, sizeof *c->peer));
  TRY(mem_alloc(&c->request, 2 * n, sizeof *c->request));
  TRY(mem_alloc(&c->sums, n * COMM_SUM_MOST, sizeof *c->sums));
  TRY(mem_alloc(&c->offset, n + 1, sizeof *c->offset));
  Identity *all;
  TRY(mem_alloc(&all, n, sizeof *all));
  for (size_t r = 0; r <= n; r++) c->offset[r] = r * sizeof *all;
  identify(&all[c->rank]);
  watchdog_begin(c);
  comm_allgather(c, "meeting", all, c->offset);
  int hosts = 0;
  for (int r = 0; r < c->size; r++) {
    bool seen = false;
    for (int q = 0; q < r && !seen; q++) seen = strcmp(all[q].host, all[r].host) == 0;
    hosts += !seen;
    bool here = strcmp(all[r].host, all[c->rank].host) == 0;
    c->local_size += here;
    c->local_rank += here && r < c->rank;
    c->peer[r].who = all[r];
  }
  mem_free(all);
  snprintf(c->about, sizeof c->about, "%d ranks on %d host%s over %s", c->size, hosts,
           hosts == 1 ? "" : "s", carrier);
  return ERR_OK;
}

static void wait_a_little(Comm *c) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 50 * 1000 * 1000;
  if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
  pthread_cond_timedwait(&c->changed, &c->lock, &until);
}

static void *talk(void *argument) {
  Comm *c = argument;
  Err err = begin(c);
  pthread_mutex_lock(&c->lock);
  if (err) c->error = err_take(err);
  c->ready = true;
  pthread_cond_broadcast(&c->changed);
  while (!err && !(c->leaving && !c->first)) {
    CommJob *job = c->first;
    if (!job) wait_a_little(c);
    if (job) {
      c->first = job->next_;
      if (!c->first) c->last = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    if (job) {
      c->doing = job->name;
      job->run(c, job->context);
      c->doing = NULL;
    }
    watchdog_look(c);
    pthread_mutex_lock(&c->lock);
    if (job) job->done_ = true;
    if (job) pthread_cond_broadcast(&c->changed);
  }
  pthread_mutex_unlock(&c->lock);
  if (!err) watchdog_end(c);
  if (!err && !c->failed) c->carrier->end();
  return NULL;
}

/* Signals are the main thread's business. */
static bool start_thread(Comm *c) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = pthread_create(&c->thread, NULL, talk, c) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}

static void free_all(Comm *c) {
  mem_free(c->peer);
  mem_free(c->request);
  mem_free(c->sums);
  mem_free(c->offset);
  pthread_cond_destroy(&c->changed);
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
  pthread_cond_init(&c->changed, NULL);
  snprintf(c->about, sizeof c->about, "one process");
  Err err = ERR_OK;
  long ranks;
  if (launcher_has_ranks(&ranks)) {
    c->local_size = 0;
    TRY_DONE(load_carrier(c, ranks));
    c->started = start_thread(c);
    if (!c->started) TRY_DONE(err_set(ERR_WORK, "cannot start the communication thread"));
    pthread_mutex_lock(&c->lock);
    while (!c->ready) pthread_cond_wait(&c->changed, &c->lock);
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
    pthread_cond_broadcast(&c->changed);
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

/* Ranks bound to the same cores share them. */
int comm_threads(const Comm *c) {
  int cores = thread_cores(), sharers = 0;
  for (int r = 0; c->size > 1 && r < c->size; r++) {
    const Identity *a = &c->peer[r].who, *b = &c->peer[c->rank].who;
    sharers += strcmp(a->host, b->host) == 0 && a->core_set == b->core_set;
  }
  int mine = sharers > 1 ? cores / sharers : cores;
  return mine > 0 ? mine : 1;
}

void comm_at(Comm *c, double allowed, const char *fmt, ...) {
  if (c->size == 1) return;
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
  return c->size > 1 && pthread_equal(pthread_self(), c->thread);
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
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

void comm_wait(Comm *c, CommJob *job) {
  if (c->size == 1) return;
  pthread_mutex_lock(&c->lock);
  c->here.waiting++;
  while (!job->done_) pthread_cond_wait(&c->changed, &c->lock);
  c->here.waiting--;
  c->here.ticks++;
  pthread_mutex_unlock(&c->lock);
}

void comm_settle(Comm *c, CarrierRequest *request, size_t n) {
  size_t done = 0;
  for (unsigned turn = 0; done < n; turn++) {
    bool over = false;
    const char *wrong = c->carrier->test(&request[done], &over);
    if (wrong) comm_die(c, "'%s' failed: %s", c->doing ? c->doing : "start", wrong);
    if (over) {
      done++, turn = 0;
      continue;
    }
    watchdog_look(c);
    /* Soon first, then seldom: the cores belong to the model. */
    long pause = turn < 20 ? 0 : turn < 200 ? 20000 : 100000;
    if (pause)
      nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    else
      sched_yield();
  }
}
