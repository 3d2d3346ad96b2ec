/* The machines of --hosts, --hostfile or --inventory as a source of agents. The agent of this
 * machine is started directly, all others through ssh, in parallel. Depends on source, ssh,
 * source_local. */
#ifndef LAUNCH_SOURCE_SSH_H
#define LAUNCH_SOURCE_SSH_H

#include "launch/hosts.h"
#include "launch/source.h"
#include "launch/ssh.h"

/* `hosts` and `options` must outlive the source. `min`: smallest number of machines with which
 * the launch may begin. If fewer can be reached, the source fails once every host was reached
 * or has failed; otherwise a failed host is a warning and is tried again. Resolves host names,
 * so it blocks as long as DNS does. Close it with source->close. */
NODISCARD Err source_ssh_open(Source *source, const HostList *hosts, const SshOptions *options,
                              int min);

#endif
