/* The ranks of a run and their collectives. A process that no launcher started is a run of one
 * rank and loads nothing. Otherwise a communication thread exchanges messages with the other
 * ranks. It runs jobs in the order of their submission, sends heartbeats five times a second, and
 * ends this rank with an error that names rank and place when another one dies, hangs or fails.
 * Threads: any thread may call, unless a function says otherwise. Depends on base and on a
 * transport plug-in (transport.h). */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "comm/bucket.h"
#include "comm/job.h"

/* Joins the ranks that mpirun or srun started; blocks until all have joined. An error if the
 * environment says that there are several and MPI cannot join them. `rank_timeout`: seconds without
 * a heartbeat after which a rank counts as lost. */
NODISCARD Err comm_open(Comm **comm, double rank_timeout);
/* Leaves the ranks; the last call of a rank. Without an error it blocks until all ranks leave. With
 * one, it reports the error to the other ranks, which then end too. */
void comm_close(Comm *comm, Err err);
/* Replaces the rank timeout, for a caller that learns it from rank 0. */
void comm_set_rank_timeout(Comm *comm, double seconds);
/* Sets what the error for a lost rank tells the user to do; "continue from the last checkpoint with
 * --resume" until then. The text must stay valid. */
void comm_set_remedy(Comm *comm, const char *remedy);

int comm_rank(const Comm *comm);
int comm_size(const Comm *comm);
/* The rank that has item i of a list that the ranks share; item i goes to rank i % ranks, so that
 * long and short items are spread evenly. */
int comm_owner(const Comm *comm, uint64_t item);
bool comm_owns(const Comm *comm, uint64_t item); /* is it this rank? */
int comm_local_size(const Comm *comm);           /* ranks on this host */
int comm_local_rank(const Comm *comm);           /* number of this rank among them */
const char *comm_about(const Comm *comm);        /* "2 ranks on 1 host over Open MPI 4.1.4" */
int comm_threads(const Comm *comm);              /* this rank's share of the cores it may use */
const char *comm_host(const Comm *c, int r);     /* host name of rank r */
/* Are two ranks on one machine? Decided by the kernel's boot id too: two machines may have one
 * name. */
bool comm_is_shared_host(const Comm *c, int a, int b);

/* Reports progress and what this rank does next, for the errors of other ranks ("step 840,
 * backward"). `limit`: seconds within which the next report or wait must follow, or this rank
 * counts as lost; at least the rank timeout. Cheap. */
void comm_report(Comm *comm, double limit, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* No limit, as long as heartbeats arrive: for a rank that waits for a disk or for input. */
#define COMM_NO_LIMIT ((double)INFINITY)

/* Marks a thread of this rank as blocked in a transport that the watchdog cannot observe (NCCL).
 * Until comm_end_wait no progress is expected of this rank; if every rank waits and nothing
 * moves, the watchdog reports a deadlock. */
void comm_begin_wait(Comm *comm);
void comm_end_wait(Comm *comm);
/* Sets what ends that transport when a rank is lost, before this one ends; NULL: nothing. The
 * runner of the queue (queue.h) calls it. When this returns, the function set before is not
 * running and will not be called. */
void comm_set_on_loss(Comm *comm, void (*act)(void *context), void *context);

/* Submits a job (job.h) to the communication thread; comm_wait blocks until it has run, and may
 * run it in the calling thread. Jobs run one at a time, in the order in which they were
 * submitted, which must be the same on every rank. */
void comm_submit(Comm *comm, CommJob *job);
void comm_wait(Comm *comm, CommJob *job);

/* Collectives. Every rank calls them in the same order, inside a job or outside. They block until
 * this rank's part is complete. They do not return when a rank is lost, or runs another
 * collective or the same one with another size: then the run ends, with an error that names ranks
 * and calls. */
void comm_broadcast(Comm *comm, const char *name, void *bytes, size_t n); /* from rank 0 */
/* all: on every rank, rank r's bytes are at [off[r], off[r + 1]); the caller fills in its own. */
void comm_allgather(Comm *comm, const char *name, void *all, const size_t *off);
/* All-to-all: sends send[r] (send_n[r] bytes) to each rank r and receives recv[r] (recv_n[r]
 * bytes); nothing where the size is 0, and nothing from or to itself. */
void comm_exchange(Comm *comm, const char *name, const void *const *send, const size_t *send_n,
                   void *const *recv, const size_t *recv_n);
/* All-reduce: x[i] becomes the sum over the ranks, added in their order. n <= COMM_SUM_MAX */
#define COMM_SUM_MAX 64
void comm_sum(Comm *comm, const char *name, double *x, size_t n);
/* All-reduce or reduce-scatter of a bucket of gradients (bucket.h). */
void comm_reduce(Comm *comm, const char *name, const CommReduce *reduce);
/* Bytes of CommReduce.work for buckets of at most `bucket` elements and pieces of `piece`. */
size_t comm_reduce_work(const Comm *comm, size_t bucket, size_t piece, bool bf16);
/* Gathers every rank's text: list[r], to be freed with mem_free as one block. */
NODISCARD Err comm_gather_text(Comm *comm, const char *name, const char *text, size_t len,
                               char ***list);

#endif
