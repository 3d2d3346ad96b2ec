/* Reports of a worker to its launcher: what cannot be seen from outside the process, such as the
 * first completed step or a rank that does not answer. `trireme launch` passes a pipe in
 * TRIREME_EVENT_FD; without the variable reports go nowhere. A report is one JSON object on a line.
 *   {"event": "step", "step": 120}                     the first step of this process is done
 *   {"event": "lost", "rank": 3, "text": "..."}        this rank ends because of rank 3
 *   {"event": "copy", "step": 120, "dir": "..."}       an in-memory copy (train/copies.h) is complete
 * Threads: any may report, also while the process ends. Depends on str. */
#ifndef BASE_EVENT_H
#define BASE_EVENT_H

#include <stdint.h>

void event_step(uint64_t step);
/* `text` is a sentence; control characters and quotes in it are replaced. */
void event_lost(int rank, const char *text);
/* `dir`: the directory whose checkpoints/latest is the copy. */
void event_copy(uint64_t step, const char *dir);

#endif
