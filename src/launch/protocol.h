/* Messages between the head (the supervisor), the agents (one per machine) and the stubs that
 * mpirun starts. Bodies are JSON objects unless marked binary; unknown members are ignored.
 *
 * A generation is one attempt to run all workers. Both sides ignore messages about an earlier
 * generation, so a late answer cannot end the current one.
 *
 * Depends on channel, Jansson. */
#ifndef LAUNCH_PROTOCOL_H
#define LAUNCH_PROTOCOL_H

#include <jansson.h>
#include <stdint.h>

#include "launch/channel.h"

enum {
  /* Agent to head. The comments list the members of the body. */

  /* Sent once, when the agent has set itself up; only MSG_WARNING may come before it: host, pid,
   * program, directory, cores, gpus, version, networks ([{name, address, prefix}]). */
  MSG_HELLO = 1,
  MSG_WORKER_BEGAN, /* generation, rank, pid: a worker has started */
  MSG_WORKER_ENDED, /* generation, rank, status (-1: killed by a signal), signal */
  MSG_EVENT,        /* generation, rank, event: report of the worker (base/event.h) */
  MSG_OUTPUT,       /* binary: OutputHeader, then output of a worker or of mpirun */
  /* generation, id, status, signal: a process started by MSG_START has ended. */
  MSG_PROCESS_ENDED,
  MSG_RSH,    /* generation, id, host, command: mpirun requests a daemon on another machine */
  MSG_CLEAR,  /* generation: no process of the generation is left */
  MSG_FAILED, /* generation, text: the agent cannot execute a request */
  /* reason: the machine is about to leave (its agent received SIGTERM, SIGINT or SIGHUP). */
  MSG_LEAVE,
  MSG_WARNING, /* text: a warning of the agent, which the head prints with the machine's name */

  /* Head to agent: */
  MSG_BEGIN = 24, /* begins a generation; pack_begin in supervisor_start.c sets its members */
  MSG_START,      /* generation, id, argv: start mpirun or one of its daemons */
  MSG_STOP, /* generation: send SIGUSR1 to all workers, which save and exit with status 3 */
  MSG_KILL, /* generation: send SIGKILL to every process; answered with MSG_CLEAR */
  MSG_RSH_ENDED, /* generation, id, status: the daemon of a MSG_RSH has ended */
  /* status, text: kill all processes, remove the agent's directory and exit. `status` is the exit
   * status of the launch, `text` a sentence about a failure; both are missing for a machine that is
   * released while the launch continues. */
  MSG_END,
  MSG_ASIDE, /* text: this machine is not used, for the reason given */

  /* Stub to agent, through the Unix socket named by TRIREME_AGENT: */
  STUB_WORKER = 48, /* binary: environment set by MPI, NUL-terminated strings */
  STUB_RSH,         /* host, command: start a daemon on that host */

  /* Agent to stub: */
  STUB_END = 60, /* status: exit with this status */

  /* First types of messages that are defined in other files: */
  MSG_PROBE_FIRST = 64,       /* messages of the doctor: see doctor_agent.h */
  MSG_COPY_FIRST = 96,        /* messages about in-memory copies: see peer.h */
  MSG_RENDEZVOUS_FIRST = 120, /* messages of the rendezvous: see rendezvous_internal.h */
  /* 128 to 132 are messages of the network test: see network_proof.h */
};

/* Heartbeats between the head and an agent, in both directions. */
#define HEARTBEAT_EVERY 2.0 /* seconds between two heartbeats */
#define HEARTBEAT_LIMIT 6.0 /* seconds without a message after which the peer counts as lost */

/* Streams of MSG_OUTPUT. */
enum { OUTPUT_STDOUT = 1, OUTPUT_STDERR = 2, OUTPUT_TERMINAL = 3 };
#define OUTPUT_OF_MPIRUN UINT32_MAX /* rank number of output of mpirun and its daemons */

typedef struct {
  uint32_t generation, rank;
  uint8_t stream;
} OutputHeader;
#define OUTPUT_HEADER_BYTES 9
#define OUTPUT_MAX          32768 /* largest number of output bytes in one message */

/* Returns a JSON string for a text that may be cut inside a character or contain bytes that are
 * not UTF-8; those become visible escapes. */
json_t *protocol_make_text(const char *text);
/* Fails if the body is so long that a copy with some more members might not fit into a
 * message. */
NODISCARD Err protocol_check_size(const json_t *body);
/* Sends and frees `body`; frees it also on failure. */
NODISCARD Err protocol_send(Channel *c, uint8_t type, json_t *body);
/* Parses the body of a frame: a JSON object of at most 64 kB. `peer` is the sender's name in
 * errors. */
NODISCARD Err protocol_parse(const Frame *f, const char *peer, json_t **body);
/* Return members of a parsed body; `missing` is returned for a missing member or one of the
 * wrong type. */
int64_t protocol_int(const json_t *body, const char *name, int64_t missing);
/* Returns a member that must be an integer from `least` to `most`; `otherwise` if it is missing
 * or out of range. */
int64_t protocol_between(const json_t *body, const char *name, int64_t least, int64_t most,
                         int64_t otherwise);
/* Returns "" if it is missing. */
const char *protocol_text(const json_t *body, const char *name);

NODISCARD Err output_send(Channel *c, const OutputHeader *header, const void *bytes,
                          size_t len);
/* Parses MSG_OUTPUT; returns false if the frame is too short. */
bool output_parse(const Frame *f, OutputHeader *header, const uint8_t **bytes, size_t *len);

#endif
