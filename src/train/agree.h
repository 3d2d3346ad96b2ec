/* The options of a run as config lines: compared between the ranks before the first
 * step, and with those of the run that is resumed. Relies on comm, data. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include "comm/comm.h"
#include "data/dataset.h"

/* The SHA-256 of dataset.json, which holds those of all other files of the data set. */
NODISCARD Err agree_data_hash(const DataSet *data, char hex[65]);
/* An error naming every difference between the ranks in options, version, or the file whose hash
 * they all must have, under the name `what` ("data-set-hash"). */
NODISCARD Err agree_ranks(Comm *comm, const char *record, const char *what, const char *hash);
/* `path`: the config of the run. What would change the order of the data or the
 * meaning of the saved state is an error; other changes are said. */
NODISCARD Err agree_resume(const char *path, const char *record);
/* The whole number that the config gives an option; 0 where it gives none. */
NODISCARD Err agree_saved(const char *path, const char *name, uint64_t *value);

#endif
