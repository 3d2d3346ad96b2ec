/* How often, and why, the run was restarted, from environment variables:
 *   TRIREME_RESTART_COUNT, TRIREME_RESTART_REASON   set by trireme launch
 *   TRIREME_RESTART_TRAINED                         set by trireme launch
 *   SLURM_RESTART_COUNT                             set by Slurm for a requeued job
 * Depends on base. */
#ifndef TRAIN_RESTART_H
#define TRAIN_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#define RESTART_REASON 512 /* size of the buffer, with the terminating zero */

typedef struct {
  bool is_counted;             /* the environment has a count */
  uint64_t count;              /* number of restarts; 0: first start */
  char reason[RESTART_REASON]; /* printable UTF-8, control characters escaped; "": not known */
} Restart;

/* Returns true if this launch has completed a step of the run before, so that RUN/config must
 * exist. */
bool restart_has_trained(void);
/* Reads the variables. A count that is not a number is ignored with a warning. */
Restart restart_read(void);

#endif
