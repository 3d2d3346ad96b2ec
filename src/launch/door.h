/* A door is a TCP port that opens secure channels to peers which prove that they have the
 * shared key (handshake.h). The head's rendezvous and the agents' data connections use it.
 *
 * Peers that are not authenticated can use only limited resources: at most DOOR_UNPROVEN_MAX of
 * them are connected at a time, at most DOOR_ADDRESS_MAX from one address, each for at most
 * CHANNEL_HANDSHAKE_S seconds and with memory for one message. While DOOR_UNPROVEN_MAX are
 * connected, others wait in the kernel's queue until one is authenticated, or until the
 * oldest has been connected for DOOR_GRACE_S seconds and is closed. A peer with the key needs
 * two round trips.
 *
 * No function blocks; one thread. Depends on channel. */
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
  DOOR_TEXT_MAX = 64, /* size of a buffer for a numeric address */
};

typedef struct Door Door;

/* Listens on one numeric address of this machine; NULL: on all addresses, by IPv6 and IPv4 if
 * the kernel supports both. With port 0 the kernel chooses the port. After a failure *cause is
 * the errno of bind or listen (EADDRINUSE: another program uses the port). */
NODISCARD Err door_open(Door **door, const char *address, int port, const Key *key, int *cause);
int door_port(const Door *door);
void door_close(Door *door); /* closes the port and all its connections; accepts NULL */

/* Adds at most `room` pollfds and returns their number. Call door_advance at least five times a
 * second, even without an event. */
int door_poll_for(const Door *door, struct pollfd *fds, int room);
/* Accepts connections and continues handshakes. `now` is progress_clock(). */
void door_advance(Door *door, double now);
/* Returns the next authenticated peer: its channel, which the caller must close, and its
 * address. Returns false if there is none. */
bool door_next(Door *door, Channel **channel, char address[DOOR_TEXT_MAX]);

/* Starts to connect to a door and returns the channel immediately; if the connection fails,
 * channel_advance returns the error. `name` is the peer's name in messages. */
NODISCARD Err door_connect(Channel **channel, const char *address, int port, const Key *key,
                           const char *name);

#endif
