/* Compares the options of a run, as lines of a config file: between the ranks before the first
 * step, and with those of the run that is resumed. Depends on comm, data. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include "comm/comm.h"
#include "data/dataset.h"

/* The SHA-256 of dataset.json, which holds those of all other files of the data set. */
NODISCARD Err agree_data_hash(const DataSet *data, char hex[65]);
/* An error naming every difference between the ranks in options, version, or the file whose hash
 * they all must have, under the name `what` ("data-set-hash"). */
NODISCARD Err agree_ranks(Comm *comm, const char *record, const char *what, const char *hash);
/* Compares `record`, the present options, with the config file `path` of the run. A change that
 * affects the order of the data or the saved state is an error; other changes are reported by a
 * warning. */
NODISCARD Err agree_resume(const char *path, const char *record);
/* Reads the value of an option, a whole number, from the config file `path`; 0 if it is not set. */
NODISCARD Err agree_saved(const char *path, const char *name, uint64_t *value);

#endif
