/* The agent: one process per machine that starts, watches and ends the workers on this machine
 * on behalf of the head. Nothing outlives it: it ends all processes it has started when the
 * head is lost. Depends on channel, protocol, process. */
#ifndef LAUNCH_AGENT_H
#define LAUNCH_AGENT_H

#include "launch/channel.h"

/* Serves the head until the head ends the launch (ERR_OK), is lost (ERR_WORK), or this process
 * is asked to leave by SIGINT or SIGTERM (ERR_STOPPED). Closes `head`. No process started here
 * is left. `name` is this machine's name in messages; NULL: its host name. */
NODISCARD Err agent_run(Channel *head, const char *name);

#endif
