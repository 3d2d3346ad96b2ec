/* How often, and why, the run was restarted by whoever started this process, from the environment:
 *   TRIREME_RESTART_COUNT, TRIREME_RESTART_REASON   trireme launch
 *   SLURM_RESTART_COUNT                             Slurm, for a job that was requeued
 * Depends on base. */
#ifndef TRAIN_RESTART_H
#define TRAIN_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#define RESTART_REASON 512 /* bytes, with the 0 at the end */

typedef struct {
  bool is_counted;             /* the environment has a count */
  uint64_t count;              /* 0: the first start */
  char reason[RESTART_REASON]; /* printable UTF-8, control characters escaped; "": not given */
} Restart;

/* A count that is not a number is a warning, and counts as none. */
Restart restart_read(void);

#endif
