/* Framed messages over non-blocking descriptors: buffers, limits, heartbeats, the progress of a
 * handshake. Depends on handshake, mem, progress. */
#include "launch/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/progress.h"

enum {
  LENGTH_BYTES = 4,
  READ_MIN = 16 << 10, /* smallest number of bytes by which the receive buffer grows */
  KEEP_MAX = 1 << 20,  /* an empty buffer of more bytes than this is freed */
  TYPE_OWN = 0, /* type of the channel's own frames: heartbeat (no payload) or END_MARK */
  END_MARK = 1,
  BODY_MAX = 1 + CHANNEL_FRAME_MAX, /* largest type and payload of a frame, in bytes */
  SEAL_AHEAD = 64 << 10,            /* bytes that are encrypted ahead of writing */
};

/* A queue of bytes: the bytes [begin, end) of an array that grows. */
typedef struct {
  uint8_t *bytes;
  size_t begin, end, capacity;
} ByteQueue;

struct Channel {
  int in, out;
  char name[128];
  ByteQueue
      received; /* [begin, checked) holds complete frames, [checked, end) an incomplete one */
  size_t checked;
  ByteQueue unsent;  /* frames that are queued to be sent */
  Handshake *secure; /* state of the encryption; NULL: the channel is not encrypted */
  /* With encryption: handshake messages and encrypted records to be written. */
  ByteQueue sealed;
  ByteQueue opened; /* working memory for the contents of one record */
  double handshake_until;
  double heartbeat_every, silence_limit;
  /* When bytes were last received and sent, by progress_clock(). */
  double last_received, last_sent;
  double last_call; /* time of the last channel_advance; 0: none */
  double paused; /* last pause between two calls of over half the silence_limit, in seconds */
  bool has_sent_end, has_received_end;
  bool is_key_refused;
  bool is_key_doubted;
  bool is_out_broken; /* a write has failed; the peer no longer reads */
  ErrRecord failure;  /* error that ended the channel; its code is ERR_OK until then */
};

static size_t count_bytes(const ByteQueue *q) {
  return q->end - q->begin;
}

/* Makes room for `need` bytes after `end`: moves the queued bytes to the beginning of the
 * array. If that frees little, the array also grows, so that the moves cost a constant time per
 * byte. */
static Err reserve_bytes(ByteQueue *q, size_t need) {
  if (q->capacity - q->end >= need) return ERR_OK;
  size_t used = count_bytes(q), freed = q->begin;
  if (used && freed) memmove(q->bytes, q->bytes + freed, used);
  q->begin = 0;
  q->end = used;
  if (q->capacity - used >= need && freed >= used / 4) return ERR_OK;
  size_t least = used + need > q->capacity ? used + need : q->capacity + 1;
  return mem_grow(&q->bytes, &q->capacity, least, 1);
}

static void drop_bytes(ByteQueue *q, size_t count) {
  q->begin += count;
  if (q->begin < q->end) return;
  q->begin = 0;
  q->end = 0;
  if (q->capacity <= KEEP_MAX) return;
  mem_free(q->bytes);
  q->bytes = NULL;
  q->capacity = 0;
}

static void put_length(uint8_t *at, size_t length) {
  for (int i = 0; i < LENGTH_BYTES; i++) at[i] = (uint8_t)(length >> (8 * i));
}

static size_t get_length(const uint8_t *at) {
  uint32_t length = 0;
  for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint32_t)at[i] << (8 * i);
  return length;
}

/* Stores the error, which all later calls return. */
static Err fail_channel(Channel *c, Err err) {
  c->failure = err_take(err);
  return err;
}

/* Sets O_NONBLOCK and FD_CLOEXEC, so that no program started by this one holds the connection
 * open. */
static Err prepare_descriptor(int fd, const char *name) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return err_errno("cannot use the connection to", name);
  return ERR_OK;
}

/* Sends frames without delay (TCP_NODELAY), because they are small and often answered. Fails
 * without effect on other descriptors than TCP. */
