/* Writes and finds in-memory copies of the training state. Depends on checkpoint, event,
 * rundir, saver. */
#include "train/copies.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/event.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/rundir.h"

#define COPIES_KEPT 1 /* number of complete copies that are kept */

struct Copies {
  char dir[FILE_PATH_MAX]; /* directory of this run's copies: TRIREME_PEER_DIR/run-ID */
  Saver *saver;
  _Atomic uint64_t written, failed; /* incremented by the saver's thread */
  uint64_t skipped;
};

const char *copies_dir(void) {
  const char *dir = getenv("TRIREME_PEER_DIR");
  return dir && *dir ? dir : NULL;
}

/* Finds the directory of the run's copies. Returns false if TRIREME_PEER_DIR is not set or the
 * run has no id. */
static bool name_directory(const char *run, char dir[FILE_PATH_MAX]) {
  char id[RUN_ID_SIZE], name[RUN_ID_SIZE + 8];
  const char *base = copies_dir();
  if (rundir_read_id(run, id) || !base || !*id) return false;
  snprintf(name, sizeof name, "run-%s", id);
  return file_join(dir, base, name) == ERR_OK;
}

/* Called by the saver's thread. Warns only once, because a full directory makes all later
 * copies fail too. */
static void note_written(void *context, uint64_t step, Err err) {
  Copies *c = context;
  if (!err) {
    atomic_fetch_add(&c->written, 1);
    event_copy(step, c->dir);
    return;
  }
  if (atomic_fetch_add(&c->failed, 1) > 0) return;
  log_warn("the in-memory copy of step %" PRIu64
           " was not written, training goes on: %s; copies that fail later are only counted",
           step, err_message());
}

Err copies_new(Copies **out, const char *run, const TrainArrays *shape,
               const Backend *backend) {
  Copies *c;
  *out = NULL;
  TRY(mem_alloc(&c, 1, sizeof *c));
  Err err = name_directory(run, c->dir)
                ? saver_new(&c->saver, c->dir, shape, COPIES_KEPT, (SaveSteps){0}, backend)
                : err_set(ERR_WORK,
                          "cannot read %s/id, which names the in-memory copies; check the "
                          "permissions of the run directory",
                          run);
  if (err) {
    copies_free(c);
    return err;
  }
  saver_report_to(c->saver, note_written, c);
  *out = c;
  return ERR_OK;
}

bool copies_is_writing(Copies *c) {
  return saver_is_busy(c->saver);
}

bool copies_has_room(Copies *c, uint64_t step) {
  Err err = file_check_memory(copies_dir(), saver_bytes(c->saver));
  if (err) note_written(c, step, err);
  return err == ERR_OK;
}

TrainArrays *copies_begin(Copies *c) {
  return saver_begin(c->saver);
}

void copies_commit(Copies *c, const TrainCounters *at) {
  saver_commit(c->saver, at, SAVE_IN_BACKGROUND);
}

void copies_skip(Copies *c) {
  c->skipped++;
}

void copies_discard(Copies *c) {
  saver_wait(c->saver, NULL);
  if (file_remove_all(c->dir))
    log_warn("cannot remove the in-memory copies of later steps: %s", err_message());
}

void copies_free(Copies *c) {
  if (!c) return;
  saver_free(c->saver);
  mem_free(c);
}

CopiesCount copies_count(Copies *c) {
  return (CopiesCount){.written = c->written, .failed = c->failed, .skipped = c->skipped};
}

bool copies_is_later(const TrainCounters *a, const TrainCounters *b) {
  if (a->rollbacks != b->rollbacks) return a->rollbacks > b->rollbacks;
  return a->step > b->step;
}

static Err find_copy(const char *base, const TrainArrays *required, char dir[FILE_PATH_MAX],
                     TrainCounters *at, bool *is_found) {
  TRY(checkpoint_find(base, dir, is_found));
  return *is_found ? checkpoint_compare(dir, required, at) : ERR_OK;
}

bool copies_find(const char *run, const TrainArrays *required, char dir[FILE_PATH_MAX],
                 TrainCounters *at) {
  char base[FILE_PATH_MAX];
  bool is_found = false;
  if (!name_directory(run, base)) return false;
  if (find_copy(base, required, dir, at, &is_found)) {
    log_warn("the in-memory copy is not used: %s", err_message());
    return false;
  }
  return is_found;
}
