/* The agent: one process per machine that starts, watches and ends this machine's share of a
 * launch on behalf of the head. It holds no state that outlives a generation, and ends everything
 * it has started when the head is gone. Depends on channel, protocol, process. */
#ifndef LAUNCH_AGENT_H
#define LAUNCH_AGENT_H

#include "launch/channel.h"

/* Serves the head at the other end of `head`, which it closes, until the head ends the launch
 * (ERR_OK), is lost (ERR_WORK), or this process is asked to leave by SIGINT or SIGTERM
 * (ERR_STOPPED). No process started here is left. `name` is this machine's name for messages;
 * NULL: its host name. */
NODISCARD Err agent_run(Channel *head, const char *name);

#endif
