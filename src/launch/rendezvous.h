/* Rendezvous of machines without ssh. All are started with the same endpoint HOST:PORT, as with
 * torchrun. The machine that has the address HOST becomes the head and listens there; the
 * others connect as agents and retry until the head is there. All prove that they know the same
 * key (door.h). Then an agent sends the id of the rendezvous and its command, and the head
 * accepts it, or refuses it with a reason: an agent runs what the head sends, so one that was
 * started with another command would silently take part in the wrong run. A second process on the head's machine becomes an agent.
 *
 * Threads: one. rendezvous_meet and rendezvous_join block; the functions of a Source do not.
 * Depends on door, protocol, source. */
#ifndef LAUNCH_RENDEZVOUS_H
#define LAUNCH_RENDEZVOUS_H

#include "base/err.h"
#include "launch/channel.h"
#include "launch/key.h"
#include "launch/source.h"

enum {
  RENDEZVOUS_PORT = 29400, /* default port of torchrun */
  RENDEZVOUS_ID_MAX = 128, /* largest number of bytes of an id */
};

typedef struct {
  char host[256]; /* a name, or a numeric address without brackets */
  int port;
} Endpoint;

typedef struct {
  Endpoint endpoint;
  const char *id;
  const char *command; /* the workers' command, quoted for a shell; the same on all machines */
  Key key;
  double timeout;  /* seconds until the attempt to find the head fails */
  bool has_others; /* other machines must reach the endpoint: a loopback address is refused */
} RendezvousSpec;

typedef struct Rendezvous Rendezvous; /* state of the head's side of a rendezvous */

/* Parses "HOST", "HOST:PORT", "[IPV6]:PORT" or "IPV6". */
NODISCARD Err rendezvous_parse_endpoint(const char *text, Endpoint *endpoint);
/* Checks the id: 1 to RENDEZVOUS_ID_MAX bytes of UTF-8. */
NODISCARD Err rendezvous_check_id(const char *id);

/* Determines the role of this machine. Sets *head if it has the endpoint's address and now
 * listens there, or *agent if it has joined the head. Blocks. */
NODISCARD Err rendezvous_meet(const RendezvousSpec *spec, Rendezvous **head, Channel **agent);
/* The two roles of rendezvous_meet as separate functions, for launchers that know the role
 * of each machine. The head listens on a numeric address; with port 0 the kernel chooses the
 * port. */
NODISCARD Err rendezvous_listen(Rendezvous **head, const char *address, int port,
                                const RendezvousSpec *spec);
NODISCARD Err rendezvous_join(Channel **agent, const RendezvousSpec *spec);

int rendezvous_port(const Rendezvous *r);
/* Makes a Source of the agents that join. The Source owns the Rendezvous. */
void rendezvous_to_source(Rendezvous *r, Source *source);
/* Closes the port and all joining connections; accepts NULL. */
void rendezvous_close(Rendezvous *r);

#endif
