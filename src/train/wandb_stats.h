/* Measurements of hosts for Weights & Biases: reads the new lines of RUN/system.jsonl and adds records
 * with wandb's names of system metrics. Called by one thread. Depends on format/wandb, base, Jansson. */
#ifndef TRAIN_WANDB_STATS_H
#define TRAIN_WANDB_STATS_H

#include "base/file.h"
#include "format/wandb.h"

typedef struct StatsHost StatsHost;

typedef struct {
  char path[FILE_PATH_MAX]; /* RUN/system.jsonl; the file need not exist */
  uint64_t at;              /* position of the first line that was not read */
  double after;             /* lines up to this time, in seconds since 1970, are skipped */
  StatsHost *host;          /* hosts that have occurred */
  size_t hosts, cap;
  Str text; /* part of the file */
} WandbStats;

NODISCARD Err stats_open(WandbStats *s, const char *run_dir);
void stats_close(WandbStats *s);
/* Makes stats_add begin again with the first line after this time. */
void stats_restart(WandbStats *s, double after);
/* Adds a record for each host, at most one per 15 seconds of its samples, which is wandb's own interval.
 * An incomplete last line is read by the next call. */
NODISCARD Err stats_add(WandbStats *s, WandbLog *log);

#endif
