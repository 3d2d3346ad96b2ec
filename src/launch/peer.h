/* In-memory copies of checkpoints (train/copies.h) on a second machine. Train reports each complete
 * copy to its agent (base/event.h), the agent to the head, and the head has the files sent to the
 * agent of another machine. They pass through the head: it has a proven channel to every agent, and
 * rank 0, which makes the copies, is usually on the head's machine, so that they cross the network
 * once. The head asks for one part at a time, while the receiver keeps up, so that output and
 * heartbeats on the same channels are not delayed.
 *
 *   head to holder      PEER_SEND    id, dir: send the copy in dir
 *                       PEER_READ    id: send the next part
 *   holder to head to receiver       PEER_PART, binary: id (32 bits, little-endian), kind, bytes
 *   receiver to head    PEER_STORED  id: the copy is complete
 *   both to head        PEER_FAILED  id, text
 *
 * Depends on channel, protocol. */
#ifndef LAUNCH_PEER_H
#define LAUNCH_PEER_H

#include "base/file.h"
#include "launch/protocol.h"

enum {
  PEER_SEND = MSG_COPY_FIRST,
  PEER_READ,
  PEER_PART,
  PEER_STORED,
  PEER_FAILED,
  PEER_LAST = PEER_FAILED
};

/* Kinds of PEER_PART */
enum {
  PART_FILE = 1, /* begins a file: its size (64 bits, little-endian), its name */
  PART_BYTES,    /* of that file */
  PART_END,      /* ends the copy: "run-ID/step-N" */
};

#define PEER_HEADER 5 /* bytes of a part before its contents */
#define PEER_BYTES  ((size_t)256 << 10)
#define PEER_FILES  16 /* of a checkpoint */
#define PEER_NAME   64 /* bytes of a name */

/* False: the frame is too short to be a part. */
bool peer_parse(const Frame *f, uint32_t *id, uint8_t *kind, const uint8_t **bytes,
                size_t *len);

/* The agent's side: what it sends and what it receives. */
typedef struct {
  char dir[FILE_PATH_MAX]; /* TRIREME_PEER_DIR of this machine's workers */
  struct {
    uint32_t id; /* 0: nothing is sent */
    int fd[PEER_FILES];
    char name[PEER_FILES][PEER_NAME];
    uint64_t size[PEER_FILES];
    int files, file; /* how many, and the one that is being sent */
    bool is_named;   /* its PART_FILE is sent */
    uint64_t offset;
    char place[2 * PEER_NAME]; /* "run-ID/step-N" */
  } out;
  struct {
    uint32_t id;      /* 0: nothing is received */
    uint32_t refused; /* a copy that failed: its other parts are ignored */
    int fd;           /* the file that is being received; -1: none */
    uint64_t left;
    int files;
  } in;
} PeerAgent;

/* `dir` must exist. */
NODISCARD Err peer_open(PeerAgent *p, const char *dir);
void peer_close(PeerAgent *p);
/* Handles a frame of type PEER_SEND, PEER_READ or PEER_PART. What cannot be read or stored is reported
 * to the head; an error is one of the channel. */
NODISCARD Err peer_handle(PeerAgent *p, Channel *head, const Frame *f);

#endif
