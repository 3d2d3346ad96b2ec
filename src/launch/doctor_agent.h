/* The process that the doctor has on each host: it answers questions about its machine, one after
 * the other, until its standard input ends. A question is PROBE_ASK with the members id, ask and
 * those below; its answer PROBE_ANSWER has the same id.
 *
 *   ask        members                          answer
 *   clock                                       clock: seconds since 1970
 *   facts                                       facts (facts.h), networks (network.h)
 *   directory  path, bytes, seconds             directory (facts.h)
 *   write      path, text                       why: "" or what failed. A new file, synced
 *   read       path                             text; why
 *   remove     path                             why
 *   hash       path                             sha256: "" if it cannot be read
 *   listen     address, token, ports            ports, why (link.h); ends an earlier `listen`
 *   try        targets [{address, port}]        why: a list of texts, "" where connected
 *   measure    address, port, token, seconds    why, latency, rate_out, rate_in
 *
 * Depends on channel, protocol, probe, link, network. */
#ifndef LAUNCH_DOCTOR_AGENT_H
#define LAUNCH_DOCTOR_AGENT_H

#include "launch/protocol.h"

enum { PROBE_ASK = MSG_PROBE_FIRST, PROBE_ANSWER };

/* Largest number of targets of one `try`, so that question and answer fit into a message. */
#define PROBE_TARGETS 400

/* Answers questions until the channel ends, then closes the channel. */
NODISCARD Err doctor_agent_run(Channel *head);

#endif