static void disable_delay(int fd) {
  int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Err channel_open(Channel **channel, int in, int out, const char *name) {
  Channel *c = NULL;
  Err err;
  TRY_DONE(mem_alloc(&c, 1, sizeof *c));
  snprintf(c->name, sizeof c->name, "%s", name);
  TRY_DONE(prepare_descriptor(in, name));
  TRY_DONE(prepare_descriptor(out, name));
  disable_delay(out);
  c->in = in;
  c->out = out;
  c->last_received = progress_clock();
  c->last_sent = c->last_received;
done:
  if (err) {
    close(in);
    if (out != in) close(out);
    mem_free(c);
    c = NULL;
  }
  *channel = c;
  return err;
}

Err channel_open_secure(Channel **channel, int fd, const Key *key, HandshakeRole role,
                        const char *name) {
  Handshake *secure;
  Err err = handshake_begin(&secure, key, role);
  if (err) close(fd);
  if (!err) err = channel_open(channel, fd, fd, name);
  if (err) {
    handshake_free(secure);
    *channel = NULL;
    return err;
  }
  (*channel)->secure = secure;
  channel_limit_handshake(*channel,
                          (double)fault_number("handshake-limit", CHANNEL_HANDSHAKE_S));
  return ERR_OK;
}

void channel_limit_handshake(Channel *c, double seconds) {
  c->handshake_until = progress_clock() + seconds;
}

bool channel_is_key_refused(const Channel *c) {
  return c->is_key_refused;
}

bool channel_is_key_doubted(const Channel *c) {
  return c->is_key_doubted;
}

bool channel_is_proven(const Channel *c) {
  return !c->secure || handshake_is_done(c->secure);
}

void channel_close(Channel *c) {
  if (!c) return;
  handshake_free(c->secure);
  mem_free(c->opened.bytes);
  mem_free(c->sealed.bytes);
  close(c->in);
  if (c->out != c->in) close(c->out);
  mem_free(c->received.bytes);
  mem_free(c->unsent.bytes);
  mem_free(c);
}

const char *channel_name(const Channel *c) {
  return c->name;
}

void channel_set_heartbeat(Channel *c, double every, double limit) {
  c->heartbeat_every = every;
  c->silence_limit = limit;
  c->last_received = progress_clock();
}

size_t channel_unsent(const Channel *c) {
  return count_bytes(&c->unsent) + count_bytes(&c->sealed);
}

/* Bytes that encryption adds to a frame. */
static size_t count_extra(const Channel *c) {
  return c->secure ? HANDSHAKE_RECORD_EXTRA : 0;
}

bool channel_is_ended(const Channel *c) {
  return c->has_received_end;
}

/* Returns false if the receive buffer holds at least one complete frame, which must be read
 * first. */
static bool can_receive(const Channel *c) {
  return count_bytes(&c->received) < LENGTH_BYTES + BODY_MAX + count_extra(c);
}

void channel_events(const Channel *c, struct pollfd fds[2], int *count) {
  *count = 0;
  bool can_send = channel_is_proven(c) ? channel_unsent(c) > 0 : count_bytes(&c->sealed) > 0;
  bool wants_out = can_send || c->is_out_broken;
  if (can_receive(c)) fds[(*count)++] = (struct pollfd){.fd = c->in, .events = POLLIN};
  if (!wants_out) return;
  if (*count && c->in == c->out)
    fds[0].events |= POLLOUT;
  else
    fds[(*count)++] = (struct pollfd){.fd = c->out, .events = POLLOUT};
}

int channel_wait_ms(const Channel *c) {
  if (c->failure.code) return 0;
  double until = INFINITY;
  if (!channel_is_proven(c)) {
    until = c->handshake_until;
  } else {
    if (c->silence_limit > 0) until = c->last_received + c->silence_limit;
    /* As in watch_peer, no heartbeat is due while other bytes wait or after the end was sent. */
    bool has_heartbeat = c->heartbeat_every > 0 && !c->has_sent_end && !channel_unsent(c);
    if (has_heartbeat) until = fmin(until, c->last_sent + c->heartbeat_every);
  }
  if (isinf(until)) return -1;
  double wait = ceil((until - progress_clock()) * 1000);
  return (int)fmax(0, fmin(wait, 1e9));
}

static Err queue_frame(Channel *c, uint8_t type, const void *data, size_t len) {
  size_t whole = LENGTH_BYTES + 1 + len;
  TRY(reserve_bytes(&c->unsent, whole));
  uint8_t *at = c->unsent.bytes + c->unsent.end;
  put_length(at, 1 + len);
  at[LENGTH_BYTES] = type;
  if (len) memcpy(at + LENGTH_BYTES + 1, data, len);
  c->unsent.end += whole;
  return ERR_OK;
}

Err channel_send(Channel *c, uint8_t type, const void *data, size_t len) {
  if (c->failure.code) return err_give(&c->failure);
  if (type == TYPE_OWN || c->has_sent_end)
    return err_set(ERR_WORK, "internal error: a frame of type %d for %s%s", type, c->name,
                   c->has_sent_end ? " after channel_end" : "");
  if (len > CHANNEL_FRAME_MAX)
    return err_set(ERR_WORK, "internal error: a frame of %zu bytes for %s; the limit is %d",
                   len, c->name, CHANNEL_FRAME_MAX);
  size_t waiting = channel_unsent(c);
  if (waiting + LENGTH_BYTES + 1 + len > CHANNEL_QUEUE_MAX)
    return err_set(
        ERR_WORK,
        "%s does not read: %zu bytes wait to be sent, the limit is %d; its process is "
        "stopped, or the network too slow",
        c->name, waiting, CHANNEL_QUEUE_MAX);
  return queue_frame(c, type, data, len);
}

Err channel_end(Channel *c) {
  if (c->failure.code) return err_give(&c->failure);
  if (c->has_sent_end) return ERR_OK;
  const uint8_t mark = END_MARK;
  TRY(queue_frame(c, TYPE_OWN, &mark, sizeof mark));
  c->has_sent_end = true;
  return ERR_OK;
}

static Err refuse_frame(const Channel *c, size_t length) {
  return err_set(
      ERR_WORK,
      "%s sent a frame of %zu bytes, where %zu to %zu are possible: it is not Trireme, or "
      "another version of it; check the address, and install the same version on all machines",
      c->name, length, 1 + count_extra(c), BODY_MAX + count_extra(c));
}

/* Decrypts a record in place. */
static Err open_record(Channel *c, uint8_t *at, size_t length) {
  size_t body = length - HANDSHAKE_RECORD_EXTRA;
  TRY(reserve_bytes(&c->opened, body));
  uint8_t *sealed = at + LENGTH_BYTES;
  if (handshake_open(c->secure, at, sealed, length, c->opened.bytes))
    return err_context("%s", c->name);
  memcpy(sealed, c->opened.bytes, body);
  return ERR_OK;
}

/* Handles a frame of the channel itself. A heartbeat needs no action; an end mark must be the
 * last frame. */
static Err take_own_frame(Channel *c, const uint8_t *payload, size_t len) {
  if (len == 0) return ERR_OK;
  if (len != 1 || payload[0] != END_MARK)
    return err_set(ERR_WORK,
                   "%s sent an unknown control frame (%zu bytes, first %d); install the same "
                   "version of trireme on all machines",
                   c->name, len, payload[0]);
  c->has_received_end = true;
  return ERR_OK;
}

/* Checks all complete frames in the receive buffer and moves `checked` after them. */
static Err check_frames(Channel *c) {
  ByteQueue *q = &c->received;
  size_t extra = count_extra(c);
  while (q->end - c->checked >= LENGTH_BYTES) {
    uint8_t *at = q->bytes + c->checked;
    size_t length = get_length(at);
    if (length < 1 + extra || length > BODY_MAX + extra) return refuse_frame(c, length);
    if (c->has_received_end)
      return err_set(ERR_WORK,
                     "%s sent a frame after its end mark; install the same version of trireme "
                     "on all machines",
                     c->name);
    if (q->end - c->checked - LENGTH_BYTES < length) break;
    if (c->secure) TRY(open_record(c, at, length));
    if (at[LENGTH_BYTES] == TYPE_OWN)
      TRY(take_own_frame(c, at + LENGTH_BYTES + 1, length - extra - 1));
    c->checked += LENGTH_BYTES + length;
  }
  return ERR_OK;
}

/* Makes room for the rest of an incomplete frame. If its length has not arrived yet, makes room
 * for READ_MIN bytes. */
static Err reserve_frame(Channel *c) {
  ByteQueue *q = &c->received;
  if (q->begin == q->end) {
    q->begin = 0;
    q->end = 0;
    c->checked = 0;
  }
  size_t have = q->end - c->checked, whole = LENGTH_BYTES;
  if (have >= LENGTH_BYTES) whole += get_length(q->bytes + c->checked);
  if (q->capacity - q->end >= whole - have) return ERR_OK;
  size_t ready = c->checked - q->begin;
  Err err = reserve_bytes(q, whole > READ_MIN ? whole - have : READ_MIN);
  c->checked = q->begin + ready;
  return err;
}

/* Sets the error for a peer that closed the connection during the handshake. */
static Err explain_refusal(Channel *c) {
  c->is_key_doubted = handshake_awaits_proof(c->secure);
  if (c->is_key_doubted)
    return err_set(
        ERR_WORK,
        "%s closed the connection after our proof of the key: its key file, or its version of "
        "Trireme, is another one, it is not Trireme, or it has just ended; copy the same key "
        "file to all machines",
        c->name);
  return err_set(
      ERR_WORK,
      "%s closed the connection before the proof of the key: it is not Trireme, or has "
      "too many connections for now",
      c->name);
}

/* Sets the error for a peer that closed the connection. If this process was stopped for longer than
 * the peer waits for messages, the peer did so for that reason. */
static Err explain_close(const Channel *c) {
  const char *where = c->received.end > c->checked ? " in the middle of a frame" : "";
  if (c->paused > 0)
    return err_set(
        ERR_WORK,
        "%s closed the connection%s: this process was stopped, or could not run, for "
        "%.0f s",
        c->name, where, c->paused);
  return err_set(ERR_WORK, "%s closed the connection%s (its process has ended)", c->name,
                 where);
}

/* Records how long this process was stopped (SIGSTOP, a suspended machine): it should have called
 * channel_advance for each heartbeat. The peer may close after a pause shorter than silence_limit,
 * because it counts from the last heartbeat before the pause. */
static void note_pause(Channel *c) {
  double now = progress_clock(), pause = now - c->last_call;
  if (c->last_call > 0 && c->silence_limit > 0 && pause > c->silence_limit / 2)
    c->paused = pause;
  c->last_call = now;
}

/* Calls read() once, for at most `most` bytes, for which the receive buffer must have room. */
static Err read_some(Channel *c, size_t most, size_t *got) {
  ByteQueue *q = &c->received;
  *got = 0;
  ssize_t n = read(c->in, q->bytes + q->end, most);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return ERR_OK;
  if (n < 0 && !channel_is_proven(c)) return err_errno("no connection to", c->name);
  if (n < 0 && c->paused > 0) return explain_close(c);
  if (n < 0) return err_errno("lost the connection to", c->name);
  if (n == 0 && !channel_is_proven(c)) return explain_refusal(c);
  if (n == 0 && c->has_received_end)
    return err_set(ERR_WORK, "%s ended the connection", c->name);
  if (n == 0) return explain_close(c);
  q->end += (size_t)n;
  c->last_received = progress_clock();
  *got = (size_t)n;
  return ERR_OK;
}

/* Reads frames that have arrived; calls read() once. */
static Err receive_frames(Channel *c, size_t *got) {
  *got = 0;
  if (!can_receive(c)) return ERR_OK;
  TRY(reserve_frame(c));
  TRY(read_some(c, c->received.capacity - c->received.end, got));
  return *got ? check_frames(c) : ERR_OK;
}

/* Reads no more than the message that the handshake expects; further bytes stay in the kernel's
 * buffer. */
static Err receive_message(Channel *c, size_t *got) {
  ByteQueue *q = &c->received;
  size_t whole = handshake_expects(c->secure);
  *got = 0;
  if (!whole) return ERR_OK;
  TRY(reserve_bytes(q, whole - count_bytes(q)));
  TRY(read_some(c, whole - count_bytes(q), got));
  if (count_bytes(q) < whole) return ERR_OK;
  if (handshake_read_message(c->secure, q->bytes + q->begin)) {
    c->is_key_refused = true;
    return err_context("%s", c->name);
  }
  drop_bytes(q, whole);
  return ERR_OK;
}

/* Queues the next message of the handshake, if this side must send one. */
static Err queue_message(Channel *c) {
  TRY(reserve_bytes(&c->sealed, HANDSHAKE_MESSAGE_MAX));
  c->sealed.end += handshake_take_message(c->secure, c->sealed.bytes + c->sealed.end);
  return ERR_OK;
}

static Err advance_handshake(Channel *c, size_t *got) {
  TRY(queue_message(c));
  TRY(receive_message(c, got));
  TRY(queue_message(c));
  if (channel_is_proven(c) || progress_clock() <= c->handshake_until) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s did not finish the handshake in time: it is not Trireme, or the network is "
      "too slow",
      c->name);
}

