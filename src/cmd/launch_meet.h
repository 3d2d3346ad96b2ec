/* trireme launch without ssh: key files and the rendezvous. Depends on launch/rendezvous. */
#ifndef CMD_LAUNCH_MEET_H
#define CMD_LAUNCH_MEET_H

#include "base/opt.h"
#include "launch/rendezvous.h"

/* Runs `launch --new-key FILE`. */
NODISCARD Err launch_make_key(const OptSet *opts);
/* Runs the rendezvous of --rdzv-endpoint and blocks until this machine's role is known. Sets
 * either *head (the other machines join this one) or *agent (the connection to the head, which
 * this machine has joined). max: --nnodes, the greatest number of machines. */
NODISCARD Err launch_meet(const OptSet *opts, int max, Rendezvous **head, Channel **agent);

#endif
