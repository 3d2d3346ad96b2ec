/* Secure channels with peers that have the key, that do not, and with attackers on the
 * connection. The test controls the connection and records, changes and replays what is sent.
 * Depends on launch/channel, launch/handshake.
 * run-tests: own program */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#ifdef HAVE_SODIUM
#include <sodium.h>
#endif

#include "support.h"

#include "base/mem.h"
#include "launch_support.h"

#ifdef HAVE_SODIUM

static Side client, server; /* too large for the stack */

static void assert_next(Channel *c, uint8_t type, const char *text) {
  Frame f;
  assert_true(channel_next(c, &f));
  assert_int_equal(f.type, type);
  assert_int_equal(f.len, strlen(text));
  assert_memory_equal(f.data, text, f.len);
}

/* Asserts that the server has refused the peer and has sent no more than its first message. */
static void assert_server_refuses(const char *why) {
  Err err;
  collect(&server, &err);
  assert_int_equal(err, ERR_WORK);
  assert_says(why);
  assert_false(channel_is_proven(server.channel));
  assert_between(server.sent.len, 0, HELLO);
}

static void test_secure_same_key_frames_arrive_both_ways(void **state) {
  (void)state;
  Key key = make_key(1);
  open_pair(&client, &server, &key);
  OK(channel_send(client.channel, 5, "from the client", 15));
  OK(channel_send(server.channel, 6, "from the server", 15));
  OK(channel_send(server.channel, 7, "", 0));
  settle(&client, &server);
  assert_next(server.channel, 5, "from the client");
  assert_next(client.channel, 6, "from the server");
  assert_next(client.channel, 7, "");
  close_side(&client);
  close_side(&server);
}

static void test_secure_frames_queued_before_the_proof_arrive_after_it(void **state) {
  (void)state;
  Key key = make_key(1);
  open_side(&client, &key, HANDSHAKE_CLIENT);
  open_side(&server, &key, HANDSHAKE_SERVER);
  OK(channel_send(client.channel, 5, "early", 5));
  OK(channel_send(server.channel, 6, "early too", 9));
  Err err;
  collect(&server, &err);
  /* The server sends nothing else before the client's proof. */
  assert_int_equal(server.sent.len, HELLO);
  put(&client, server.sent.bytes, HELLO);
  settle(&client, &server);
  assert_next(server.channel, 5, "early");
  assert_next(client.channel, 6, "early too");
  close_side(&client);
  close_side(&server);
}

static void test_secure_large_frames_arrive_unchanged(void **state) {
  (void)state;
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Key key = make_key(1);
  Channel *both[2];
  OK(channel_open_secure(&both[0], fds[0], &key, HANDSHAKE_CLIENT, "the server"));
  OK(channel_open_secure(&both[1], fds[1], &key, HANDSHAKE_SERVER, "the client"));
  for (int i = 0; i < 2; i++) channel_limit_handshake(both[i], PATIENT);
  uint8_t *bytes;
  OK(mem_alloc(&bytes, CHANNEL_FRAME_MAX, 1));
  for (size_t i = 0; i < CHANNEL_FRAME_MAX; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 13);
  for (int i = 0; i < 4; i++)
    OK(channel_send(both[0], 1, bytes, CHANNEL_FRAME_MAX - (size_t)i * 65537));
  for (int arrived = 0; arrived < 4;) {
    OK(channel_advance(both[0]));
    OK(channel_advance(both[1]));
    for (Frame f; channel_next(both[1], &f); arrived++) {
      assert_int_equal(f.len, CHANNEL_FRAME_MAX - (size_t)arrived * 65537);
      assert_memory_equal(f.data, bytes, f.len);
    }
  }
  assert_int_equal(channel_unsent(both[0]), 0);
  mem_free(bytes);
  channel_close(both[0]);
  channel_close(both[1]);
}

static void test_secure_nothing_readable_is_on_the_wire_and_sessions_differ(void **state) {
  (void)state;
  static Sent first;
  Key key = make_key(1);
  for (int session = 0; session < 2; session++) {
    open_pair(&client, &server, &key);
    OK(channel_send(client.channel, 5, "a secret of the client", 22));
    settle(&client, &server);
    assert_null(memmem(client.sent.bytes, client.sent.len, "secret", 6));
    assert_null(memmem(client.sent.bytes, client.sent.len, key.bytes, 8));
    if (session == 0) first = client.sent;
    close_side(&client);
    close_side(&server);
  }
  assert_int_equal(first.len, client.sent.len);
  /* Compare random keys, headers and proofs. */
  for (size_t i = 0; i + 16 <= CLIENT_MESSAGE; i += 8)
    assert_memory_not_equal(first.bytes + i, client.sent.bytes + i, 16);
}

