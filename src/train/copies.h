/* In-memory copies (--peer-checkpoint N): every N steps rank 0 writes a checkpoint, in the
 * background, to a directory in memory (tmpfs) that is named by TRIREME_PEER_DIR. `trireme launch`
 * makes the directory, keeps it when the ranks are restarted, and sends each complete copy
 * (event_copy) to another machine. In it, a run has
 *   run-ID/checkpoints/   like RUN/checkpoints; ID is that of RUN/id
 * with the last complete copy and the one that is being written.
 * Called by one thread, on rank 0. Depends on rundir, saver. */
#ifndef TRAIN_COPIES_H
#define TRAIN_COPIES_H

#include "train/saver.h"

typedef struct Copies Copies;

/* The directory for copies; NULL: there is none. */
const char *copies_dir(void);

/* Allocates the snapshot (saver_new) and starts the thread. */
NODISCARD Err copies_new(Copies **out, const char *run, const TrainArrays *shape,
                         const Backend *backend);
bool copies_is_writing(Copies *c);
/* The snapshot, for the caller to fill until copies_commit. Waits while a copy is written. */
TrainArrays *copies_begin(Copies *c);
void copies_commit(Copies *c, const TrainCounters *at); /* returns at once */
void copies_skip(Copies *c); /* counts a copy that was due while another was written */
/* Removes all copies, once none is being written: the run returns to an earlier step. */
void copies_discard(Copies *c);
void copies_free(Copies *c); /* waits; NULL is fine */

typedef struct {
  uint64_t written, skipped, failed;
} CopiesCount;
CopiesCount copies_count(Copies *c); /* of this process */

/* Is the state `a` later than `b`? After a roll-back the steps before it do not count. */
bool copies_is_later(const TrainCounters *a, const TrainCounters *b);
/* Finds the newest complete copy of this run, made with the required data, model and tokenizer
 * (checkpoint_compare). Copies that cannot be used are a warning. */
bool copies_find(const char *run, const TrainArrays *required, char dir[FILE_PATH_MAX],
                 TrainCounters *at);

#endif
