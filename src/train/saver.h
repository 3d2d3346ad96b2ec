/* Checkpoints written in the background: the step stops only while the arrays are copied
 * into a snapshot, and a write that fails is a warning. Relies on checkpoint, threads. */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include "backend/backend.h"
#include "train/checkpoint.h"

typedef struct Saver Saver;

/* `shape`: the arrays that are not NULL exist; config and params must outlive the saver.
 * The last `keep` checkpoints stay, and latest and best. The snapshot is pinned for the
 * backend, which must outlive the saver too, unless that one works in the program's memory. */
NODISCARD Err saver_new(Saver **out, const char *run, const TrainArrays *shape, int keep,
                        const Backend *backend);
/* Waits for the write before and gives the snapshot, to be filled; NULL where the shape
 * had NULL. It is the caller's until saver_commit. */
TrainArrays *saver_begin(Saver *s);
/* Hands the snapshot over and returns at once. A write that fails is a warning, but not where
 * it is `awaited`: then the caller waits for it and reports the error itself. */
void saver_commit(Saver *s, const TrainCounters *c, bool awaited);
/* Adds what a validation found to the checkpoint committed last, after it has been written
 * (checkpoint_judge); returns at once. Does nothing if that write fails. */
void saver_judge(Saver *s, const TrainCounters *c, bool best);
/* Waits until all is on disk. *last (or NULL): what became of the last write and of what
 * was added to it; if it failed, the error record of this thread says why. */
void saver_wait(Saver *s, Err *last);
void saver_free(Saver *s);            /* waits; NULL is fine */
uint64_t saver_bytes(const Saver *s); /* of the snapshot */

#endif