static void test_secure_wrong_key_is_refused_and_learns_nothing(void **state) {
  (void)state;
  Key right = make_key(1), wrong = make_key(2);
  open_side(&client, &wrong, HANDSHAKE_CLIENT);
  open_side(&server, &right, HANDSHAKE_SERVER);
  Err err;
  carry(&server, &client, &err);
  carry(&client, &server, &err);
  assert_server_refuses("the client: the peer did not prove that it knows the key");
  close_side(&server);
  close(client.wire); /* the client detects the end */
  Frame f;
  assert_int_equal(channel_advance(client.channel), ERR_WORK);
  assert_says("the server closed the connection after our proof of the key: its key file");
  assert_true(channel_is_key_doubted(client.channel));
  assert_false(channel_is_key_refused(client.channel));
  assert_false(channel_next(client.channel, &f));
  channel_close(client.channel);
}

static void test_secure_server_that_closes_at_once_is_not_a_wrong_key(void **state) {
  (void)state;
  Key key = make_key(1);
  open_side(&client, &key, HANDSHAKE_CLIENT);
  close(client.wire);
  assert_int_equal(channel_advance(client.channel), ERR_WORK);
  assert_says("the server closed the connection before the proof of the key");
  assert_false(channel_is_key_doubted(client.channel));
  channel_close(client.channel);
}

static void test_secure_key_that_differs_in_one_bit_is_refused(void **state) {
  (void)state;
  for (int i = 0; i < KEY_BYTES; i += 31) {
    Key right = make_key(1), wrong = right;
    wrong.bytes[i] ^= 0x80;
    open_side(&client, &wrong, HANDSHAKE_CLIENT);
    open_side(&server, &right, HANDSHAKE_SERVER);
    Err err;
    carry(&server, &client, &err);
    carry(&client, &server, &err);
    assert_server_refuses("did not prove");
    close_side(&client);
    close_side(&server);
  }
}

/* A false server receives the client's proof, which it cannot use, and no frame. */
static void test_secure_client_refuses_a_server_without_the_key(void **state) {
  (void)state;
  Key right = make_key(1), wrong = make_key(2);
  open_side(&client, &right, HANDSHAKE_CLIENT);
  open_side(&server, &wrong, HANDSHAKE_SERVER);
  OK(channel_send(client.channel, 5, "only for the server", 19));
  Err err;
  carry(&server, &client, &err);
  collect(&client, &err);
  OK(err);
  uint8_t invented[SERVER_MESSAGE] = {1, 2, 3};
  put(&client, invented, sizeof invented);
  assert_int_equal(channel_advance(client.channel), ERR_WORK);
  assert_says("the server: the peer did not prove that it knows the key");
  assert_true(channel_is_key_refused(client.channel));
  collect(&client, &err);
  assert_int_equal(client.sent.len, CLIENT_MESSAGE);
  close_side(&client);
  close_side(&server);
}

static void test_secure_garbage_is_refused(void **state) {
  (void)state;
  Key key = make_key(1);
  for (int kind = 0; kind < 3; kind++) {
    uint8_t garbage[CLIENT_MESSAGE];
    /* All zeros is a point of low order. */
    memset(garbage, kind == 1 ? 255 : 0, sizeof garbage);
    for (size_t i = 0; kind == 2 && i < sizeof garbage; i++) garbage[i] = (uint8_t)(i * 37 + 5);
    open_side(&server, &key, HANDSHAKE_SERVER);
    put(&server, garbage, sizeof garbage);
    assert_server_refuses("did not prove");
    close_side(&server);
  }
}

/* With a point of low order X25519 returns 0, whatever our secret is. */
static void test_secure_client_refuses_a_point_of_low_order(void **state) {
  (void)state;
  Key key = make_key(1);
  open_side(&client, &key, HANDSHAKE_CLIENT);
  uint8_t zeros[HELLO] = {0};
  put(&client, zeros, sizeof zeros);
  Err err;
  collect(&client, &err);
  assert_int_equal(err, ERR_WORK);
  assert_says("did not prove");
  assert_int_equal(client.sent.len, 0);
  close_side(&client);
}

