/* A channel exchanges messages with one peer (head, agent or worker) over a pipe, a Unix socket
 * or TCP. A message is a frame: a type chosen by the caller and 0 to CHANNEL_FRAME_MAX bytes.
 * Frames arrive whole and in order, or the channel fails.
 *
 * A frame is sent as a 32-bit little-endian length, a type byte and the payload; the length
 * includes the type byte. On a secure channel, type and payload are encrypted as one record.
 * Input is not trusted: a length is checked before memory is allocated, and the memory for each
 * direction is limited.
 *
 * No function blocks. The owner's loop, for all its channels: channel_events() fills in pollfds
 * and channel_wait_ms() returns the longest wait; poll(); channel_advance() on each channel;
 * then channel_next() until it returns false. Threads: a channel is used by one thread at a
 * time. The process must ignore SIGPIPE, as main() does. Depends on handshake, mem, progress
 * (its clock). */
#ifndef LAUNCH_CHANNEL_H
#define LAUNCH_CHANNEL_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "launch/handshake.h"

enum {
  CHANNEL_FRAME_MAX = 1 << 20,  /* largest payload of a frame in bytes */
  CHANNEL_QUEUE_MAX = 64 << 20, /* largest number of bytes that wait to be sent */
  CHANNEL_HANDSHAKE_S = 5,      /* time limit in seconds of the handshake of a secure channel */
};

typedef struct Channel Channel;

typedef struct {
  uint8_t type;
  const uint8_t *data;
  size_t len;
} Frame;

/* Opens a channel without encryption, for peers on this machine or behind ssh. Frames are read
 * from `in` and written to `out`, which may be the same descriptor. The channel owns both: it
 * makes them non-blocking and closes them, also if this function fails. `name` is the peer's
 * name in messages, such as "host b". */
NODISCARD Err channel_open(Channel **c, int in, int out, const char *name);

/* Opens an encrypted channel over a TCP connection. Both sides prove that they know `key`
 * (launch/handshake.h). The handshake runs inside channel_advance and must finish within
 * CHANNEL_HANDSHAKE_S seconds; until then the peer's input uses no more memory than
 * HANDSHAKE_MESSAGE_MAX. Frames may be queued immediately and are sent after the proof. Owns
 * `fd` as channel_open does; copies the key. */
NODISCARD Err channel_open_secure(Channel **c, int fd, const Key *key, HandshakeRole role,
                                  const char *name);
/* Returns true if the peer is authenticated; always true without encryption. */
bool channel_is_proven(const Channel *c);
/* After channel_advance has failed: returns true if the peer's proof of the key was wrong. Another
 * attempt with the same key is then useless. */
bool channel_is_key_refused(const Channel *c);
/* After channel_advance has failed: returns true if the peer closed the connection after our proof
 * of the key. It has another key, which it does not report, or it ended at that moment. */
bool channel_is_key_doubted(const Channel *c);
/* Replaces the time limit CHANNEL_HANDSHAKE_S; `seconds` count from this call. */
void channel_limit_handshake(Channel *c, double seconds);

/* Closes the descriptors and frees the channel; accepts NULL. Frames that have not been sent
 * are lost. To send them first, call channel_end, then channel_advance until channel_unsent is
 * 0. */
void channel_close(Channel *c);

/* Fills in *count (0 to 2) pollfds. With 0, the owner must read frames with channel_next before
 * it polls. */
void channel_events(const Channel *c, struct pollfd fds[2], int *count);
/* Returns the timeout for poll(): milliseconds after which channel_advance must be called even
 * without an event; -1: no limit. */
int channel_wait_ms(const Channel *c);

/* Reads and writes without blocking. An error is final and returned by all later calls: the
 * peer has closed the connection, sent an invalid frame, or sent nothing for too long. Frames
 * that arrived before the error can still be read with channel_next. */
NODISCARD Err channel_advance(Channel *c);
/* Returns the next frame, or false if there is none. Its data are valid until the next call of
 * channel_next, channel_advance or channel_close. */
bool channel_next(Channel *c, Frame *frame);

/* Queues a frame. `type` is 1 to 255. Fails if the frame is too long, if more than
 * CHANNEL_QUEUE_MAX bytes would wait, or if the channel has failed or was ended. The frame is
 * then not sent; earlier ones are. */
NODISCARD Err channel_send(Channel *c, uint8_t type, const void *data, size_t len);
/* Bytes that are queued and not yet written to the kernel. */
size_t channel_unsent(const Channel *c);

/* Turns on heartbeats: sends an empty frame, which the peer's channel discards, if nothing was
 * sent for `every` seconds, and fails if nothing arrives for `limit` seconds. 0 and 0 turn them
 * off. channel_advance sends them, so they also show that the owner's loop is running. */
void channel_set_heartbeat(Channel *c, double every, double limit);

/* Queues an end mark, after which nothing can be sent. */
NODISCARD Err channel_end(Channel *c);
/* Returns true if the peer's end mark (channel_end) has arrived; frames before it may still have to
 * be read with channel_next. If channel_advance has failed without it, the peer's last frames may be
 * missing. */
bool channel_is_ended(const Channel *c);

const char *channel_name(const Channel *c);

#endif
