/* In-memory copies (--peer-checkpoint N): every N steps rank 0 writes a checkpoint, in the
 * background, to a tmpfs directory named by the environment variable TRIREME_PEER_DIR. `trireme
 * launch` creates this directory, keeps it when ranks are restarted, and sends each complete
 * copy (event_copy) to another machine. The directory contains, for each run:
 *   run-ID/checkpoints/   same layout as RUN/checkpoints; ID is the content of RUN/id
 * with the last complete copy and the one being written. Called by one thread, on rank 0.
 * Depends on rundir, saver. */
#ifndef TRAIN_COPIES_H
#define TRAIN_COPIES_H

#include "train/saver.h"

typedef struct Copies Copies;

/* Returns the value of TRIREME_PEER_DIR; NULL if it is not set. */
const char *copies_dir(void);

/* Allocates the snapshot (saver_new) and starts the thread that writes copies. */
NODISCARD Err copies_new(Copies **out, const char *run, const TrainArrays *shape,
                         const Backend *backend);
bool copies_is_writing(Copies *c);
/* Returns false if a new copy would not fit into memory together with the last one, which is
 * kept until the new one is complete. Counts such a copy as failed; warns the first time. */
bool copies_has_room(Copies *c, uint64_t step);
/* Waits until no copy is being written and returns the snapshot, which the caller fills before
 * it calls copies_commit. */
TrainArrays *copies_begin(Copies *c);
/* Starts to write the snapshot; does not block. */
void copies_commit(Copies *c, const TrainCounters *at);
/* Counts a copy that was due while another one was being written. */
void copies_skip(Copies *c);
/* Waits for a running write and then removes all copies; used when the run returns to an
 * earlier step. */
void copies_discard(Copies *c);
void copies_free(Copies *c); /* waits for a running write; accepts NULL */

typedef struct {
  uint64_t written, skipped, failed;
} CopiesCount;
CopiesCount copies_count(Copies *c); /* number of copies since the start of this process */

/* Returns true if the state of `a` is later than that of `b`: after more roll-backs, or after
 * as many roll-backs and more steps. */
bool copies_is_later(const TrainCounters *a, const TrainCounters *b);
/* Finds the newest complete copy of this run whose data, model and files are as required
 * (checkpoint_compare). A copy that cannot be used is a warning. */
bool copies_find(const char *run, const TrainArrays *required, char dir[FILE_PATH_MAX],
                 TrainCounters *at);

#endif
