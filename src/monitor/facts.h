/* Everything that is known about a run, from the files in its directory: measurements (runlog.h),
 * options, model, checkpoint, data set, processes. A number that was not measured or recorded is NAN:
 * it is never guessed. Depends on runlog, base, Jansson. */
#ifndef MONITOR_FACTS_H
#define MONITOR_FACTS_H

#include "base/file.h"
#include "base/str.h"
#include "monitor/runlog.h"

#define FACTS_TEXT   256
#define FACTS_FILES  32   /* most files of a checkpoint that are listed */
#define FACTS_RANKS  1024 /* most ranks of the table */
#define FACTS_LABELS 24   /* most labels that are listed */

/* A label and the number of training texts that have it. */
typedef struct {
  char name[FACTS_TEXT]; /* control characters escaped */
  double texts;
} LabelCount;

/* Mean times of a step in ms on rank 0. */
typedef struct {
  double data, forward, backward, comm, update, checkpoint;
  double other; /* of the step, in none of the above */
  double total;
} StepParts;

typedef struct {
  char name[64];
  double bytes;
} CheckpointFile;

/* Mean times per step of one rank, in ms. */
typedef struct {
  double total, wait, data;
  double work; /* what is left: neither waiting for others nor for data */
  char host[64];
} RankTimes;

/* Means over all samples of a network card. */
typedef struct {
  char host[64], card[RUNLOG_NAME];
  double sent, received; /* bytes per second */
  double peak;  /* bytes per second, the larger direction, 95 % of the samples are below */
  double speed; /* of one direction, bytes per second, as the card reports it */
} CardUse;

typedef struct {
  RunLog log;
  char dir[FILE_PATH_MAX]; /* as given */
  char name[FACTS_TEXT];   /* last part of it, with control characters escaped */
  Str config;

  /* The run was started `processes` times, first at `began`; the rest describes the last start. */
  double processes, ranks, hosts, threads, parameters, gradient_bytes, planned_steps, began;
  double warmup_steps;
  char version[FACTS_TEXT], compiler[FACTS_TEXT], system[FACTS_TEXT], device[FACTS_TEXT];
  char transport[FACTS_TEXT], allreduce[FACTS_TEXT], directory[1024];
  Str command;
  double since_step; /* step at which the ranks, hosts or device last changed; 0: never */

  /* Time of the whole run, in seconds. */
  double seconds, step_seconds, valid_seconds, checkpoint_seconds, other_seconds;
  double wall_seconds; /* from the first to the last sample of a host, including pauses */
  double restarts, rollbacks;
  char error[512];   /* with which the last process ended, from log.txt; empty: none is known */
  bool has_diverged; /* that error is divergence after all roll-backs */

  double last_step, epochs;
  /* Means of steps, since since_step. */
  StepParts parts;
  double step_median, step_p95; /* ms, over the records */
  double tokens_per_s, pairs_per_s, tflops, mfu;
  double sent_bytes, received_bytes; /* per step, messages of rank 0 */
  bool is_on_gpu;

  /* Hosts. */
  double gpus, gpus_used, gpu_busy, gpu_watts, gpu_watts_limit, gpu_memory_used,
      gpu_memory_total;
  double gpu_throttled; /* share of the samples with a reason for throttling other than idle */
  char gpu_name[RUNLOG_NAME];
  double cpu_busy, cores;        /* percent; of all hosts */
  double gpu_joules, cpu_joules; /* NAN: not measured on any host */
  double sampled_seconds;        /* that the energy covers */
  CardUse card;                  /* the busiest one; no name: none was measured */

  /* Ranks. */
  RankTimes *rank;
  size_t rank_count; /* 0: not measured */

  /* Model, data and checkpoint. */
  double dropout;         /* the largest of its rates */
  double checkpoint_step; /* of checkpoints/latest */
  double target_tokens;   /* that were trained on, up to the last record */
  double train_pairs, train_lines, text_bytes, source_tokens, data_target_tokens;
  /* Data sets of texts instead of pairs; their text is in text_bytes. */
  bool has_texts;
  bool is_classifier; /* the run trains on labeled texts: its loss is that of a label */
  bool is_text_task;  /* classify or mlm: the texts have one side */
  char task[32];      /* "translate", "classify" or "mlm"; empty: unknown */
  double train_texts, train_text_tokens;
  double labels; /* classes, labels or numbers that are predicted; NAN: texts without labels */
  char label_kind[FACTS_TEXT];    /* "class", "multi" or "number" */
  LabelCount label[FACTS_LABELS]; /* the first label_count of them */
  size_t label_count;
  char data_dir[FILE_PATH_MAX];
  char checkpoint[FACTS_TEXT]; /* path below the run directory; empty: none */
  CheckpointFile file[FACTS_FILES];
  size_t file_count;
  double checkpoint_bytes, checkpoints; /* of one; how many are kept */
} RunFacts;

/* Reads a run. */
NODISCARD Err facts_read(RunFacts *f, const char *dir);
void facts_free(RunFacts *f);
/* Copies the value of an option in the run's config, with control characters escaped. Returns false if it is not there: the option has
 * its default. */
bool facts_option(const RunFacts *f, const char *name, char *out, size_t room);
/* Returns the column with the run's tokens per second: of texts, or of the target side. */
const char *facts_rate_column(const RunFacts *f);

#endif
