/* The state of a prepare run on disk, between stop and resume. Used by prepare.c. Depends on
 * base, meta, manifest. */
#ifndef DATA_PREPARE_STATE_H
#define DATA_PREPARE_STATE_H

#include "base/file.h"
#include "data/prepare.h"

typedef struct {
  char dir[FILE_PATH_MAX]; /* path of OUT.partial */
  char fingerprint[65];    /* SHA-256 of all options and inputs that the shards depend on */
  int lock;                /* file descriptor of the lock; -1: not locked */
} PrepareState;

/* Creates OUT.partial or, to resume, opens it, and locks it. */
NODISCARD Err prepare_enter(PrepareState *s, const char *out, bool resume);
/* Sets only the path of OUT.partial. Called by ranks other than 0, which do not lock the
 * directory. */
NODISCARD Err prepare_follow(PrepareState *s, const char *out);
/* prepare_shared.c: fails on all ranks if one does not see the directory of rank 0. */
NODISCARD Err prepare_check_shared(const PrepareState *s, Ranks *r);
/* Fails if OUT exists, or if OUT.partial has files other than those of a killed conversion. */
NODISCARD Err prepare_check_conversion(const char *out);
/* Returns true if OUT is a conversion that was killed between its rename and its last step, which
 * prepare_tidy completes. */
bool prepare_is_converted(const char *out);
/* Like prepare_enter, for a conversion, which cannot be resumed: removes the files of a killed
 * conversion. */
NODISCARD Err prepare_enter_conversion(PrepareState *s, const char *out);
void prepare_leave(PrepareState *s);
/* Returns the path of a file in OUT.partial. */
NODISCARD Err prepare_path(const PrepareState *s, const char *name, char path[FILE_PATH_MAX]);
/* Fails if a stop signal has arrived. */
NODISCARD Err prepare_check_stop(const PrepareState *s);
/* Removes OUT.partial after an error if it contains nothing that a resumed run could use. The
 * lock must be held. Keeps the stored error. */
void prepare_forget(const PrepareState *s);
/* Removes OUT.partial after an error, whatever it contains. The lock must be held. Keeps the stored
 * error. */
void prepare_discard(const PrepareState *s);
/* Computes the hash of the options and of the sizes and modification times of the inputs. */
NODISCARD Err prepare_fingerprint(PrepareState *s, const PrepareSpec *spec);
/* Appends the path, size and modification time of an input to the text of a fingerprint. */
NODISCARD Err prepare_add_input(Str *text, const char *path);
/* Sets the fingerprint to the hash of `text`. */
void prepare_set_fingerprint(PrepareState *s, const Str *text);
/* Saves the progress after validation and test are encoded, with their description. After that
 * each training shard adds only a line to the manifest. meta NULL: a data set of texts, whose
 * progress is in the manifest alone. */
NODISCARD Err prepare_save(const PrepareState *s, const Meta *meta);
/* Loads the saved progress and the training shards of the manifest. *is_resumed is false if
 * nothing was saved; then all files except the tokenizer are removed. */
NODISCARD Err prepare_load(const PrepareState *s, Meta *meta, bool *is_resumed);
/* The same for a data set of texts; meta->classify must be there for the counts. */
NODISCARD Err prepare_load_texts(const PrepareState *s, Meta *meta, bool *is_resumed);
/* Renames OUT.partial to OUT, then removes the files that are not part of a data set. */
NODISCARD Err prepare_complete(PrepareState *s, const char *out);

#endif
