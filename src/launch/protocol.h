/* Messages between the head (supervisor), the agents (one per machine) and the stubs that mpirun
 * starts. Bodies are JSON objects unless marked binary; unknown members are ignored.
 *
 * A generation is one attempt to run all workers. Messages about a generation that is over are
 * ignored by both sides, so a late answer cannot end the next one.
 *
 * Depends on channel, Jansson. */
#ifndef LAUNCH_PROTOCOL_H
#define LAUNCH_PROTOCOL_H

#include <jansson.h>
#include <stdint.h>

#include "launch/channel.h"

enum {
  /* Agent to head */
  MSG_HELLO = 1,     /* the first message: host, pid, program, directory, cores, gpus, version,
                         networks ([{name, address, prefix}]) */
  MSG_WORKER_BEGAN,  /* generation, rank, pid */
  MSG_WORKER_ENDED,  /* generation, rank, status (-1: by a signal), signal */
  MSG_EVENT,         /* generation, rank, event: what the worker reported (base/event.h) */
  MSG_OUTPUT,        /* binary: OutputHeader, then bytes that a worker or mpirun printed */
  MSG_PROCESS_ENDED, /* generation, id, status, signal: a process of MSG_START */
  MSG_RSH,    /* generation, id, host, command: mpirun wants a daemon on another machine */
  MSG_CLEAR,  /* generation: no process of the agent is left */
  MSG_FAILED, /* generation, text: the agent cannot do what was asked */
  MSG_LEAVE,  /* reason: the machine is about to leave (its agent got SIGTERM or SIGINT) */

  /* Head to agent */
  MSG_BEGIN = 24, /* a generation: see BeginMessage in agent.c for its members */
  MSG_START,      /* generation, id, argv: start mpirun or one of its daemons */
  MSG_STOP,       /* generation: SIGTERM to all workers, which save and exit with status 3 */
  MSG_KILL,       /* generation: SIGKILL to every process; answered with MSG_CLEAR */
  MSG_RSH_ENDED,  /* generation, id, status: the daemon of a MSG_RSH has ended */
  MSG_END,        /* kill everything, remove the agent's directory and exit */

  /* Stub to agent, through the Unix socket named by TRIREME_AGENT */
  STUB_WORKER = 48, /* binary: the environment that MPI gave, NUL-terminated strings */
  STUB_RSH,         /* host, command */

  /* Agent to stub */
  STUB_END = 60, /* status: exit with it */

  /* Types from here on belong to other files: see their headers. */
  MSG_PROBE_FIRST = 64,       /* questions of the doctor and their answers */
  MSG_COPY_FIRST = 96,        /* in-memory copies of checkpoints */
  MSG_RENDEZVOUS_FIRST = 120, /* rendezvous_internal.h */
  /* 128 to 132: network_proof.h */
};

/* Streams of MSG_OUTPUT */
enum { OUTPUT_STDOUT = 1, OUTPUT_STDERR = 2, OUTPUT_TERMINAL = 3 };
#define OUTPUT_OF_MPIRUN UINT32_MAX /* instead of a rank: what mpirun and its daemons print */

typedef struct {
  uint32_t generation, rank;
  uint8_t stream;
} OutputHeader;
#define OUTPUT_HEADER_BYTES 9
#define OUTPUT_MAX          32768 /* bytes of output in one message */

/* An error if the body is so long that a copy with some more members might not be sent. */
NODISCARD Err protocol_check_size(const json_t *body);
/* Sends `body`, which it releases also on failure. */
NODISCARD Err protocol_send(Channel *c, uint8_t type, json_t *body);
/* Parses the body of a frame: at most 64 kB, a JSON object. `peer` names the sender in errors. */
NODISCARD Err protocol_parse(const Frame *f, const char *peer, json_t **body);
/* Members of a parsed body; the value for a missing or wrongly typed member is given. */
int64_t protocol_int(const json_t *body, const char *name, int64_t missing);
const char *protocol_text(const json_t *body, const char *name); /* "" if missing */

NODISCARD Err output_send(Channel *c, const OutputHeader *header, const void *bytes,
                          size_t len);
/* False: the frame is too short to be output. */
bool output_parse(const Frame *f, OutputHeader *header, const uint8_t **bytes, size_t *len);

#endif
