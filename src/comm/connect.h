/* The first messages between the ranks: every rank sends one to every other rank, so that a
 * network over which MPI cannot connect two ranks is an error within a time limit. MPI itself
 * waits without a limit. Threads: the communication thread, before it serves the queue. Depends
 * on group, heartbeat, transport. */
#ifndef COMM_CONNECT_H
#define COMM_CONNECT_H

#include "comm/group.h"

/* Call it after `begin` of the transport and before any collective of MPI. `limit`: seconds from
 * now. The error lists the ranks from which no message came; the transport cannot be used or
 * ended after it. */
NODISCARD Err connect_ranks(const Group *group, double limit);

#endif
