/* Samples of a validation: the option --samples, and the table that a task fills in. Depends on
 * task.h. */
#ifndef TRAIN_SAMPLES_H
#define TRAIN_SAMPLES_H

#include "train/task.h"

/* The table with --samples, for the tasks that have it. */
extern const OptSpec sample_options[];

/* Adds the row with the names of the columns, if there is no row yet. */
void samples_begin(TaskSamples *samples, const char *const *names, size_t columns);
/* Adds a cell, up to the first NUL, which ends a cell. */
void samples_add_cell(TaskSamples *samples, const char *text, size_t len);

#endif
