/* Events that a worker reports to its launcher because they are not visible from outside the
 * process, such as the first completed step or a rank that does not answer. `trireme launch`
 * passes the file descriptor of a pipe in TRIREME_EVENT_FD; without that variable events are
 * discarded. An event is one JSON object on one line.
 *   {"event": "step", "step": 120}                     the first step of this process is done
 *   {"event": "joined"}                                MPI has started
 *   {"event": "run"}                                   this rank has created or locked the run
 *   {"event": "alive"}                                 this rank makes progress
 *   {"event": "lost", "rank": 3, "text": "..."}        this rank ends because of rank 3
 *   {"event": "copy", "step": 120, "dir": "..."}       an in-memory copy (train/copies.h) is
 *                                                      complete
 *   {"event": "final", "text": "..."}                  this rank fails, and would fail again
 * Threads: any thread may report, also while the process ends. Depends on str. */
#ifndef BASE_EVENT_H
#define BASE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if this process was started by a launcher that receives events. */
bool event_has_launcher(void);
void event_step(uint64_t step);
void event_joined(void);
void event_run(void);
/* Reports progress, at most every 10 s; cheap enough to be called for each micro-batch. */
void event_alive(void);
/* Reports that this rank ends because `rank` is lost. `text` is a sentence; quotes, backslashes
 * and control characters in it are replaced by spaces. */
void event_lost(int rank, const char *text);
/* Reports that this rank ends with an error which a restart would only repeat. `text` as in
 * event_lost. */
void event_final(const char *text);
/* Reports that the in-memory checkpoint copy of `step` is complete. The copy is
 * `dir`/checkpoints/latest. */
void event_copy(uint64_t step, const char *dir);

#endif
