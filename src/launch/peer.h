/* In-memory copies of checkpoints (train/copies.h) on a second machine. Train reports each
 * complete copy to its agent (base/event.h), the agent reports it to the head, and the head
 * lets the files be sent to the agent of another machine. The files pass through the head: it
 * has an authenticated channel to every agent, and rank 0, which makes the copies, is usually
 * on the head's machine, so they cross the network once. The head requests one part at a time,
 * at the speed of the receiver, so that output and heartbeats on the same channels are not
 * delayed.
 *
 *   head to sender      PEER_SEND    id, dir: send the copy in dir
 *                       PEER_READ    id: send the next part
 *   sender to head,     PEER_PART    binary: id (32 bits, little-endian), kind, bytes
 *   head to receiver
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

/* Kinds of PEER_PART: */
enum {
  PART_FILE = 1, /* begins a file: size (64 bits, little-endian) and name */
  PART_BYTES,    /* bytes of the current file */
  PART_END,      /* ends the copy; contains "run-ID/step-N" */
};

#define PEER_HEADER 5 /* bytes of a part that precede its contents */
#define PEER_BYTES  ((size_t)256 << 10)
#define PEER_FILES  16 /* largest number of files of a checkpoint */
#define PEER_NAME   64 /* size of a buffer for a file name */

/* Parses a PEER_PART; returns false if the frame is too short. */
bool peer_parse(const Frame *f, uint32_t *id, uint8_t *kind, const uint8_t **bytes,
                size_t *len);

/* State of an agent: the checkpoint copy that it sends, and the one that it receives. */
typedef struct {
  char dir[FILE_PATH_MAX]; /* TRIREME_PEER_DIR of the workers on this machine */
  struct {
    uint32_t id; /* id of the checkpoint copy being sent; 0: none */
    int fd[PEER_FILES];
    char name[PEER_FILES][PEER_NAME];
    uint64_t size[PEER_FILES];
    int files, file; /* number of files, and index of the file being sent */
    bool is_named;   /* PART_FILE of the current file has been sent */
    uint64_t offset;
    char place[2 * PEER_NAME]; /* name of the copy that is being sent: "run-ID/step-N" */
  } out;
  struct {
    uint32_t id;      /* id of the checkpoint copy being received; 0: none */
    uint32_t refused; /* id of a copy that has failed; its further parts are ignored */
    int fd;           /* the file being received; -1: none */
    uint64_t left;
    int files;
  } in;
} PeerAgent;

/* Initializes `p` so that peer_close may be called without peer_open. */
#define PEER_AGENT_CLOSED ((PeerAgent){.in.fd = -1})
/* Initializes `p`; `dir` must exist. */
NODISCARD Err peer_open(PeerAgent *p, const char *dir);
void peer_close(PeerAgent *p);
/* Cancels the current transfers, as the head has done, and removes an incomplete copy. */
void peer_cancel(PeerAgent *p);
/* Handles PEER_SEND, PEER_READ or PEER_PART. A file that cannot be read or stored is reported
 * to the head; this function fails only if the channel does. */
NODISCARD Err peer_handle(PeerAgent *p, Channel *head, const Frame *f);

#endif
