/* Channel: messages to one peer (head, agent, worker) over a pipe, a Unix socket or TCP.
 * A message is a frame: a type chosen by the caller and 0 to CHANNEL_FRAME_MAX bytes. Frames arrive
 * whole and in order, or the channel ends with an error.
 *
 * On the wire a frame is a 32-bit little-endian length, a type byte and the payload; the length
 * counts the type byte. On a secure channel type and payload are encrypted as one record. Bytes of the
 * peer are not trusted: a length is checked before memory is
 * allocated for it, and neither direction stores more than its limit.
 *
 * Nothing blocks. The owner's loop, for all its channels:
 *     channel_events() fills in pollfds, channel_wait_ms() gives the longest wait; poll();
 *     channel_advance() on each channel; then channel_next() until it returns false.
 * Threads: a Channel is used by one thread at a time. The process must ignore SIGPIPE, as main()
 * does. Depends on handshake, mem, progress (its clock). */
#ifndef LAUNCH_CHANNEL_H
#define LAUNCH_CHANNEL_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "launch/handshake.h"

enum {
  CHANNEL_FRAME_MAX = 1 << 20,  /* bytes of a frame's payload */
  CHANNEL_QUEUE_MAX = 64 << 20, /* bytes of frames that wait to be sent */
  CHANNEL_HANDSHAKE_S = 5,      /* seconds for the whole handshake of a secure channel */
};

typedef struct Channel Channel;

typedef struct {
  uint8_t type;
  const uint8_t *data;
  size_t len;
} Frame;

/* Opens a channel without encryption, for peers on this machine or behind ssh: frames are read from
 * `in` and written to `out`, which may be the same descriptor. Takes both: they become
 * non-blocking, and channel_close closes them; after an error they are closed. `name` is the
 * peer's name in messages: "host b". */
NODISCARD Err channel_open(Channel **c, int in, int out, const char *name);

/* Opens a channel over a TCP connection on which both sides prove that they know `key`, and all
 * frames are encrypted (launch/handshake.h). The handshake runs inside channel_advance and must
 * end within CHANNEL_HANDSHAKE_S seconds; until then the peer's bytes take no more memory than
 * HANDSHAKE_MESSAGE_MAX. Frames can be queued at once; they are sent after the proof. Takes `fd`
 * as channel_open does, and copies the key. */
NODISCARD Err channel_open_secure(Channel **c, int fd, const Key *key, HandshakeRole role,
                                  const char *name);
/* Has the peer proved the key? Always true of a channel without encryption. */
bool channel_is_proven(const Channel *c);
/* After channel_advance has failed: did one side not accept the other's proof of the key? To try again
 * with the same key is then useless. */
bool channel_is_key_refused(const Channel *c);
/* Another limit than CHANNEL_HANDSHAKE_S, from now on. */
void channel_limit_handshake(Channel *c, double seconds);

/* Closes the descriptors and frees the channel; frames that were not yet sent are lost. NULL is
 * allowed. To send them first: channel_end, then channel_advance until channel_unsent is 0. */
void channel_close(Channel *c);

/* Fills in what to poll for: *count (0 to 2) elements. With 0 the owner has frames to read first
 * (channel_next). */
void channel_events(const Channel *c, struct pollfd fds[2], int *count);
/* Milliseconds after which channel_advance must be called even if no event arrives, -1 for any:
 * the timeout of poll(). */
int channel_wait_ms(const Channel *c);

/* Reads and writes what is possible now. An error is final, and every later call repeats it: the
 * peer closed the connection, sent what is no frame, or was silent for too long. Frames that
 * arrived before the error can still be read with channel_next. */
NODISCARD Err channel_advance(Channel *c);
/* Stores the next frame; false if there is none. Its data are valid until the next call of
 * channel_next, channel_advance or channel_close. */
bool channel_next(Channel *c, Frame *frame);

/* Queues a frame. `type` is 1 to 255. An error if the frame is too long, if more than
 * CHANNEL_QUEUE_MAX bytes would wait, or if the channel has failed or was ended; the frame is then
 * not sent, and those before it are not affected. */
NODISCARD Err channel_send(Channel *c, uint8_t type, const void *data, size_t len);
size_t channel_unsent(const Channel *c); /* bytes queued and not yet given to the kernel */

/* Keeps watch over the peer: sends an empty frame, which the peer's channel discards, when nothing
 * else was sent for `every` seconds, and fails if nothing arrives for `limit` seconds. 0 and 0: off.
 * The frames are sent by channel_advance, so they also prove that the owner's loop runs. */
void channel_set_heartbeat(Channel *c, double every, double limit);

/* Queues the mark of an orderly end; nothing can be sent after it. */
NODISCARD Err channel_end(Channel *c);
/* After channel_advance has failed: did the peer end the channel in order, with channel_end? If not,
 * its last frames may be missing. */
bool channel_is_ended(const Channel *c);

const char *channel_name(const Channel *c);

#endif