/* The server reads one message and closes; the other bytes stay in the kernel's buffer. */
static void test_secure_gigabyte_takes_no_memory(void **state) {
  (void)state;
  Key key = make_key(1);
  open_side(&server, &key, HANDSHAKE_SERVER);
  static uint8_t chunk[1 << 16];
  memset(chunk, 0x5a, sizeof chunk);
  uint64_t offered = 0, taken = 0, before = mem_count();
  Err err = ERR_OK;
  while (offered < (uint64_t)1 << 30) {
    ssize_t n = write(server.wire, chunk, sizeof chunk);
    if (n > 0) taken += (uint64_t)n;
    offered += sizeof chunk;
    err = channel_advance(server.channel);
    if (err) break;
  }
  channel_close(server.channel); /* the owner closes a failed channel */
  assert_int_equal(err, ERR_WORK);
  assert_says("did not prove");
  assert_between(mem_count() - before, 0, 4);
  assert_true(taken <= 4 * sizeof chunk);
  assert_int_equal(write(server.wire, chunk, 1), -1);
  assert_int_equal(errno, EPIPE);
  close(server.wire);
}

/* Before the proof no more than one message is read, even if more has arrived. */
static void test_secure_server_reads_one_message_before_the_proof(void **state) {
  (void)state;
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  int copy = dup(fds[0]);
  Key key = make_key(1);
  Channel *c;
  OK(channel_open_secure(&c, fds[0], &key, HANDSHAKE_SERVER, "the client"));
  static uint8_t bytes[5000];
  assert_int_equal(write(fds[1], bytes, sizeof bytes), sizeof bytes);
  assert_int_equal(channel_advance(c), ERR_WORK);
  assert_int_equal(read(copy, bytes, sizeof bytes), sizeof bytes - CLIENT_MESSAGE);
  channel_close(c);
  close(copy);
  close(fds[1]);
}

static void test_secure_handshake_is_limited_to_5_seconds(void **state) {
  (void)state;
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Key key = make_key(1);
  Channel *c;
  OK(channel_open_secure(&c, fds[0], &key, HANDSHAKE_SERVER, "the client"));
  /* A long heartbeat limit, so that not the heartbeat ends the connection. */
  channel_set_heartbeat(c, 100, 100);
  assert_between(channel_wait_ms(c), 0, 5000);
  channel_close(c);
  close(fds[1]);
}

static void test_secure_silent_peer_is_refused_in_time(void **state) {
  (void)state;
  Key key = make_key(1);
  open_side(&server, &key, HANDSHAKE_SERVER);
  Err err;
  collect(&server, &err);
  channel_limit_handshake(server.channel, 0.02);
  while (!err) {
    poll(NULL, 0, channel_wait_ms(server.channel));
    collect(&server, &err);
  }
  assert_says("the client did not finish the handshake in time");
  assert_int_equal(server.sent.len, HELLO);
  close_side(&server);
}

/* A peer that keeps sending bytes does not extend the time limit. */
static void test_secure_slow_peer_is_refused_in_time(void **state) {
  (void)state;
  Key key = make_key(1);
  open_side(&server, &key, HANDSHAKE_SERVER);
  channel_limit_handshake(server.channel, 0.05);
  Err err = ERR_OK;
  int bytes = 0;
  while (!err && bytes < CLIENT_MESSAGE - 1) {
    put(&server, "x", 1);
    bytes++;
    poll(NULL, 0, 5);
    collect(&server, &err);
  }
  assert_int_equal(err, ERR_WORK);
  assert_says("did not finish the handshake in time");
  assert_true(bytes < CLIENT_MESSAGE - 1);
  close_side(&server);
}

static void test_secure_replayed_client_is_refused(void **state) {
  (void)state;
  static Sent recorded;
  Key key = make_key(1);
  open_pair(&client, &server, &key);
  OK(channel_send(client.channel, 5, "do it", 5));
  settle(&client, &server);
  recorded = client.sent;
  close_side(&client);
  close_side(&server);
  open_side(&server, &key, HANDSHAKE_SERVER);
  put(&server, recorded.bytes, recorded.len);
  assert_server_refuses("did not prove");
  close_side(&server);
}

