/* The two small programs that mpirun starts instead of workers and of ssh. Both connect to the
 * agent of their machine (TRIREME_AGENT) and wait for its answer. Depends on channel, protocol. */
#ifndef LAUNCH_STUB_H
#define LAUNCH_STUB_H

#include "base/err.h"

/* `trireme launch --worker`: gives the agent the environment that MPI has set for a rank. The agent
 * starts the rank with it, as its own child; the stub stays so that mpirun sees a process. */
NODISCARD Err stub_run_worker(void);
/* `trireme launch --rsh HOST COMMAND…`, the plm_rsh_agent of mpirun: lets the agent of HOST run
 * the command in a shell. */
NODISCARD Err stub_run_rsh(const char *host, const char *const *word, int words);

#endif
