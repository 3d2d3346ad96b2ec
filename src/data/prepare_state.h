/* The state of a prepare run on disk, between stop and resume; for prepare.c.
 * Depends on base, meta, manifest. */
#ifndef DATA_PREPARE_STATE_H
#define DATA_PREPARE_STATE_H

#include "base/file.h"
#include "data/prepare.h"

typedef struct {
  char dir[FILE_PATH_MAX]; /* OUT.partial */
  char fingerprint[65];    /* of everything that the shards depend on */
  int lock;                /* file descriptor, -1 when not held */
} PrepareState;

/* Makes or, to resume, enters the directory and locks it. */
NODISCARD Err prepare_enter(PrepareState *s, const PrepareSpec *spec);
/* On other ranks than 0, which do not lock it: only sets its path. */
NODISCARD Err prepare_follow(PrepareState *s, const char *out);
/* The same for a conversion, which does not resume: what a conversion that was killed left in the
 * directory is removed, anything else is refused. */
NODISCARD Err prepare_check_conversion(const char *out);
/* Is OUT a conversion that was killed between its rename and its last step? prepare_tidy does that. */
bool prepare_is_converted(const char *out);
NODISCARD Err prepare_enter_conversion(PrepareState *s, const char *out);
void prepare_leave(PrepareState *s);
/* The path of a file in the directory. */
NODISCARD Err prepare_path(const PrepareState *s, const char *name, char path[FILE_PATH_MAX]);
/* An error if a signal has asked this process to stop. */
NODISCARD Err prepare_check_stop(const PrepareState *s);
/* After an error, while the lock is held: removes the directory if there is nothing
 * in it that a resumed run could use. Keeps the recorded error. */
void prepare_forget(const PrepareState *s);
/* Hash of the options and of the inputs' sizes and times. */
NODISCARD Err prepare_fingerprint(PrepareState *s, const PrepareSpec *spec);
/* Records that validation and test are encoded, with what they are. From here on each training
 * shard adds a line to the manifest and nothing else. */
NODISCARD Err prepare_save(const PrepareState *s, const Meta *meta);
/* Loads what was saved, and the training shards of the manifest; *is_resumed is false where
 * nothing was saved, and all but the tokenizer is then removed. */
NODISCARD Err prepare_load(const PrepareState *s, Meta *meta, bool *is_resumed);
/* Renames the directory to OUT, then removes from it what is not part of a data set. */
NODISCARD Err prepare_complete(PrepareState *s, const char *out);

#endif