static void test_secure_replayed_server_is_refused(void **state) {
  (void)state;
  static Sent recorded;
  Key key = make_key(1);
  open_pair(&client, &server, &key);
  OK(channel_send(server.channel, 5, "do it", 5));
  settle(&client, &server);
  recorded = server.sent;
  close_side(&client);
  close_side(&server);
  open_side(&client, &key, HANDSHAKE_CLIENT);
  put(&client, recorded.bytes, recorded.len);
  Err err = ERR_OK;
  for (int i = 0; i < 5 && !err; i++) collect(&client, &err);
  assert_int_equal(err, ERR_WORK);
  assert_says("did not prove");
  Frame f;
  assert_false(channel_next(client.channel, &f));
  assert_int_equal(client.sent.len, CLIENT_MESSAGE);
  close_side(&client);
}

/* Sends a server's own messages back to it: unchanged, and as parts of a client's message. */
static void test_secure_server_refuses_its_own_messages(void **state) {
  (void)state;
  Key key = make_key(1);
  open_pair(&client, &server, &key);
  uint8_t proof[SERVER_MESSAGE];
  memcpy(proof, server.sent.bytes + HELLO, sizeof proof);
  close_side(&client);
  close_side(&server);
  for (int kind = 0; kind < 2; kind++) {
    open_side(&server, &key, HANDSHAKE_SERVER);
    Err err;
    collect(&server, &err);
    uint8_t message[CLIENT_MESSAGE];
    memcpy(message, server.sent.bytes, HELLO);
    if (kind == 0) memcpy(message + HELLO, proof, sizeof proof);
    if (kind == 1) memcpy(message + HELLO, server.sent.bytes, HELLO);
    put(&server, message, sizeof message);
    assert_server_refuses("did not prove");
    close_side(&server);
  }
}

static void test_secure_client_refuses_its_own_messages(void **state) {
  (void)state;
  Key key = make_key(1);
  open_side(&client, &key, HANDSHAKE_CLIENT);
  open_side(&server, &key, HANDSHAKE_SERVER);
  Err err;
  carry(&server, &client, &err);
  collect(&client, &err);
  /* The server's own header and proof. */
  put(&client, client.sent.bytes + HELLO, SERVER_MESSAGE);
  assert_int_equal(channel_advance(client.channel), ERR_WORK);
  assert_says("did not prove");
  close_side(&client);
  close_side(&server);
}

/* Two clients that are connected to each other: neither sends first, and both time out. */
static void test_secure_two_clients_do_not_prove_anything(void **state) {
  (void)state;
  static Side other;
  Key key = make_key(1);
  open_side(&client, &key, HANDSHAKE_CLIENT);
  open_side(&other, &key, HANDSHAKE_CLIENT);
  Err err;
  assert_false(carry(&client, &other, &err));
  assert_false(carry(&other, &client, &err));
  close_side(&client);
  close_side(&other);
}

static void test_secure_two_servers_refuse_each_other(void **state) {
  (void)state;
  static Side other;
  Key key = make_key(1);
  open_side(&server, &key, HANDSHAKE_SERVER);
  open_side(&other, &key, HANDSHAKE_SERVER);
  Err err;
  for (int i = 0; i < 4; i++) {
    carry(&server, &other, &err);
    carry(&other, &server, &err);
  }
  assert_false(channel_is_proven(server.channel));
  assert_int_equal(server.sent.len, HELLO);
  assert_int_equal(other.sent.len, HELLO);
  close_side(&server);
  close_side(&other);
}

/* Changes one byte of each handshake message in turn. */
static void test_secure_changed_handshake_is_refused(void **state) {
  (void)state;
  Key key = make_key(1);
  for (size_t at = 0; at < HELLO + CLIENT_MESSAGE + SERVER_MESSAGE; at += 7) {
    open_side(&client, &key, HANDSHAKE_CLIENT);
    open_side(&server, &key, HANDSHAKE_SERVER);
    Err err;
    collect(&server, &err);
    if (at < HELLO) server.sent.bytes[at] ^= 1;
    put(&client, server.sent.bytes, HELLO);
    collect(&client, &err);
    size_t in_client = at - HELLO;
    if (at >= HELLO && in_client < CLIENT_MESSAGE) client.sent.bytes[in_client] ^= 1;
    put(&server, client.sent.bytes, client.sent.len);
    collect(&server, &err);
    /* Offset of the changed byte in the server's second message. */
    size_t in_server = at - CLIENT_MESSAGE;
    if (at < HELLO + CLIENT_MESSAGE) {
      assert_int_equal(err, ERR_WORK);
      assert_int_equal(server.sent.len, HELLO);
    } else {
      server.sent.bytes[in_server] ^= 1;
      put(&client, server.sent.bytes + HELLO, SERVER_MESSAGE);
      assert_int_equal(channel_advance(client.channel), ERR_WORK);
      assert_false(channel_is_proven(client.channel));
    }
    close_side(&client);
    close_side(&server);
  }
}

