/* Writes checkpoints in the background. Training pauses only while its arrays are copied to a
 * snapshot; a thread then writes the snapshot to disk. Called by one thread. Depends on
 * checkpoint, monitor/trace. */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include "backend/backend.h"
#include "monitor/trace.h"
#include "train/checkpoint.h"

typedef struct Saver Saver;

/* Allocates a snapshot with the arrays that are not NULL in `shape`, and starts the thread.
 * After each save older checkpoints are removed (checkpoint_prune).
 * shape->config, shape->params and the backend must outlive the saver. */
NODISCARD Err saver_new(Saver **out, const char *run, const TrainArrays *shape, int keep,
                        SaveSteps steps, const Backend *backend);
/* Makes the saver report each write to `act`, on the saver's thread, instead of printing
 * warnings. After a failed write err_message() has the reason. Call it before the first
 * saver_commit. */
typedef void (*SaverReport)(void *context, uint64_t step, Err err);
void saver_report_to(Saver *s, SaverReport act, void *context);
/* Makes the thread add the time of each write to `trace`, which must outlive the saver and may be
 * NULL. Call it before the first saver_commit. */
void saver_set_trace(Saver *s, Trace *trace);
/* Returns true if something is being written. Does not block. */
bool saver_is_busy(Saver *s);
/* Waits for the current write and returns the snapshot, which the caller fills before it calls
 * saver_commit. Arrays that were NULL in the shape are NULL. */
TrainArrays *saver_begin(Saver *s);
/* Who reports a failed write: SAVE_IN_BACKGROUND: the saver prints a warning. SAVE_LAST: the same for
 * the last step of a run, whose save the caller repeats once. SAVE_AWAITED: the caller, who calls
 * saver_wait. */
typedef enum { SAVE_IN_BACKGROUND, SAVE_LAST, SAVE_AWAITED } SaveMode;
/* Starts to write the snapshot. Does not block. */
void saver_commit(Saver *s, const TrainCounters *c, SaveMode mode);
/* Adds the result of a validation to the last committed checkpoint after that is written
 * (checkpoint_add_validation). Does not wait for it. Does nothing if the checkpoint could not
 * be written. */
void saver_add_validation(Saver *s, const TrainCounters *c, bool is_best);
/* Takes over the outputs of the next validation. If that is the best, they are written to
 * RUN/valid-best.txt once the link `best` is on disk, so that `report` can compare runs by a paired
 * bootstrap. Call it while nothing is being written. */
void saver_take_outputs(Saver *s, Str *outputs);
/* Waits until nothing is being written. *last (may be NULL): error of the last write; its text
 * is then err_message() of the calling thread. */
void saver_wait(Saver *s, Err *last);
void saver_free(Saver *s);            /* waits for the current write; accepts NULL */
uint64_t saver_bytes(const Saver *s); /* bytes of the snapshot */

#endif
