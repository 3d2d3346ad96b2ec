/* The run directory: whether it exists, its lock, its options. Everything is checked before
 * anything in it is changed. Depends on agree, checkpoint. */
#ifndef TRAIN_RUNDIR_H
#define TRAIN_RUNDIR_H

#include <stdbool.h>

#include "base/err.h"

/* Refuses a new run if `run` exists, and to resume if it is no run; the error then suggests the
 * run in the same directory with the most similar name. Changes nothing. */
NODISCARD Err rundir_check(const char *run, bool resume);
/* If `resume`, locks the run and compares `options` (lines of a config file) with its own; else
 * sets *lock = -1. Changes nothing but the lock. */
NODISCARD Err rundir_enter(const char *run, bool resume, const char *options, int *lock);
/* Writes RUN/config. For a new run (*lock is -1) creates the directory and locks it first. */
NODISCARD Err rundir_commit(const char *run, const char *options, int *lock);
/* Fails if RUN is no longer the directory whose lock is held, because it was moved or removed. A
 * file system that cannot be read is not taken as a proof of that. */
NODISCARD Err rundir_check_place(const char *run, int lock);

#endif