/* Opens a pair of channels and lets the client send three frames, which do not reach the
 * server. where[i] is the offset of record i, where[3] the end. */
static void record_three(size_t where[4]) {
  Key key = make_key(1);
  open_pair(&client, &server, &key);
  const char *texts[] = {"one", "two", "six"};
  for (int i = 0; i < 3; i++) {
    where[i] = client.sent.len;
    OK(channel_send(client.channel, 5, texts[i], 3));
    Err err;
    collect(&client, &err);
    OK(err);
  }
  where[3] = client.sent.len;
}

static void put_record(const size_t where[4], int i) {
  put(&server, client.sent.bytes + where[i], where[i + 1] - where[i]);
}

static void assert_record_refused(const char *why) {
  Frame f;
  assert_false(channel_next(server.channel, &f));
  assert_int_equal(channel_advance(server.channel), ERR_WORK);
  assert_says(why);
  assert_false(channel_next(server.channel, &f));
  close_side(&client);
  close_side(&server);
}

static void test_secure_reordered_records_are_refused(void **state) {
  (void)state;
  size_t where[4];
  record_three(where);
  put_record(where, 1);
  assert_record_refused("an encrypted record was changed, repeated, left out or reordered");
}

static void test_secure_duplicated_record_is_refused(void **state) {
  (void)state;
  size_t where[4];
  record_three(where);
  put_record(where, 0);
  OK(channel_advance(server.channel));
  assert_next(server.channel, 5, "one");
  put_record(where, 0);
  assert_record_refused("repeated");
}

static void test_secure_missing_record_is_refused(void **state) {
  (void)state;
  size_t where[4];
  record_three(where);
  put_record(where, 0);
  OK(channel_advance(server.channel));
  assert_next(server.channel, 5, "one");
  put_record(where, 2);
  assert_record_refused("left out");
}

static void test_secure_changed_record_is_refused_at_every_byte(void **state) {
  (void)state;
  for (size_t at = 0; at < 4 + 4 + HANDSHAKE_RECORD_EXTRA; at++) {
    size_t where[4];
    record_three(where);
    assert_int_equal(where[1] - where[0], 4 + 4 + HANDSHAKE_RECORD_EXTRA);
    client.sent.bytes[where[0] + at] ^= at == 0 ? 1 : 0x10;
    for (int i = 0; i < 3; i++) put_record(where, i);
    Err err = channel_advance(server.channel);
    Frame f;
    assert_false(channel_next(server.channel, &f));
    /* A length that was increased within the limit makes the server wait for bytes that never
     * arrive. */
    if (!err) assert_true(at == 1 || at == 2);
    close_side(&client);
    close_side(&server);
  }
}

static void test_secure_own_record_sent_back_is_refused(void **state) {
  (void)state;
  size_t where[4];
  record_three(where);
  put(&client, client.sent.bytes + where[0], where[1] - where[0]);
  assert_int_equal(channel_advance(client.channel), ERR_WORK);
  assert_says("an encrypted record was changed");
  close_side(&client);
  close_side(&server);
}

static void test_secure_record_of_another_session_is_refused(void **state) {
  (void)state;
  size_t where[4];
  record_three(where);
  static Sent recorded;
  recorded = client.sent;
  close_side(&client);
  close_side(&server);
  Key key = make_key(1);
  open_pair(&client, &server, &key);
  put(&server, recorded.bytes + where[0], where[1] - where[0]);
  assert_record_refused("an encrypted record was changed");
}

static void test_secure_oversize_record_is_refused_before_memory_is_taken(void **state) {
  (void)state;
  Key key = make_key(1);
  open_pair(&client, &server, &key);
  OK(channel_send(client.channel, 5, "x", 1));
  settle(&client, &server);
  uint64_t before = mem_count();
  put(&server, "\x13\0\x10\0", 4);
  assert_int_equal(channel_advance(server.channel), ERR_WORK);
  assert_int_equal(mem_count(), before);
  assert_says("the client sent a frame of 1048595 bytes, where 18 to 1048594 are possible");
  close_side(&client);
  close_side(&server);
}

