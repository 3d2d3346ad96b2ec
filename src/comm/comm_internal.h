/* What the files of this room share: the state of a run of several ranks, and the doors between
 * the communication thread (comm.c), the collectives (collective.c by messages, shared.c in shared
 * memory), the check that all ranks run the same ones (sequence.c) and the watchdog (watchdog.c).
 *
 * Threads: the communication thread, or a thread that waits for a job, runs jobs and the watchdog.
 * Only one does at a time (`running`, under the lock); it alone calls the carrier and touches what
 * stands behind `runner's`. */
#ifndef COMM_INTERNAL_H
#define COMM_INTERNAL_H

#include <pthread.h>

#include "base/plugin.h"
#include "comm/add.h"
#include "comm/carrier.h"
#include "comm/comm.h"

#define HOST_MAX  64
#define PLACE_MAX 96

/* Who a rank is: exchanged once. */
typedef struct {
  char host[HOST_MAX];
  uint64_t machine;   /* hash of the kernel's boot_id: two machines may have one name */
  uint64_t pid_space; /* process numbers compare within it only */
  uint64_t core_set;  /* hash of the cores it may use */
  int32_t pid, cores;
} Identity;

/* A collective as one rank runs it. Collective number `seq` must be the same on every rank. */
#define OP_NAME 28
#define HISTORY 8 /* collectives that a rank remembers */
typedef enum { OP_BROADCAST, OP_ALLGATHER, OP_EXCHANGE, OP_SUM, OP_REDUCE } OpKind;
typedef struct {
  uint64_t seq;   /* counts from 1; 0: none */
  uint64_t hash;  /* of kind, name, bytes and the offsets or flags that all ranks know */
  uint64_t bytes; /* 0 where each rank knows only its own part */
  int32_t kind;
  char name[OP_NAME];
} Op;

/* Where a rank is: sent several times a second. */
typedef enum { NOTE_HERE, NOTE_FAILED } NoteKind;
typedef struct {
  int32_t kind;
  int32_t waiting; /* its work waits for other ranks */
  uint64_t ticks;  /* grows whenever something was finished */
  double allowed;  /* seconds until the next tick is overdue */
  char place[PLACE_MAX];
  uint64_t progress;     /* grows whenever a message or a part of a collective is complete */
  uint64_t doing;        /* number of the collective at hand; 0: none */
  uint64_t expect_seq;   /* in this collective, an exchange, it expects … */
  uint64_t expect_bytes; /* … so many bytes from the rank that reads this */
  Op op[HISTORY];        /* the last collectives it began */
} Note;

typedef struct {
  Identity who;
  Note note, out;
  Note in; /* being received */
  CarrierRequest receive, send;
  bool sending;
  double heard, moved; /* clock: last note; last change of its ticks */
} Peer;

struct Comm {
  int rank, size, local_rank, local_size;
  bool crowded; /* more ranks than cores for them */
  double silence;
  const char *remedy; /* when a rank is lost */
  char about[160];
  Plugin plugin;
  const Carrier *carrier; /* NULL: one rank */
  CarrierInfo info;
  Peer *peer; /* (size) */

  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t job_queued; /* the communication thread waits for it */
  pthread_cond_t job_done;   /* threads in comm_wait and comm_open wait for it */
  bool started, ready, leaving, failed;
  ErrRecord error; /* of the start */
  CommJob *first, *last;
  bool running; /* a thread runs a job or the watchdog */
  int idle;     /* threads that wait for `job_queued`: 0 or 1 */
  int waiters;  /* threads that wait for `job_done` */
  Note here;    /* this rank's, without the collectives */

