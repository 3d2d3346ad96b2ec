/* What the files of the board share. Depends on board_find, board_series, board_system. */
#ifndef MONITOR_BOARD_INTERNAL_H
#define MONITOR_BOARD_INTERNAL_H

#include <pthread.h>
#include <time.h>

#include "monitor/board.h"
#include "monitor/board_find.h"
#include "monitor/board_series.h"
#include "monitor/board_system.h"

#define BOARD_WANTED  60 /* seconds: a run's files are followed so long after the last request */
#define BOARD_SYSTEMS 8  /* runs whose hosts are in memory: up to 52 MB each, with 64 hosts */
#define RUN_END       64
#define RUN_ID        16 /* hexadecimal digits of a run's id */

/* The last measurements of a run, for the list; NAN: not known. */
typedef struct {
  double step, steps; /* done, and planned */
  double nll, valid_nll, tokens_per_s, epoch;
  double valid_bleu, valid_f1_macro, valid_pearson; /* by the task */
} RunFacts;

typedef struct {
  char id[RUN_ID + 1]; /* from the name, so that a link to a run stays valid */
  char *name;          /* path below the board's directory */
  char *path;
  bool is_gone;            /* its directory was deleted or moved */
  uint64_t changed;        /* version of the list in which this run last changed */
  struct timespec written; /* when metrics.jsonl was last written; 0: there is none */
  uint64_t size;           /* of metrics.jsonl */
  /* The bytes before the offset at which metrics.jsonl ended when its end was last read: others
   * there mean another file. */
  char end_bytes[RUN_END];
  size_t end_len;
  uint64_t end;
  struct timespec configured; /* when config was last written; 0: there is none */
  RunFacts facts;
  Series series;
  SeriesData *building; /* what the builder thread, and no other, has read of a large file */
  uint64_t building_generation; /* that of the series when it began */
  BoardSystem system;
  double wanted; /* monotonic seconds: when somebody last asked for its curves */
  double system_wanted;
} BoardRun;

struct Board {
  char dir[FILE_PATH_MAX];
  /* Requests that wait for the lock. The reader lets them go first: a mutex alone would give the
   * lock back to the thread that has just released it. */
  _Atomic int waiting;
  pthread_mutex_t lock; /* protects everything below */
  pthread_cond_t wake;  /* something is wanted, or the board closes */
  pthread_t reader, builder;
  bool is_closing;
  bool is_searched; /* the first search is complete */
  bool is_cut;      /* there are more runs than the board shows */
  uint64_t version; /* of the list of runs */
  BoardRun **run;   /* sorted by name */
  size_t runs, run_room;
};

double board_now(void); /* Returns monotonic seconds. */
/* Returns the run with this id, or NULL. */
BoardRun *board_find_run(Board *b, const char *id);
/* The reader thread: searches for runs and follows their files. */
void *board_read_runs(void *board);
/* The builder thread: reads large files whole. */
void *board_build_runs(void *board);
/* Frees the least recently used curves, so that another run can be loaded. */
void board_make_room(Board *b);
/* The same for hosts. */
void board_make_host_room(Board *b);

#endif