static void test_secure_truncation_is_told_from_an_orderly_end(void **state) {
  (void)state;
  for (int is_orderly = 0; is_orderly < 2; is_orderly++) {
    Key key = make_key(1);
    open_pair(&client, &server, &key);
    OK(channel_send(client.channel, 5, "last", 4));
    if (is_orderly) OK(channel_end(client.channel));
    settle(&client, &server);
    close_side(&client);
    shutdown(server.wire, SHUT_WR); /* the connection is cut after complete records */
    assert_next(server.channel, 5, "last");
    assert_int_equal(channel_advance(server.channel), ERR_WORK);
    assert_says(is_orderly ? "the client ended the connection"
                           : "the client closed the connection (");
    assert_int_equal(channel_is_ended(server.channel), is_orderly);
    close_side(&server);
  }
}

static void test_secure_truncated_record_is_not_delivered(void **state) {
  (void)state;
  size_t where[4];
  record_three(where);
  put(&server, client.sent.bytes + where[0], where[1] - where[0] - 1);
  OK(channel_advance(server.channel));
  shutdown(server.wire, SHUT_WR);
  assert_record_refused("closed the connection in the middle of a frame");
}

static void test_secure_every_failed_allocation_is_an_error(void **state) {
  (void)state;
  Key key = make_key(1);
  for (uint64_t n = 1;; n++) {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    Channel *both[2] = {NULL, NULL};
    mem_fail_after(n);
    Err err = channel_open_secure(&both[0], fds[0], &key, HANDSHAKE_CLIENT, "the server");
    if (err)
      close(fds[1]);
    else
      err = channel_open_secure(&both[1], fds[1], &key, HANDSHAKE_SERVER, "the client");
    for (int i = 0; i < 2 && !err; i++) channel_limit_handshake(both[i], PATIENT);
    if (!err) err = channel_send(both[0], 1, "x", 1);
    for (int i = 0; i < 12 && !err; i++) err = channel_advance(both[i & 1]);
    mem_fail_after(0);
    Frame f;
    bool has_arrived = both[1] && channel_next(both[1], &f);
    channel_close(both[0]);
    channel_close(both[1]);
    if (has_arrived) break;
    assert_int_equal(err, ERR_WORK);
    assert_true(n < 30);
  }
}

/* Moves one message from a handshake to another one; asserts its length. */
static void move_message(Handshake *from, Handshake *to, size_t len) {
  uint8_t message[HANDSHAKE_MESSAGE_MAX];
  assert_int_equal(handshake_expects(from), 0);
  assert_int_equal(handshake_expects(to), len);
  assert_int_equal(handshake_take_message(to, message), 0);
  assert_int_equal(handshake_take_message(from, message), len);
  OK(handshake_read_message(to, message));
}

/* Asserts that no record can be sealed or opened. */
static void assert_no_records(Handshake *h) {
  const uint8_t header[4] = {0};
  uint8_t bytes[64] = {0}, sealed[64] = {0};
  assert_false(handshake_is_done(h));
  assert_int_equal(handshake_seal(h, header, bytes, 1, sealed), ERR_WORK);
  assert_says("a record before the end of the handshake");
}

static void test_handshake_each_message_has_its_turn(void **state) {
  (void)state;
  Key key = make_key(1);
  Handshake *c, *s;
  uint8_t message[HANDSHAKE_MESSAGE_MAX];
  OK(handshake_begin(&c, &key, HANDSHAKE_CLIENT));
  OK(handshake_begin(&s, &key, HANDSHAKE_SERVER));
  assert_no_records(s);
  move_message(s, c, HELLO);
  assert_no_records(c);
  assert_false(handshake_awaits_proof(c));
  move_message(c, s, CLIENT_MESSAGE);
  assert_true(handshake_awaits_proof(c));
  assert_no_records(s);
  assert_no_records(c);
  move_message(s, c, SERVER_MESSAGE);
  assert_true(handshake_is_done(c) && handshake_is_done(s));
  assert_int_equal(handshake_expects(c), 0);
  assert_int_equal(handshake_take_message(c, message), 0);
  assert_int_equal(handshake_expects(s), 0);
  assert_int_equal(handshake_take_message(s, message), 0);
  /* A message that nobody awaits ends the handshake. */
  assert_int_equal(handshake_read_message(c, message), ERR_WORK);
  assert_no_records(c);
  handshake_free(s);
  OK(handshake_begin(&s, &key, HANDSHAKE_SERVER));
  assert_int_equal(handshake_read_message(s, message), ERR_WORK);
  assert_int_equal(handshake_take_message(s, message), 0);
  handshake_free(c);
  handshake_free(s);
  handshake_free(NULL);
}

