/* Shared by rendezvous.c (the head) and rendezvous_meet.c (endpoint, agents). Depends on
 * rendezvous. */
#ifndef LAUNCH_RENDEZVOUS_INTERNAL_H
#define LAUNCH_RENDEZVOUS_INTERNAL_H

#include "launch/protocol.h"
#include "launch/rendezvous.h"

/* The first messages on a secure channel to the head; MSG_HELLO follows. */
enum {
  MSG_JOIN = MSG_RENDEZVOUS_FIRST, /* agent: id, version, host */
  MSG_JOINED,                      /* head: no members */
  MSG_NOT_JOINED,                  /* head: text, the reason; the head then closes */
};

/* rendezvous_listen; *cause as door_open sets it. */
NODISCARD Err rendezvous_open_at(Rendezvous **r, const char *address, int port,
                                 const RendezvousSpec *spec, int *cause);

#endif