/* Encrypts queued frames until SEAL_AHEAD bytes are ready to be written. */
static Err seal_frames(Channel *c) {
  ByteQueue *from = &c->unsent, *to = &c->sealed;
  while (count_bytes(from) && count_bytes(to) < SEAL_AHEAD) {
    const uint8_t *frame = from->bytes + from->begin;
    size_t body = get_length(frame), length = body + HANDSHAKE_RECORD_EXTRA;
    TRY(reserve_bytes(to, LENGTH_BYTES + length));
    uint8_t *record = to->bytes + to->end;
    put_length(record, length);
    TRY(handshake_seal(c->secure, record, frame + LENGTH_BYTES, body, record + LENGTH_BYTES));
    to->end += LENGTH_BYTES + length;
    drop_bytes(from, LENGTH_BYTES + body);
  }
  return ERR_OK;
}

/* Writes until the kernel's buffer is full. A peer that no longer reads may have sent a last
 * message with the reason, so a write error is reported only when there is nothing left to
 * receive. */
static Err send_bytes(Channel *c, bool has_received) {
  ByteQueue *q = c->secure ? &c->sealed : &c->unsent;
  while (!c->is_out_broken) {
    if (c->secure && channel_is_proven(c)) TRY(seal_frames(c));
    if (!count_bytes(q)) break;
    ssize_t n = write(c->out, q->bytes + q->begin, count_bytes(q));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0 && !has_received && c->paused > 0) return explain_close(c);
    if (n < 0 && !has_received) return err_errno("lost the connection to", c->name);
    if (n < 0) {
      c->is_out_broken = true;
      break;
    }
    drop_bytes(q, (size_t)n);
    c->last_sent = progress_clock();
  }
  if (c->is_out_broken && !has_received) return explain_close(c);
  return ERR_OK;
}