static void test_handshake_records_of_any_length_are_opened_once(void **state) {
  (void)state;
  static const size_t lengths[] = {0, 1, 2, 1000};
  Key key = make_key(1);
  Handshake *c, *s;
  OK(handshake_begin(&c, &key, HANDSHAKE_CLIENT));
  OK(handshake_begin(&s, &key, HANDSHAKE_SERVER));
  move_message(s, c, HELLO);
  move_message(c, s, CLIENT_MESSAGE);
  move_message(s, c, SERVER_MESSAGE);
  const uint8_t header[4] = {1, 2, 3, 4};
  uint8_t plain[1000], sealed[1000 + HANDSHAKE_RECORD_EXTRA], opened[1000];
  memset(plain, 7, sizeof plain);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    size_t n = lengths[i];
    OK(handshake_seal(c, header, plain, n, sealed));
    OK(handshake_open(s, header, sealed, n + HANDSHAKE_RECORD_EXTRA, opened));
    if (n) assert_memory_equal(opened, plain, n);
  }
  assert_int_equal(handshake_open(s, header, sealed, HANDSHAKE_RECORD_EXTRA - 1, opened),
                   ERR_WORK);
  assert_says("an encrypted record was changed");
  OK(handshake_seal(c, header, plain, 1, sealed));
  assert_int_equal(handshake_open(s, header, sealed, 1 + HANDSHAKE_RECORD_EXTRA, opened),
                   ERR_WORK); /* no record after an error */
  handshake_free(c);
  handshake_free(s);
}

/* Computes the subkey `number` of M, as handshake.h has it. */
static void derive(uint8_t out[32], uint64_t number, const uint8_t master[32]) {
  assert_int_equal(crypto_kdf_derive_from_key(out, 32, number, "trireme1", master), 0);
}

/* A client written from the description in handshake.h: a change of the protocol must change the
 * label, because peers of other versions could not say why they refuse each other. */
static void test_handshake_server_follows_the_documented_protocol(void **state) {
  (void)state;
  enum { HEADER = 24 };
  Key key = make_key(1);
  Handshake *s;
  uint8_t hello[HANDSHAKE_MESSAGE_MAX], reply[HANDSHAKE_MESSAGE_MAX];
  uint8_t secret[32], shared[32], master[32], subkey[32], proof[32], message[88];
  crypto_generichash_state hash;
  crypto_secretstream_xchacha20poly1305_state out, in;
  OK(handshake_begin(&s, &key, HANDSHAKE_SERVER));
  assert_int_equal(handshake_take_message(s, hello), 32);
  randombytes_buf(secret, sizeof secret);
  crypto_scalarmult_base(message, secret);
  assert_int_equal(crypto_scalarmult(shared, secret, hello), 0);
  crypto_generichash_init(&hash, key.bytes, KEY_BYTES, 32);
  crypto_generichash_update(&hash, (const uint8_t *)"trireme channel 1", 18);
  crypto_generichash_update(&hash, hello, 32);
  crypto_generichash_update(&hash, message, 32);
  crypto_generichash_update(&hash, shared, 32);
  crypto_generichash_final(&hash, master, 32);
  derive(subkey, 3, master);
  crypto_secretstream_xchacha20poly1305_init_push(&out, message + 32, subkey);
  derive(subkey, 1, master);
  crypto_generichash(message + 32 + HEADER, 32, message + 32, HEADER, subkey, 32);
  OK(handshake_read_message(s, message));
  assert_int_equal(handshake_take_message(s, reply), HEADER + 32);
  derive(subkey, 2, master);
  crypto_generichash(proof, 32, reply, HEADER, subkey, 32);
  assert_memory_equal(reply + HEADER, proof, 32);
  derive(subkey, 4, master);
  assert_int_equal(crypto_secretstream_xchacha20poly1305_init_pull(&in, reply, subkey), 0);
  const uint8_t header[4] = {5, 0, 0, 0};
  uint8_t sealed[4 + HANDSHAKE_RECORD_EXTRA], plain[4], tag;
  OK(handshake_seal(s, header, (const uint8_t *)"text", 4, sealed));
  assert_int_equal(crypto_secretstream_xchacha20poly1305_pull(&in, plain, NULL, &tag, sealed,
                                                              sizeof sealed, header, 4),
                   0);
  assert_memory_equal(plain, "text", 4);
  assert_int_equal(tag, 0);
  handshake_free(s);
}

