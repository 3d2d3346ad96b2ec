/* The parts of facts_read, one per file. Each sets its members and leaves NAN where nothing is known.
 * Depends on facts. */
#ifndef MONITOR_FACTS_INTERNAL_H
#define MONITOR_FACTS_INTERNAL_H

#include "monitor/facts.h"

/* facts_files.c: config, processes.jsonl, model.json, training.json, dataset.json, the checkpoint. A
 * file that is missing or damaged leaves its facts unknown. */
NODISCARD Err facts_read_files(RunFacts *f);
/* facts_steps.c: times of steps and of the run. */
NODISCARD Err facts_sum_steps(RunFacts *f);
/* facts_hosts.c: samples of hosts; times of ranks. */
void facts_sum_hosts(RunFacts *f);
NODISCARD Err facts_sum_ranks(RunFacts *f);

#endif
