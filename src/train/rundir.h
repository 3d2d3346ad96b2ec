/* The run directory: whether there is one, its lock, its options. Everything is checked
 * before anything in it changes. Relies on agree, checkpoint. */
#ifndef TRAIN_RUNDIR_H
#define TRAIN_RUNDIR_H

#include <stdbool.h>

#include "base/err.h"

/* Refuses a new run where something exists, and to resume where there is no run; the error
 * then names the run nearby whose name is the most similar. Changes nothing. */
NODISCARD Err rundir_check(const char *run, bool resume);
/* Locks a run to resume and compares `options`, config lines, with its own; *lock is -1 for
 * a new one. Changes nothing but the lock. */
NODISCARD Err rundir_enter(const char *run, bool resume, const char *options, int *lock);
/* Makes a new run's directory and locks it (*lock is -1), and writes RUN/config. */
NODISCARD Err rundir_commit(const char *run, const char *options, int *lock);
/* Refuses to go on where RUN is no longer the directory whose lock is held: it was moved or
 * removed. A file system that does not answer is no such case. */
NODISCARD Err rundir_check_place(const char *run, int lock);

#endif