static bool has_no_random_numbers;

/* Replaces the function of libsodium in this program. */
int sodium_init(void) {
  int (*init)(void);
  void *symbol = dlsym(RTLD_NEXT, "sodium_init");
  memcpy(&init, &symbol, sizeof init);
  return has_no_random_numbers ? -1 : init();
}

static void test_handshake_without_random_numbers_is_an_error(void **state) {
  (void)state;
  Key key = make_key(1);
  Handshake *h;
  has_no_random_numbers = true;
  Err err = handshake_begin(&h, &key, HANDSHAKE_CLIENT);
  has_no_random_numbers = false;
  assert_int_equal(err, ERR_WORK);
  assert_says("libsodium cannot be initialised");
  assert_null(h);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_handshake_each_message_has_its_turn),
      cmocka_unit_test(test_handshake_records_of_any_length_are_opened_once),
      cmocka_unit_test(test_handshake_server_follows_the_documented_protocol),
      cmocka_unit_test(test_handshake_without_random_numbers_is_an_error),
      cmocka_unit_test(test_secure_same_key_frames_arrive_both_ways),
      cmocka_unit_test(test_secure_frames_queued_before_the_proof_arrive_after_it),
      cmocka_unit_test(test_secure_large_frames_arrive_unchanged),
      cmocka_unit_test(test_secure_nothing_readable_is_on_the_wire_and_sessions_differ),
      cmocka_unit_test(test_secure_wrong_key_is_refused_and_learns_nothing),
      cmocka_unit_test(test_secure_server_that_closes_at_once_is_not_a_wrong_key),
      cmocka_unit_test(test_secure_key_that_differs_in_one_bit_is_refused),
      cmocka_unit_test(test_secure_client_refuses_a_server_without_the_key),
      cmocka_unit_test(test_secure_garbage_is_refused),
      cmocka_unit_test(test_secure_client_refuses_a_point_of_low_order),
      cmocka_unit_test(test_secure_gigabyte_takes_no_memory),
      cmocka_unit_test(test_secure_server_reads_one_message_before_the_proof),
      cmocka_unit_test(test_secure_handshake_is_limited_to_5_seconds),
      cmocka_unit_test(test_secure_silent_peer_is_refused_in_time),
      cmocka_unit_test(test_secure_slow_peer_is_refused_in_time),
      cmocka_unit_test(test_secure_replayed_client_is_refused),
      cmocka_unit_test(test_secure_replayed_server_is_refused),
      cmocka_unit_test(test_secure_server_refuses_its_own_messages),
      cmocka_unit_test(test_secure_client_refuses_its_own_messages),
      cmocka_unit_test(test_secure_two_clients_do_not_prove_anything),
      cmocka_unit_test(test_secure_two_servers_refuse_each_other),
      cmocka_unit_test(test_secure_changed_handshake_is_refused),
      cmocka_unit_test(test_secure_reordered_records_are_refused),
      cmocka_unit_test(test_secure_duplicated_record_is_refused),
      cmocka_unit_test(test_secure_missing_record_is_refused),
      cmocka_unit_test(test_secure_changed_record_is_refused_at_every_byte),
      cmocka_unit_test(test_secure_own_record_sent_back_is_refused),
      cmocka_unit_test(test_secure_record_of_another_session_is_refused),
      cmocka_unit_test(test_secure_oversize_record_is_refused_before_memory_is_taken),
      cmocka_unit_test(test_secure_truncation_is_told_from_an_orderly_end),
      cmocka_unit_test(test_secure_truncated_record_is_not_delivered),
      cmocka_unit_test(test_secure_every_failed_allocation_is_an_error),
  };
  return cmocka_run_group_tests_name("launch handshake", tests, NULL, NULL);
}

#else

static void test_secure_without_libsodium_is_an_error_with_the_package(void **state) {
  (void)state;
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Key key = make_key(1);
  Channel *c;
  assert_int_equal(channel_open_secure(&c, fds[0], &key, HANDSHAKE_CLIENT, "x"), ERR_WORK);
  assert_says("install libsodium-dev");
  assert_null(c);
  close(fds[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_secure_without_libsodium_is_an_error_with_the_package),
  };
  return cmocka_run_group_tests_name("launch handshake", tests, NULL, NULL);
}

#endif
