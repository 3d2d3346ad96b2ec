/* Two small programs that mpirun starts instead of workers and of ssh. Both connect to the
 * agent of their machine (TRIREME_AGENT) and wait for its answer. Depends on channel,
 * protocol. */
#ifndef LAUNCH_STUB_H
#define LAUNCH_STUB_H

#include "base/err.h"

/* `trireme launch --worker`: sends the environment that MPI has set for a rank to the agent,
 * which starts the rank with it as its own child. The stub keeps running, because mpirun
 * expects a process. */
NODISCARD Err stub_run_worker(void);
/* `trireme launch --rsh HOST COMMAND…`, used as mpirun's plm_rsh_agent: lets the agent of HOST
 * run the command in a shell. */
NODISCARD Err stub_run_rsh(const char *host, const char *const *word, int words);

#endif
