/* The run directory: whether it exists, its lock, its options. Everything is checked before
 * anything in it is changed. Depends on agree, checkpoint. */
#ifndef TRAIN_RUNDIR_H
#define TRAIN_RUNDIR_H

#include <stdbool.h>

#include "base/err.h"

/* RUN_NEW: the directory must not exist. RUN_RESUME: it must be a run. RUN_AUTO (--auto-resume): if
 * it is a run, or one that was killed before it had written anything, it is continued; if it does not
 * exist, it is begun. */
typedef enum { RUN_NEW, RUN_RESUME, RUN_AUTO } RunStart;

/* Decides whether the directory is entered (*is_resumed) or made, or refuses it. A run that is not
 * found is answered with the one in the same directory whose name is most similar. A directory
 * without a run is not entered if it has files of others. Changes nothing. */
NODISCARD Err rundir_check(const char *run, RunStart start, bool *is_resumed);
/* If `is_resumed`, locks the run and compares `options` (lines of a config file) with its own; else
 * sets *lock = -1. Changes nothing but the lock. */
NODISCARD Err rundir_enter(const char *run, bool is_resumed, const char *options, int *lock);
/* Writes RUN/config, and RUN/id where it is missing. For a new run (*lock is -1) creates the directory
 * and locks it first. */
NODISCARD Err rundir_commit(const char *run, const char *options, int *lock);
/* RUN/id: random hexadecimal digits by which what lies elsewhere, such as in-memory copies, is known to
 * belong to the run. "" if it is missing or unreadable. */
#define RUN_ID_SIZE 33
void rundir_read_id(const char *run, char id[RUN_ID_SIZE]);
/* Fails if RUN is no longer the directory whose lock is held, because it was moved or removed. A
 * file system that cannot be read is not taken as a proof of that. */
NODISCARD Err rundir_check_place(const char *run, int lock);

#endif
