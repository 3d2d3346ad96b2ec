/* Start and end of communication, and the functions that other modules call. A Comm holds
 * the queue, the watchdog, the heartbeats and the collectives. Depends on all files of this
 * module except reduce. */
#include "comm/comm.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/event.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/plugin.h"
#include "base/progress.h"
#include "base/thread.h"
#include "comm/collective.h"
#include "comm/connect.h"
#include "comm/launcher.h"
#include "comm/post.h"
#include "comm/queue.h"

/* Seconds within which all ranks must be connected after MPI has started. Longer than the
 * kernel retries a connection when packets are lost. */
#define CONNECT_LIMIT 120

/* Seconds for which a rank waits at the end of a run until its last post is sent. */
#define POST_LIMIT 5

_Static_assert(COMM_POST_BYTES == POST_BYTES, "both headers have the same limit");
_Static_assert(COMM_SUM_MAX == COLLECTIVE_SUM_MAX, "both headers have the same limit");

struct Comm {
  Group group;
  Sequence sequence;
  Heartbeats heartbeats;
  Watchdog watchdog;
  Collectives collectives;
  Queue queue;
  Posts *posts; /* NULL: not opened */
  Plugin plugin;
  CommObserver observer; /* NULL: none */
  void *observer_context;
  char about[160];
  pthread_t thread;
  bool is_started; /* the communication thread is running */
  /* The communication thread has joined the ranks or failed with `error`; guarded by
   * queue.lock. */
  bool is_ready;
  ErrRecord error;
  bool has_failed; /* comm_close was called with an error */
};

static Err load_transport(Comm *c, long ranks) {
  TRY(launcher_check());
  char count[32] = "several";
  if (ranks) snprintf(count, sizeof count, "%ld", ranks);
  if (plugin_open(&c->plugin, "libtrireme-mpi.so") != ERR_OK)
    return err_context(
        "%s ranks were started, but MPI is not available (install libopenmpi-dev and run make "
        "again)",
        count);
  return plugin_symbol(&c->plugin, TRANSPORT_SYMBOL, &c->group.transport);
}

/* Exchanges host name, pid and cores between all ranks (all-gather). */
static Err gather_identities(Comm *c) {
  Group *g = &c->group;
  size_t n = (size_t)g->size, *off;
  Identity *all;
  TRY(mem_alloc(&all, n, sizeof *all));
  Err err;
  TRY_DONE(mem_alloc(&off, n + 1, sizeof *off));
  for (size_t r = 0; r <= n; r++) off[r] = r * sizeof *all;
  identity_read(&all[g->rank]);
  collective_run(
      &c->collectives,
      &(Call){.kind = OP_ALLGATHER, .name = "meeting", .bytes = (char *)all, .off = off});
  memcpy(g->identity, all, n * sizeof *all);
  mem_free(off);
done:
  mem_free(all);
  return err;
}

/* Starts the transport and exchanges identities with the other ranks. Runs on the
 * communication thread. */
static Err join_ranks(Comm *c) {
  Group *g = &c->group;
  const char *wrong = g->transport->begin(&g->info);
  if (wrong)
    return err_set(ERR_WORK,
                   "MPI cannot connect the ranks: %s; start them with the mpirun of the MPI "
                   "that libtrireme-mpi.so was built with",
                   wrong);
  event_joined();
  g->rank = g->info.rank;
  g->size = g->info.size;
  TRY(connect_ranks(g, (double)fault_number("connect-limit", CONNECT_LIMIT)));
  wrong = g->transport->separate();
  if (wrong) return err_set(ERR_WORK, "MPI cannot duplicate its communicator: %s", wrong);
  if (launcher_check_size(g->size, g->info.about) != ERR_OK) {
    g->transport->end();
    return ERR_WORK;
  }
  TRY(mem_alloc(&g->identity, (size_t)g->size, sizeof *g->identity));
  TRY(sequence_init(&c->sequence, g->size, g->info.tag_max));
  TRY(heartbeat_begin(&c->heartbeats, g, &c->sequence));
  watchdog_begin(&c->watchdog, &c->heartbeats);
  TRY(collective_init(&c->collectives, g, &c->sequence, &c->watchdog));
  TRY(gather_identities(c));
  group_count(g);
  collective_share_memory(&c->collectives);
  snprintf(c->about, sizeof c->about, "%d ranks on %d host%s over %s%s", g->size, g->hosts,
           g->hosts == 1 ? "" : "s", g->info.about,
           c->collectives.has_segment ? " and shared memory" : "");
  return ERR_OK;
}

