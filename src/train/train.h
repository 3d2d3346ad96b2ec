/* The function that the train command calls. Depends on comm, spec. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "comm/comm.h"
#include "train/spec.h"

/* Trains or, with spec->dry_run, only prints what the run needs. `options`: options of this
 * call as lines of a config file, for the run directory. Every rank calls it. */
NODISCARD Err train_run(const TrainSpec *spec, Comm *comm, const char *options,
                        TrainResult *result);

#endif
