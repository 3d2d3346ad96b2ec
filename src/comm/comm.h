/* The ranks of a run and their collectives. A process that no MPI launcher started is a run
 * of one rank; it does not load MPI. Otherwise a communication thread exchanges messages
 * with the other ranks: it runs jobs in the order of their submission and sends heartbeats
 * five times a second. If another rank dies, hangs or fails, it ends this rank with an error
 * that names that rank and what it last reported. Threads: any thread may call, unless a
 * function says otherwise. Depends on base and on a transport plug-in (transport.h). */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "comm/bucket.h"
#include "comm/job.h"

/* Joins the ranks that mpirun or srun started; blocks until all have joined. Fails if the
 * environment variables of the launcher show several ranks and MPI cannot connect them.
 * `rank_timeout`: seconds without a heartbeat after which a rank counts as lost. */
NODISCARD Err comm_open(Comm **comm, double rank_timeout);
/* Ends communication; must be the last call. With ERR_OK it blocks until all ranks call it.
 * With an error it reports the failure to the other ranks, which then exit too. */
void comm_close(Comm *comm, Err err);
/* Replaces the rank timeout. Ranks other than 0 call it after rank 0 has sent them its
 * options. */
void comm_set_rank_timeout(Comm *comm, double seconds);
/* Sets the advice at the end of the error for a lost rank. Default: "start it again". The
 * text is not copied. */
void comm_set_remedy(Comm *comm, const char *remedy);

int comm_rank(const Comm *comm);
int comm_size(const Comm *comm);
/* Returns the rank that processes item i of a list divided among the ranks: i % ranks. Long
 * and short items are thereby spread evenly. */
int comm_owner(const Comm *comm, uint64_t item);
bool comm_owns(const Comm *comm, uint64_t item); /* true if comm_owner() is this rank */
int comm_local_size(const Comm *comm);           /* ranks on this host */
int comm_local_rank(const Comm *comm); /* number of this rank among the ranks on this host */
/* For example "2 ranks on 1 host over Open MPI 4.1.4" */
const char *comm_about(const Comm *comm);
/* CPU threads for this rank: its cores, divided by the ranks that share them */
int comm_threads(const Comm *comm);
/* This rank's cores, divided by the ranks that share them; less than 1 if there are more ranks. */
double comm_cores(const Comm *comm);
const char *comm_host(const Comm *c, int r); /* host name of rank r */
/* Returns the process id of rank r, or 0 if it cannot be used here because r is on another host or
 * in another pid namespace. */
int comm_pid(const Comm *c, int r);
/* Returns true if two ranks are on one machine. Compares the kernel's boot_id and the host
 * name, because two machines may have the same name. */
bool comm_is_shared_host(const Comm *c, int a, int b);

/* Bytes that this rank has sent and received so far in messages (MPI), without heartbeats. What
 * ranks of one host exchange in shared memory is not a message. */
typedef struct {
  uint64_t sent, received;
} CommTraffic;
CommTraffic comm_traffic(const Comm *c);

/* A collective that this rank has completed. */
typedef struct {
  uint64_t number; /* number of the collective, the same on every rank */
  const char
      *kind; /* "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast" */
  const char *name;  /* what was sent, such as "gradients" */
  uint64_t bytes;    /* size of the whole array; 0 if ranks may pass different sizes */
  int64_t bucket;    /* index of the bucket of gradients; -1: not a bucket */
  double start, end; /* progress_clock() */
} CommEvent;
/* Sets a function that is called after each collective, by the thread that ran it; NULL: none.
 * Without it no time is measured. Call it while no collective is running. A run of one rank has
 * no collectives. */
typedef void (*CommObserver)(void *context, const CommEvent *event);
void comm_set_observer(Comm *comm, CommObserver observer, void *context);

