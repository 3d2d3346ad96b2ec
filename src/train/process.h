/* RUN/processes.jsonl: how each process of a run was started. Depends on trainer. */
#ifndef TRAIN_PROCESS_H
#define TRAIN_PROCESS_H

#include "train/trainer.h"

/* Appends a line about this process: time, versions, command, ranks and hosts, device, sizes
 * (docs/formats.md). Rank 0 calls it once the run directory is written. A line that cannot be
 * written is a warning. */
void process_record(const Trainer *t);

#endif
