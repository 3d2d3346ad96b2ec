/* Compares the options of a run, as lines of a config file: between the ranks before the first
 * step, and with those of the run that is resumed. Depends on comm, data. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include "comm/comm.h"
#include "data/dataset.h"

/* Computes the SHA-256 of dataset.json, which contains the SHA-256 of all other files of the
 * data set. */
NODISCARD Err agree_data_hash(const DataSet *data, char hex[65]);
/* Fails if options, version or `hash` differ between the ranks; the error lists all
 * differences. `what` is the name of the hash in the error, such as "data-set-hash". */
NODISCARD Err agree_ranks(Comm *comm, const char *record, const char *what, const char *hash);
/* Compares `record`, the options of this call, with the config file `path` of the run. A change
 * that affects the order of the data or the saved state is an error; other changes are a
 * warning, except that of an option that only sets durations, intervals, paths or devices, or is
 * in `task_options` (TaskKind.free_options; may be NULL). */
NODISCARD Err agree_resume(const char *path, const char *record,
                           const char *const *task_options);
/* Reads the value of an integer option from the config file `path`; 0 if it is not set. */
NODISCARD Err agree_saved(const char *path, const char *name, uint64_t *value);

#endif