/* Reports progress: stores a text such as "step 840, backward", which other ranks print if this
 * rank is lost. This rank counts as lost if it does not call comm_report or comm_begin_wait
 * again within `limit` seconds or the rank timeout, whichever is longer. Costs a mutex and a
 * snprintf. */
void comm_report(Comm *comm, double limit, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* A `limit` for operations of unknown length (disk, standard input): the rank counts as lost
 * only if its heartbeats stop. */
#define COMM_NO_LIMIT ((double)INFINITY)

/* Marks a thread of this rank as blocked in a transport that the watchdog cannot observe
 * (NCCL). Until comm_end_wait no progress is expected of this rank; if every rank waits and
 * none makes progress, the watchdog reports a deadlock. */
void comm_begin_wait(Comm *comm);
void comm_end_wait(Comm *comm);
/* Sets a function that aborts the other transport (NCCL) when a rank is lost, before this
 * process exits; NULL: none. The queue's runner (queue.h) calls it. After comm_set_on_loss
 * returns, the previous function is not running and will not be called again. */
void comm_set_on_loss(Comm *comm, void (*act)(void *context), void *context);

/* Posts: short messages to rank 0 that nobody waits for (post.h). comm_open_posts is called by all
 * ranks or none, once, before the other functions; these never block. Only the first rank of
 * each host other than rank 0's may call comm_post; it returns false if the post is dropped.
 * comm_take_post copies one post to `bytes` (COMM_POST_BYTES) on rank 0. */
#define COMM_POST_BYTES 16384
NODISCARD Err comm_open_posts(Comm *comm);
bool comm_post(Comm *comm, const void *bytes, size_t n);
bool comm_take_post(Comm *comm, void *bytes, size_t *n);
/* Returns the number of posts that this rank has dropped so far. */
uint64_t comm_dropped_posts(Comm *comm);

/* comm_submit queues a job (job.h) for the communication thread; comm_wait blocks until the
 * job has run, and may run it in the calling thread. Jobs run one at a time, in the order of
 * their submission, which must be the same on every rank. */
void comm_submit(Comm *comm, CommJob *job);
void comm_wait(Comm *comm, CommJob *job);

/* Collectives. All ranks call the same collectives in the same order, inside a job or
 * outside. A call blocks until this rank has received its result. If a rank is lost, or
 * calls another collective or the same one with another size, the call does not return: the
 * run ends with an error that names the ranks and their calls. */
/* Copies n bytes of rank 0 to all ranks. */
void comm_broadcast(Comm *comm, const char *name, void *bytes, size_t n);
/* Rank r's bytes are at [off[r], off[r + 1]) of `all`, on every rank; a rank fills in its
 * own. */
void comm_allgather(Comm *comm, const char *name, void *all, const size_t *off);
/* All-to-all: sends send_n[r] bytes at send[r] to each other rank r, and receives recv_n[r]
 * bytes into recv[r]. Sizes may be 0; the entries of the calling rank are ignored. */
void comm_exchange(Comm *comm, const char *name, const void *const *send, const size_t *send_n,
                   void *const *recv, const size_t *recv_n);
/* All-reduce: replaces x[i] with the sum of x[i] over all ranks, added in rank order; n <=
 * COMM_SUM_MAX. */
#define COMM_SUM_MAX 64
void comm_sum(Comm *comm, const char *name, double *x, size_t n);
/* All-reduce or reduce-scatter of a bucket of gradients (bucket.h). */
void comm_reduce(Comm *comm, const char *name, const CommReduce *reduce);
/* Returns the bytes of CommReduce.work for buckets of at most `bucket` elements and pieces
 * of at most `piece` elements. */
size_t comm_reduce_work(const Comm *comm, size_t bucket, size_t piece, bool bf16);
/* Gathers one text of every rank into *list, which has an entry per rank. Free it with
 * mem_free(*list), which frees the texts too. */
NODISCARD Err comm_gather_text(Comm *comm, const char *name, const char *text, size_t len,
                               char ***list);

#endif
