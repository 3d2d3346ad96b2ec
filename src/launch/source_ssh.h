/* The machines of --hosts, --hostfile or --inventory as a source of agents: this machine's agent is
 * started directly, all others through ssh, in parallel. Depends on source, ssh, source_local. */
#ifndef LAUNCH_SOURCE_SSH_H
#define LAUNCH_SOURCE_SSH_H

#include "launch/hosts.h"
#include "launch/source.h"
#include "launch/ssh.h"

/* `hosts` and `options` must outlive the source. `min` is the smallest number of machines with
 * which the launch may begin: if fewer can be reached, that is an error once every host has
 * answered or failed; otherwise hosts that fail are reported by a warning and tried again. Resolves the names of the hosts, so
 * it may block for as long as DNS does. Close it with source->close. */
NODISCARD Err source_ssh_open(Source *source, const HostList *hosts, const SshOptions *options,
                              int min);

#endif