static Err watch_peer(Channel *c) {
  double now = progress_clock(), silence = now - c->last_received;
  if (c->silence_limit > 0 && silence > c->silence_limit)
    return err_set(
        ERR_WORK,
        "%s: no message for %.0f s (its process is stopped, the machine down, or the "
        "network cut)",
        c->name, silence);
  bool is_due = c->heartbeat_every > 0 && now - c->last_sent >= c->heartbeat_every;
  /* No heartbeat is needed while other bytes are waiting to be sent. */
  if (!is_due || c->has_sent_end || channel_unsent(c)) return ERR_OK;
  return queue_frame(c, TYPE_OWN, NULL, 0);
}

static Err advance_channel(Channel *c) {
  size_t got;
  if (channel_is_proven(c)) {
    TRY(receive_frames(c, &got));
    TRY(watch_peer(c));
  } else {
    TRY(advance_handshake(c, &got));
  }
  return send_bytes(c, got > 0);
}

Err channel_advance(Channel *c) {
  if (c->failure.code) return err_give(&c->failure);
  note_pause(c);
  Err err = advance_channel(c);
  return err ? fail_channel(c, err) : ERR_OK;
}

bool channel_next(Channel *c, Frame *frame) {
  ByteQueue *q = &c->received;
  while (q->begin < c->checked) {
    const uint8_t *at = q->bytes + q->begin;
    size_t length = get_length(at);
    q->begin += LENGTH_BYTES + length;
    if (at[LENGTH_BYTES] == TYPE_OWN) continue;
    *frame = (Frame){at[LENGTH_BYTES], at + LENGTH_BYTES + 1, length - count_extra(c) - 1};
    return true;
  }
  return false;
}
