/* Checkpoints written in the background. Training stops only while its arrays are copied into a
 * snapshot; a thread writes the snapshot to disk. Called by one thread. Depends on checkpoint. */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include "backend/backend.h"
#include "train/checkpoint.h"

typedef struct Saver Saver;

/* Allocates a snapshot of the arrays that are not NULL in `shape`, and starts the thread. After each
 * save, checkpoints other than latest, best and the last `keep` are removed. shape's config and
 * params, and the backend, for which the snapshot is pinned, must outlive the saver. */
NODISCARD Err saver_new(Saver **out, const char *run, const TrainArrays *shape, int keep,
                        const Backend *backend);
/* From now on writes are reported to `act`, in the saver's thread, with ERR_OK or an error whose text is
 * err_message(), and not by warnings. Call it before the first saver_commit. */
typedef void (*SaverReport)(void *context, uint64_t step, Err err);
void saver_report_to(Saver *s, SaverReport act, void *context);
/* Is something being written? Does not wait. */
bool saver_is_busy(Saver *s);
/* Waits for the last write and returns the snapshot, for the caller to fill until saver_commit.
 * Arrays that were NULL in the shape are NULL. */
TrainArrays *saver_begin(Saver *s);
/* Who reports a write that fails: the saver, by a warning, or the caller, who calls saver_wait. */
typedef enum { SAVE_IN_BACKGROUND, SAVE_AWAITED } SaveMode;
/* Begins to write the snapshot, and returns at once. */
void saver_commit(Saver *s, const TrainCounters *c, SaveMode mode);
/* Adds the result of a validation to the checkpoint committed last, after that is written
 * (checkpoint_add_validation); returns at once. Does nothing if that write failed. */
void saver_add_validation(Saver *s, const TrainCounters *c, bool is_best);
/* Waits until nothing is being written. *last (may be NULL): the error of the last write or of what
 * was added to it; its text is then this thread's err_message. */
void saver_wait(Saver *s, Err *last);
void saver_free(Saver *s);            /* waits; NULL is fine */
uint64_t saver_bytes(const Saver *s); /* of the snapshot */

#endif