  /* The runner's. */
  bool patient;            /* its core has nothing better to do than to poll */
  CarrierRequest *request; /* (8 size) */
  Term *term;              /* (size) */
  struct {
    const void **send;
    void **recv;
    size_t *send_n, *recv_n;
  } pair;            /* (size) of each: arguments of an exchange */
  double *sums;      /* (size, COMM_SUM_MOST) */
  size_t *offset;    /* (size + 1) */
  const char *doing; /* name of the job at hand */
  uint64_t seq, progress;
  bool in_op;
  bool gives_way;         /* has found something wrong, which rank 0 may report */
  Op op[HISTORY];         /* number n is at n % HISTORY */
  uint64_t *sent;         /* (HISTORY, size) bytes sent to each rank in an exchange */
  const size_t *expected; /* (size) bytes this exchange receives; NULL: none at hand */
  struct Shared *shared;  /* NULL: collectives go by messages */
  double beat, looked;    /* clock: last notes sent; last time round */
  double stuck;           /* clock: since when every rank waits; 0: not so */
  uint64_t moves;         /* ticks and progress of all ranks then */

  pthread_mutex_t at_loss; /* held while `loss` runs */
  void (*loss)(void *context);
  void *loss_context;
};

/* All that follows is for the runner. */
void watchdog_begin(Comm *c);
void watchdog_look(Comm *c); /* to be called often; acts several times a second */
void watchdog_end(Comm *c);
/* Ends this rank: what it has under way, then the launcher's ranks, then itself. */
void comm_end_all(Comm *c) __attribute__((noreturn));
/* Ends the run because of something this rank found out. */
void comm_die(Comm *c, const char *fmt, ...) PRINTF_LIKE(2, 3) __attribute__((noreturn));
/* Gives rank 0 time to report for all; does not return if it does. */
void comm_give_way(Comm *c);
/* Until n requests are done; looks at the other ranks meanwhile. */
void comm_settle(Comm *c, CarrierRequest *request, size_t n);
/* Are these ranks on one machine, and in containers of the same name if in any? */
bool comm_is_same_host(const Identity *a, const Identity *b);
/* Does the calling thread run a job at the moment? */
bool comm_on_thread(const Comm *c);

/* sequence.c. A collective begins: numbers and remembers it. `layout` is a hash of what else all
 * ranks must agree on. op_end: it is complete. */
void op_begin(Comm *c, OpKind kind, const char *name, uint64_t bytes, uint64_t layout);
void op_end(Comm *c);
const Op *op_current(const Comm *c);
/* The tag of a message of so many bytes of the current collective: ranks that run different
 * collectives, or expect other sizes, never receive each other's messages. */
int op_tag(const Comm *c, size_t bytes);
/* Ends the run if rank r's collective of the same number is not this rank's. */
void op_compare(Comm *c, int r, const Op *theirs);
/* Ends the run: in collective `seq`, rank `from` sends `sent` bytes to rank `to`, which expects
 * others. */
void op_wrong_size(Comm *c, uint64_t seq, int from, uint64_t sent, int to, uint64_t expected)
    __attribute__((noreturn));
/* Compares what a note reports with what this rank did. */
void op_check_note(Comm *c, int r, const Note *note);
/* Puts this rank's collectives into a note to rank r. */
void op_fill_note(const Comm *c, int r, Note *note);
/* "'losses' (sum, 40 bytes, collective 12)" */
char *op_describe(char *text, size_t size, const Op *op);

/* shared.c: the same collectives in shared memory, where all ranks are on one host. */
NODISCARD Err shared_open(Comm *c);
void shared_close(Comm *c);
void shared_broadcast(Comm *c, char *bytes, size_t n);
void shared_allgather(Comm *c, char *all, const size_t *off);
void shared_exchange(Comm *c, const void *const *send, const size_t *send_n, void *const *recv,
                     const size_t *recv_n);
void shared_reduce(Comm *c, const CommReduce *r);
/* reduce_message.c */
void message_reduce(Comm *c, const CommReduce *r);
/* The collectives by messages that it is made of. */
void message_exchange(Comm *c, const void *const *send, const size_t *send_n, void *const *recv,
                      const size_t *recv_n);
void message_allgather(Comm *c, char *all, const size_t *off);
void comm_check(Comm *c, const char *wrong); /* a carrier's failure ends the run */

/* The terms of an addition in the order of the ranks: this rank's from `own`, the others' from
 * in + rank * stride bytes. Returns their number. */
int reduce_terms(const CommReduce *r, int rank, const float *own, const char *in, size_t stride,
                 Term *term);

enum { TAG_NOTE = 1, TAG_FIRST = 2 };

#endif
