/* Two secure channels whose connection the test controls, so that it can record, change and
 * replay what is sent. Include after support.h. Depends on launch/channel. */
#ifndef TESTS_LAUNCH_SUPPORT_H
#define TESTS_LAUNCH_SUPPORT_H

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/channel.h"

enum { WIRE_MAX = 1 << 16, HELLO = 32, CLIENT_MESSAGE = 88, SERVER_MESSAGE = 56 };
enum {
  PATIENT = 600
}; /* time limit in seconds of handshakes that must succeed even on a slow machine */

/* Bytes that one side has sent. */
typedef struct {
  uint8_t bytes[WIRE_MAX];
  size_t len;
} Sent;

/* A channel and the other end of its connection, which the test reads and writes. */
typedef struct {
  Channel *channel;
  int wire;
  Sent sent; /* all bytes that the channel has sent */
} Side;

UNUSED static Key make_key(uint8_t seed) {
  Key key;
  for (int i = 0; i < KEY_BYTES; i++) key.bytes[i] = (uint8_t)(seed + 7 * i);
  return key;
}

UNUSED static void open_side(Side *side, const Key *key, HandshakeRole role) {
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  assert_int_equal(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
  OK(channel_open_secure(&side->channel, fds[0], key, role,
                         role == HANDSHAKE_SERVER ? "the client" : "the server"));
  channel_limit_handshake(side->channel, PATIENT);
  side->wire = fds[1];
  side->sent.len = 0;
}

UNUSED static void close_side(Side *side) {
  channel_close(side->channel);
  close(side->wire);
}

UNUSED static void put(Side *side, const void *bytes, size_t len) {
  assert_int_equal(write(side->wire, bytes, len), (ssize_t)len);
}

/* Advances the channel and collects what it has sent; returns the number of new bytes. All
 * bytes are in the kernel's buffers, so no waiting is needed. */
UNUSED static size_t collect(Side *side, Err *err) {
  *err = channel_advance(side->channel);
  size_t before = side->sent.len;
  while (side->sent.len < WIRE_MAX) {
    ssize_t n = read(side->wire, side->sent.bytes + side->sent.len, WIRE_MAX - side->sent.len);
    if (n <= 0) break;
    side->sent.len += (size_t)n;
  }
  return side->sent.len - before;
}

/* Copies bytes from one side to the other; returns false if there were none. */
UNUSED static bool carry(Side *from, Side *to, Err *err) {
  size_t before = from->sent.len, n = collect(from, err);
  if (n) put(to, from->sent.bytes + before, n);
  return n > 0;
}

/* Advances both sides until no bytes are left to copy; neither may fail. */
UNUSED static void settle(Side *client, Side *server) {
  for (int idle = 0; idle < 3; idle++) {
    Err err;
    if (carry(server, client, &err)) idle = 0;
    OK(err);
    if (carry(client, server, &err)) idle = 0;
    OK(err);
  }
}

UNUSED static void open_pair(Side *client, Side *server, const Key *key) {
  open_side(client, key, HANDSHAKE_CLIENT);
  open_side(server, key, HANDSHAKE_SERVER);
  settle(client, server);
  assert_true(channel_is_proven(client->channel));
  assert_true(channel_is_proven(server->channel));
}

#endif