/* Waits until this rank's last post is sent: MPI may hang at its end if a message was not received.
 * Rank 0 receives posts until all ranks have reached the end. */
static void finish_posts(Comm *c) {
  double limit = progress_clock() + POST_LIMIT;
  while (c->posts && post_is_sending(c->posts) && progress_clock() < limit) {
    watchdog_look(&c->watchdog);
    post_move(c->posts);
    sleep_seconds(0.001);
  }
}

/* Ends communication. After an error: reports the failure to the other ranks in a heartbeat.
 * Otherwise: blocks until every rank leaves. */
static void leave_ranks(Comm *c) {
  if (c->has_failed) {
    if (heartbeat_rank0_fails(&c->heartbeats)) log_mute();
    heartbeat_send_failure(&c->heartbeats);
    return;
  }
  double none = 0;
  finish_posts(c);
  collective_run(&c->collectives,
                 &(Call){.kind = OP_SUM, .name = "end", .x = &none, .n = sizeof none});
  heartbeat_cancel(&c->heartbeats);
  if (c->posts) post_cancel(c->posts);
  c->group.transport->end();
}

static void *run_communication(void *argument) {
  Comm *c = argument;
  Err err = join_ranks(c);
  queue_begin(&c->queue, &c->collectives.messages, c->group.info.any_thread);
  pthread_mutex_lock(&c->queue.lock);
  if (err) c->error = err_take(err);
  c->is_ready = true;
  pthread_cond_broadcast(&c->queue.job_done);
  pthread_mutex_unlock(&c->queue.lock);
  if (err) return NULL;
  queue_serve(&c->queue);
  leave_ranks(c);
  return NULL;
}

static void free_comm(Comm *c) {
  collective_free(&c->collectives);
  sequence_free(&c->sequence);
  heartbeat_free(&c->heartbeats);
  queue_free(&c->queue);
  post_free(c->posts);
  mem_free(c->group.identity);
  mem_free(c); /* do not unload the plug-in: MPI libraries may crash when they are unloaded */
}

/* Starts the communication thread and waits until it has joined the ranks. */
static Err start_communication(Comm *c) {
  c->is_started = thread_start(&c->thread, run_communication, c);
  if (!c->is_started)
    return err_set(ERR_WORK,
                   "cannot start the communication thread; raise the limit of processes and "
                   "threads (ulimit -u)");
  pthread_mutex_lock(&c->queue.lock);
  while (!c->is_ready) pthread_cond_wait(&c->queue.job_done, &c->queue.lock);
  pthread_mutex_unlock(&c->queue.lock);
  if (!c->error.code) return ERR_OK;
  pthread_join(c->thread, NULL);
  return err_give(&c->error);
}

/* One process knows its host too: traces and records name it. */
static Err read_own_identity(Group *g) {
  TRY(mem_alloc(&g->identity, 1, sizeof *g->identity));
  identity_read(g->identity);
  return ERR_OK;
}

Err comm_open(Comm **out, double rank_timeout) {
  Comm *c;
  *out = NULL;
  TRY(mem_alloc(&c, 1, sizeof *c));
  c->group.size = 1;
  c->group.local_size = 1;
  heartbeat_init(&c->heartbeats, rank_timeout, "start it again");
  queue_init(&c->queue, c);
  snprintf(c->about, sizeof c->about, "one process");
  Err err = ERR_OK;
  long ranks;
  if (launcher_has_ranks(&ranks)) {
    TRY_DONE(load_transport(c, ranks));
    TRY_DONE(start_communication(c));
  } else {
    TRY_DONE(read_own_identity(&c->group));
  }
done:
  if (err)
    free_comm(c);
  else
    *out = c;
  return err;
}

void comm_close(Comm *c, Err err) {
  if (!c) return;
  if (c->is_started) {
    c->has_failed = err != ERR_OK;
    queue_close(&c->queue);
    pthread_join(c->thread, NULL);
  }
  free_comm(c);
}

