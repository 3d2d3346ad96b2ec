/* The ranks of a run and what they do together. One process alone is a run of one
 * rank and loads nothing. Otherwise a thread of its own talks to the other ranks:
 * it runs jobs in the order in which they were given, which must be the same on
 * every rank; it tells the others where this rank is, several times a second; and
 * when one of them dies, hangs or fails it says who and where, and ends this rank.
 * Relies on base, and on a carrier from a plug-in. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "comm/bucket.h"
#include "comm/job.h"

/* What the environment of mpirun or srun says this process is; an error if it says
 * many ranks and MPI does not join them. `silence`: seconds after which a rank that
 * does not move is given up. */
NODISCARD Err comm_open(Comm **comm, double silence);
/* What to do when a rank is lost, at the end of the error that says so. A training's, "continue it
 * from the last checkpoint with --resume", unless it is set. The caller keeps the text. */
void comm_advise(Comm *comm, const char *remedy);
/* The last thing a rank does. After an error the others are told and ended. */
void comm_close(Comm *comm, Err err);

int comm_rank(const Comm *comm);
int comm_size(const Comm *comm);
int comm_local_size(const Comm *comm);       /* ranks on this host */
int comm_local_rank(const Comm *comm);       /* of them, before this one */
const char *comm_about(const Comm *comm);    /* "2 ranks on 1 host over Open MPI 4.1.4" */
int comm_threads(const Comm *comm);          /* cores this rank may use without stealing */
const char *comm_host(const Comm *c, int r); /* name of a rank's machine */
/* Are two ranks on one machine? Names do not decide it: two machines may have the same. */
bool comm_is_shared_host(const Comm *c, int a, int b);

/* Where this rank's work is, for the others to name, and how long it may be there.
 * Cheap; called whenever something was finished. allowed 0: the usual silence.
 * COMM_WHILE_ALIVE: as long as its heartbeats arrive, for what waits for a disk or for input and
 * may take any time. */
#define COMM_WHILE_ALIVE ((double)INFINITY)
void comm_at(Comm *comm, double allowed, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* This rank waits for the others by ways of its own (true), or no longer: until then it
 * need not move. When all wait so and nothing comes, that is found out too. */
void comm_waiting(Comm *comm, bool waiting);
/* What ends such ways when a rank is lost, before this one ends; NULL for nothing. It is
 * called on the thread that runs jobs, and not after this returns with another. */
void comm_at_loss(Comm *comm, void (*act)(void *context), void *context);

/* Submits a job (job.h) to the communication thread; comm_wait blocks until it has run, and may run
 * it in the calling thread. Jobs run one at a time, in the order in which they were submitted, which
 * must be the same on every rank. */
void comm_submit(Comm *comm, CommJob *job);
void comm_wait(Comm *comm, CommJob *job);

/* Collectives: every rank calls them in the same order, from a job or, waiting, from
 * anywhere else. They do not return when a rank is lost, or calls another collective or the same
 * one with another size: then the run has ended, with an error that names ranks and calls. */
void comm_broadcast(Comm *comm, const char *name, void *bytes, size_t n); /* from rank 0 */
/* Rank r's bytes lie at [off[r], off[r + 1]) of `all`, on every rank; those of the
 * caller are there already. */
void comm_allgather(Comm *comm, const char *name, void *all, const size_t *off);
/* Sends send[r], size send_n[r], to each rank r and receives recv[r], size recv_n[r];
 * none where the size is 0, and nothing from or to itself. */
void comm_exchange(Comm *comm, const char *name, const void *const *send, const size_t *send_n,
                   void *const *recv, const size_t *recv_n);
/* x[i] becomes the sum over the ranks, added in their order. n <= COMM_SUM_MOST */
#define COMM_SUM_MOST 64
void comm_sum(Comm *comm, const char *name, double *x, size_t n);
/* Sums a bucket of gradients over the ranks (bucket.h). */
void comm_reduce(Comm *comm, const char *name, const CommReduce *reduce);
/* Bytes of working memory for buckets of at most `bucket` elements and pieces of `piece`. */
size_t comm_reduce_work(const Comm *comm, size_t bucket, size_t piece, bool bf16);
/* Every rank's text on rank 0: list[r], to be freed with mem_free as one block. */
NODISCARD Err comm_gather_text(Comm *comm, const char *name, const char *text, size_t len,
                               char ***list);

#endif
