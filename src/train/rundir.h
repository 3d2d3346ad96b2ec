/* The run directory: existence, lock and options. All checks are done before anything in the
 * directory is changed. Depends on agree, checkpoint. */
#ifndef TRAIN_RUNDIR_H
#define TRAIN_RUNDIR_H

#include <stdbool.h>

#include "base/err.h"

/* RUN_NEW: the directory must not exist. RUN_RESUME: it must be a run. RUN_AUTO
 * (--auto-resume): a run, or one that was killed before it wrote anything, continues; a
 * directory that does not exist is created. */
typedef enum { RUN_NEW, RUN_RESUME, RUN_AUTO } RunStart;

/* Decides whether the run continues (*is_resumed) or is created, or fails. The error for a
 * missing run suggests the most similar name in the same directory. A directory that is not a
 * run and contains other files is refused. Changes nothing. */
NODISCARD Err rundir_check(const char *run, RunStart start, bool *is_resumed);
/* Locks an existing directory. Waits up to a second for a process that ends, and fails if another
 * process still trains the run. Changes only the lock. */
NODISCARD Err rundir_lock(const char *run, int *lock);
/* If `is_resumed`: compares `options` (lines of a config file) with those of the run (agree_resume).
 * Otherwise checks again that there is no such run. Changes nothing. */
NODISCARD Err rundir_enter(const char *run, bool is_resumed, const char *options,
                           const char *const *task_options);
/* Writes RUN/config, and RUN/id if it does not exist. For a new run (*lock is -1) creates and
 * locks the directory first. */
NODISCARD Err rundir_commit(const char *run, const char *options, int *lock);
/* Sets *is_used if another process trains this run, which may not exist. Changes nothing. */
NODISCARD Err rundir_is_used(const char *run, bool *is_used);
/* Reads RUN/id: random hexadecimal digits that identify the run in other directories, such as
 * those of in-memory copies. "" if it is missing or damaged; an error if it cannot be read. */
#define RUN_ID_SIZE 33
NODISCARD Err rundir_read_id(const char *run, char id[RUN_ID_SIZE]);
/* Fails if RUN is no longer the directory whose lock is held, because it was moved or removed.
 * A file system that cannot be read is not an error. */
NODISCARD Err rundir_check_place(const char *run, int lock);

#endif