void comm_set_rank_timeout(Comm *c, double seconds) {
  heartbeat_set_rank_timeout(&c->heartbeats, seconds);
}

void comm_set_remedy(Comm *c, const char *remedy) {
  heartbeat_set_remedy(&c->heartbeats, remedy);
}

int comm_rank(const Comm *c) {
  return c->group.rank;
}

int comm_size(const Comm *c) {
  return c->group.size;
}

int comm_owner(const Comm *comm, uint64_t item) {
  return (int)(item % (uint64_t)comm_size(comm));
}

bool comm_owns(const Comm *comm, uint64_t item) {
  return comm_owner(comm, item) == comm_rank(comm);
}

int comm_local_size(const Comm *c) {
  return c->group.local_size;
}

int comm_local_rank(const Comm *c) {
  return c->group.local_rank;
}

const char *comm_about(const Comm *c) {
  return c->about;
}

CommTraffic comm_traffic(const Comm *c) {
  const Messages *m = &c->collectives.messages;
  return (CommTraffic){.sent = m->sent, .received = m->received};
}

static bool is_alone(const Comm *c) {
  return c->group.size == 1;
}

const char *comm_host(const Comm *c, int r) {
  return group_host(&c->group, r);
}

int comm_pid(const Comm *c, int r) {
  return is_alone(c) ? (int)getpid() : group_pid(&c->group, r);
}

bool comm_is_shared_host(const Comm *c, int a, int b) {
  return is_alone(c) || group_is_same_host(&c->group, a, b);
}

double comm_cores(const Comm *c) {
  double cores = thread_cores();
  return is_alone(c) ? cores : cores / group_count_core_sharers(&c->group);
}

int comm_threads(const Comm *c) {
  int cores = thread_cores();
  if (is_alone(c)) return cores > 0 ? cores : 1;
  /* Divide by the ranks that share these cores, this rank included. */
  int mine = cores / group_count_core_sharers(&c->group);
  return mine > 0 ? mine : 1;
}

Err comm_open_posts(Comm *c) {
  if (is_alone(c)) return ERR_OK;
  TRY(post_open(&c->posts, &c->group));
  c->watchdog.posts = c->posts;
  return ERR_OK;
}

bool comm_post(Comm *c, const void *bytes, size_t n) {
  return c->posts && post_add(c->posts, bytes, n);
}

bool comm_take_post(Comm *c, void *bytes, size_t *n) {
  return c->posts && post_take(c->posts, bytes, n);
}

uint64_t comm_dropped_posts(Comm *c) {
  return c->posts ? post_dropped(c->posts) : 0;
}

void comm_report(Comm *c, double limit, const char *fmt, ...) {
  event_alive();
  if (is_alone(c)) return;
  /* Fault injection lowers every limit except COMM_NO_LIMIT. */
  if (isfinite(limit)) limit = fmin(limit, (double)fault_number("rank-limit", UINT64_MAX));
  va_list args;
  va_start(args, fmt);
  heartbeat_set_place(&c->heartbeats, limit, fmt, args);
  va_end(args);
}

void comm_begin_wait(Comm *c) {
  heartbeat_begin_wait(&c->heartbeats);
}

void comm_end_wait(Comm *c) {
  heartbeat_end_wait(&c->heartbeats);
}

void comm_set_on_loss(Comm *c, void (*act)(void *), void *context) {
  heartbeat_set_on_loss(&c->heartbeats, act, context);
}

void comm_submit(Comm *c, CommJob *job) {
  if (is_alone(c))
    job->run(c, job->context);
  else
    queue_submit(&c->queue, job);
}

void comm_wait(Comm *c, CommJob *job) {
  if (is_alone(c)) return;
  heartbeat_begin_wait(&c->heartbeats);
  queue_wait(&c->queue, job);
  heartbeat_end_wait(&c->heartbeats);
}

void comm_set_observer(Comm *c, CommObserver observer, void *context) {
  c->observer = observer;
  c->observer_context = context;
}

static const char *get_kind_name(const Call *call) {
  switch (call->kind) {
    case OP_BROADCAST:
      return "broadcast";
    case OP_ALLGATHER:
      return "all-gather";
    case OP_EXCHANGE:
      return "all-to-all";
    case OP_SUM:
      return "all-reduce";
    case OP_REDUCE:
      break;
  }
  return bucket_is_shared(call->reduce) ? "all-reduce" : "reduce-scatter";
}

