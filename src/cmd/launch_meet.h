/* The part of trireme launch for machines without ssh: keys and the rendezvous. Depends on
 * launch/rendezvous. */
#ifndef CMD_LAUNCH_MEET_H
#define CMD_LAUNCH_MEET_H

#include "base/opt.h"
#include "launch/rendezvous.h"

/* --new-key FILE */
NODISCARD Err launch_make_key(const OptSet *opts);
/* --rdzv-endpoint: finds out what this machine is, and sets one of the two: *head if the others join
 * here, *agent if it has joined the head, which it now serves. Blocks until then. */
NODISCARD Err launch_meet(const OptSet *opts, Rendezvous **head, Channel **agent);

#endif
