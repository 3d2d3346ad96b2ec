/* Door: a TCP port that opens secure channels to peers which prove the shared key (handshake.h).
 * The head's rendezvous and the agents' data connections use it.
 *
 * Peers that have proved nothing cannot use more than a fixed share of this machine: at most
 * DOOR_UNPROVEN_MAX of them are connected at a time, DOOR_ADDRESS_MAX from one address, each for at
 * most CHANNEL_HANDSHAKE_S seconds and with one message of memory. When DOOR_UNPROVEN_MAX are there,
 * others wait in the kernel until one has proved the key, or the oldest has been there for
 * DOOR_GRACE_S seconds, which then makes room: a peer with the key needs two round trips.
 *
 * Nothing blocks; one thread. Depends on channel. */
#ifndef LAUNCH_DOOR_H
#define LAUNCH_DOOR_H

#include <poll.h>

#include "base/err.h"
#include "launch/channel.h"
#include "launch/key.h"

enum {
  DOOR_UNPROVEN_MAX = 64,
  DOOR_ADDRESS_MAX = 8,
  DOOR_GRACE_S = 1,
  DOOR_TEXT_MAX = 64, /* bytes of a numeric address with its NUL */
};

typedef struct Door Door;

/* Listens on a numeric address of this machine, on no other; NULL: on all, by IPv6 and IPv4 if the
 * kernel has both. Port 0 lets the kernel choose. After a failure *cause is the errno of bind or listen (EADDRINUSE: another program listens there). */
NODISCARD Err door_open(Door **door, const char *address, int port, const Key *key, int *cause);
int door_port(const Door *door);
void door_close(Door *door); /* NULL is allowed */

/* Adds at most `room` descriptors to poll and returns how many. Call door_advance at least five
 * times a second, also without an event. */
int door_poll_for(const Door *door, struct pollfd *fds, int room);
/* Accepts connections and continues handshakes. `now` is progress_clock(). */
void door_advance(Door *door, double now);
/* The next peer that has proved the key: its channel, which the caller closes, and its address.
 * False: none. */
bool door_next(Door *door, Channel **channel, char address[DOOR_TEXT_MAX]);

/* Begins to connect to a door, and opens the channel at once: that the connection cannot be made is
 * an error of channel_advance. `name` is the peer's name in messages. */
NODISCARD Err door_connect(Channel **channel, const char *address, int port, const Key *key,
                           const char *name);

#endif