static void run_observed(Comm *c, const Call *call) {
  double start = progress_clock();
  collective_run(&c->collectives, call);
  const Op *op = sequence_current(&c->sequence);
  CommEvent event = {.number = op->seq,
                     .kind = get_kind_name(call),
                     .name = call->name,
                     .bytes = op->bytes,
                     .bucket = call->reduce ? call->reduce->bucket : -1,
                     .start = start,
                     .end = progress_clock()};
  c->observer(c->observer_context, &event);
}

static void run_call(Comm *c, void *context) {
  if (c->observer)
    run_observed(c, context);
  else
    collective_run(&c->collectives, context);
}

/* Runs a collective. Inside a job it runs directly; otherwise it is submitted as a job and
 * awaited. */
static void call_collective(Comm *c, Call *call) {
  if (is_alone(c)) return;
  if (queue_is_runner(&c->queue)) {
    run_call(c, call);
    return;
  }
  CommJob job = {.run = run_call, .context = call, .awaited = true};
  comm_submit(c, &job);
  comm_wait(c, &job);
}

void comm_broadcast(Comm *c, const char *name, void *bytes, size_t n) {
  call_collective(c, &(Call){.kind = OP_BROADCAST, .name = name, .bytes = bytes, .n = n});
}

void comm_allgather(Comm *c, const char *name, void *all, const size_t *off) {
  call_collective(c, &(Call){.kind = OP_ALLGATHER, .name = name, .bytes = all, .off = off});
}

void comm_exchange(Comm *c, const char *name, const void *const *send, const size_t *send_n,
                   void *const *recv, const size_t *recv_n) {
  Call call = {.kind = OP_EXCHANGE,
               .name = name,
               .send = send,
               .recv = recv,
               .send_n = send_n,
               .recv_n = recv_n};
  call_collective(c, &call);
}

void comm_sum(Comm *c, const char *name, double *x, size_t n) {
  call_collective(c, &(Call){.kind = OP_SUM, .name = name, .x = x, .n = n * sizeof *x});
}

/* With a single rank there is nothing to exchange: only the rounds of a step are added. */
static void reduce_alone(const CommReduce *r) {
  Term own = {r->g, r->bf16 ? TERM_ROUNDED : TERM_FP32};
  Addition a = {.term = &own,
                .terms = 1,
                .before = r->first ? NULL : r->sum,
                .bf16 = r->bf16 && r->last,
                .sum = r->last ? r->g : r->sum};
  add_terms(&a, r->off[1]);
}

void comm_reduce(Comm *c, const char *name, const CommReduce *r) {
  if (is_alone(c))
    reduce_alone(r);
  else
    call_collective(c, &(Call){.kind = OP_REDUCE, .name = name, .reduce = r});
}

size_t comm_reduce_work(const Comm *c, size_t bucket, size_t piece, bool bf16) {
  return is_alone(c) ? 0 : collective_reduce_work(&c->collectives, bucket, piece, bf16);
}

/* Gathers the lengths first, then the texts. Uses an all-gather, so every rank receives all
 * texts. */
Err comm_gather_text(Comm *c, const char *name, const char *text, size_t len, char ***list) {
  size_t ranks = (size_t)comm_size(c), rank = (size_t)comm_rank(c), *off;
  uint64_t *length;
  char *bytes = NULL, **out = NULL;
  *list = NULL;
  TRY(mem_alloc(&length, ranks, sizeof *length));
  Err err;
  TRY_DONE(mem_alloc(&off, ranks + 1, sizeof *off));
  for (size_t r = 0; r <= ranks; r++) off[r] = r * sizeof *length;
  length[rank] = len + 1;
  comm_allgather(c, name, length, off);
  off[0] = ranks * sizeof *out;
  for (size_t r = 0; r < ranks; r++) off[r + 1] = off[r] + length[r];
  TRY_DONE(mem_alloc(&bytes, off[ranks], 1));
  memcpy(bytes + off[rank], text, len);
  comm_allgather(c, name, bytes, off);
  out = (char **)(void *)bytes;
  for (size_t r = 0; r < ranks; r++) out[r] = bytes + off[r];
  *list = out;
done:
  mem_free(length);
  mem_free(off);
  return err;
}
