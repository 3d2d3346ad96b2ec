/* Shared by rendezvous.c (the head) and rendezvous_meet.c (endpoint, agents). Depends on
 * rendezvous. */
#ifndef LAUNCH_RENDEZVOUS_INTERNAL_H
#define LAUNCH_RENDEZVOUS_INTERNAL_H

#include "launch/protocol.h"
#include "launch/rendezvous.h"

/* The first messages on a secure channel to the head, before MSG_HELLO: */
enum {
  /* From the agent: id of the rendezvous, command, version, host. */
  MSG_JOIN = MSG_RENDEZVOUS_FIRST,
  MSG_JOINED, /* sent by the head to an agent that it accepts; has no members */
  /* From the head: text, the reason of the refusal; the head then closes the connection. */
  MSG_NOT_JOINED,
};

/* rendezvous_listen that also returns the errno of door_open in *cause. */
NODISCARD Err rendezvous_open_at(Rendezvous **r, const char *address, int port,
                                 const RendezvousSpec *spec, int *cause);

#endif
