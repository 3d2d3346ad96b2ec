/* What the files of this room share: the state of a run of several ranks, and the
 * doors between the communication thread (comm.c), the collectives (collective.c)
 * and the watchdog (watchdog.c). */
#ifndef COMM_INTERNAL_H
#define COMM_INTERNAL_H

#include <pthread.h>

#include "base/plugin.h"
#include "comm/carrier.h"
#include "comm/comm.h"

#define HOST_MAX  64
#define PLACE_MAX 96

/* Who a rank is: exchanged once. */
typedef struct {
  char host[HOST_MAX];
  uint64_t pid_space; /* process numbers compare within it only */
  uint64_t core_set;  /* hash of the cores it may use */
  int32_t pid, cores;
} Identity;

/* Where a rank is: sent several times a second. */
typedef enum { NOTE_HERE, NOTE_FAILED } NoteKind;
typedef struct {
  int32_t kind;
  int32_t waiting; /* its work waits for other ranks */
  uint64_t ticks;  /* grows whenever something was finished */
  double allowed;  /* seconds until the next tick is overdue */
  char place[PLACE_MAX];
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
  double silence;
  const char *remedy; /* when a rank is lost */
  char about[160];
  Plugin plugin;
  const Carrier *carrier; /* NULL: one rank */
  Peer *peer;             /* (size) */
  CarrierRequest *request;
  double *sums; /* (size, COMM_SUM_MOST) */
  size_t *offset;

  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool started, ready, leaving, failed;
  ErrRecord error; /* of the start */
  CommJob *first, *last;
  Note here; /* this rank's, under the lock */

  double beat, looked; /* clock: last notes sent; last time round */
  double stuck;        /* clock: since when every rank waits, and none for a job; 0: not so */
  uint64_t moves;      /* ticks of all ranks then */
  pthread_mutex_t at_loss; /* held while `loss` runs */
  void (*loss)(void *context);
  void *loss_context;
  const char *doing; /* name of the collective at hand */
};

/* All three run on the communication thread. */
void watchdog_begin(Comm *c);
void watchdog_look(Comm *c); /* to be called often; acts several times a second */
void watchdog_end(Comm *c);
/* Ends this rank: what it has under way, then the launcher's ranks, then itself. */
void comm_end_all(Comm *c) __attribute__((noreturn));
/* Ends the run because of something this rank found out. */
void comm_die(Comm *c, const char *fmt, ...) PRINTF_LIKE(2, 3) __attribute__((noreturn));
/* Until n requests are done; looks at the other ranks meanwhile. */
void comm_settle(Comm *c, CarrierRequest *request, size_t n);
bool comm_on_thread(const Comm *c);

enum { TAG_DATA = 1, TAG_NOTE = 2 };

#endif
