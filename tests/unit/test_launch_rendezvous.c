/* Doors and the rendezvous over TCP on this machine: limits for unauthenticated peers, heads,
 * agents that start before or after the head, ids, keys. Depends on launch/door,
 * launch/rendezvous. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support.h"

#include "base/log.h"
#include "base/progress.h"
#include "launch/door.h"
#include "launch/rendezvous.h"
#include "launch/rendezvous_internal.h"

static void test_rendezvous_endpoint_forms(void **state) {
  (void)state;
  static const struct {
    const char *text, *host;
    int port;
  } good[] = {
      {"node-1:5000", "node-1", 5000},       {"node-1", "node-1", 29400},
      {"10.0.0.1:29401", "10.0.0.1", 29401}, {"10.0.0.1", "10.0.0.1", 29400},
      {"[fd00::1]:5000", "fd00::1", 5000},   {"[fd00::1]", "fd00::1", 29400},
      {"fd00::1", "fd00::1", 29400},         {"fe80::1%eth0", "fe80::1%eth0", 29400},
  };
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    Endpoint e;
    OK(rendezvous_parse_endpoint(good[i].text, &e));
    assert_string_equal(e.host, good[i].host);
    assert_int_equal(e.port, good[i].port);
  }
  static const char *const bad[] = {
      "",        ":5000",      "a:",       "a:0",    "a:65536",
      "a:5000x", "a:-1",       "a: 5000",  "[::1",   "[::1]5000",
      "[]:5000", "tcp://a:50", "a b:5000", "a:\x01", "a:99999999999999999999"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Endpoint e;
    assert_int_equal(rendezvous_parse_endpoint(bad[i], &e), ERR_USAGE);
    assert_says("pass HOST:PORT");
  }
}

static void test_rendezvous_endpoint_of_all_addresses_is_refused(void **state) {
  (void)state;
  static const char *const all[] = {"0.0.0.0:29400", "0.0.0.0", "0:5000", "[::]:5000", "::"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    Endpoint e;
    assert_int_equal(rendezvous_parse_endpoint(all[i], &e), ERR_USAGE);
    assert_says("stands for all addresses of a machine");
  }
}

static void test_rendezvous_id_is_1_to_128_bytes_of_utf8(void **state) {
  (void)state;
  char id[130];
  memset(id, 'x', sizeof id);
  id[128] = '\0';
  OK(rendezvous_check_id(id));
  OK(rendezvous_check_id("run 7"));
  id[128] = 'x';
  id[129] = '\0';
  assert_int_equal(rendezvous_check_id(id), ERR_USAGE);
  assert_int_equal(rendezvous_check_id(""), ERR_USAGE);
  assert_int_equal(rendezvous_check_id("\xff"), ERR_USAGE);
}

#ifdef HAVE_SODIUM

static const Key right = {{1, 2, 3}}, wrong = {{3, 2, 1}};

static Door *open_door(void) {
  Door *door;
  int cause;
  OK(door_open(&door, "127.0.0.1", 0, &right, &cause));
  assert_true(door_port(door) > 0);
  return door;
}

/* Connects from 127.0.0.`last` and sends nothing. */
static int connect_from(const Door *door, int last) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in from = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(0x7f000000u + (uint32_t)last)};
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)door_port(door)),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  return fd;
}

/* Returns true if the door has sent its first message on this connection, false if it has
 * closed it. */
static bool is_held(int fd) {
  uint8_t bytes[64];
  struct pollfd one = {.fd = fd, .events = POLLIN};
  assert_int_equal(poll(&one, 1, 60000), 1);
  return recv(fd, bytes, sizeof bytes, MSG_PEEK) > 0;
}

static bool is_closed(int fd) {
  uint8_t bytes[64];
  struct pollfd one = {.fd = fd, .events = POLLIN | POLLRDHUP};
  poll(&one, 1, 60000);
  while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {}
  return recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) == 0;
}

static void test_door_opens_to_a_peer_with_the_key(void **state) {
  (void)state;
  Door *door = open_door();
  Channel *client, *server = NULL;
  char address[DOOR_TEXT_MAX];
  OK(door_connect(&client, "127.0.0.1", door_port(door), &right, "the door"));
  OK(channel_send(client, 9, "hello", 5));
  while (!door_next(door, &server, address)) {
    OK(channel_advance(client));
    door_advance(door, progress_clock());
  }
  assert_string_equal(address, "127.0.0.1");
  Frame f;
  while (!channel_next(server, &f)) {
    OK(channel_advance(client));
    OK(channel_advance(server));
  }
  assert_int_equal(f.type, 9);
  channel_close(client);
  channel_close(server);
  door_close(door);
}

static void test_door_taken_port_is_reported_as_such(void **state) {
  (void)state;
  Door *door = open_door(), *other;
  int cause;
  assert_int_equal(door_open(&other, "127.0.0.1", door_port(door), &right, &cause), ERR_WORK);
  assert_int_equal(cause, EADDRINUSE);
  assert_null(other);
  assert_int_equal(door_open(&other, "192.0.2.1", 0, &right, &cause), ERR_WORK);
  assert_int_equal(cause, EADDRNOTAVAIL);
  assert_says("cannot listen on 192.0.2.1 port 0");
  door_close(door);
}

static void test_door_listens_on_its_address_only(void **state) {
  (void)state;
  Door *door = open_door();
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)door_port(door)),
                           .sin_addr.s_addr = htonl(0x7f000002)};
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), -1);
  assert_int_equal(errno, ECONNREFUSED);
  close(fd);
  door_close(door);
}

static void test_door_on_all_addresses_accepts_ipv4(void **state) {
  (void)state;
  Door *door;
  int cause;
  OK(door_open(&door, NULL, 0, &right, &cause));
  int fd = connect_from(door, 1);
  door_advance(door, progress_clock());
  assert_true(is_held(fd));
  close(fd);
  door_close(door);
}

static void test_door_ninth_unproven_connection_of_an_address_is_refused(void **state) {
  (void)state;
  Door *door = open_door();
  int fds[DOOR_ADDRESS_MAX];
  double now = progress_clock();
  for (int i = 0; i < DOOR_ADDRESS_MAX; i++) fds[i] = connect_from(door, 1);
  int ninth = connect_from(door, 1), other = connect_from(door, 2);
  door_advance(door, now);
  assert_true(is_closed(ninth));
  for (int i = 0; i < DOOR_ADDRESS_MAX; i++) assert_true(is_held(fds[i]));
  assert_true(is_held(other)); /* the limit of one address does not affect another address */
  close(fds[0]);
  while (door_poll_for(door, (struct pollfd[80]){{0}}, 80) > DOOR_ADDRESS_MAX + 1)
    door_advance(door, now);
  int again = connect_from(door, 1);
  door_advance(door, now);
  assert_true(is_held(again));
  for (int i = 1; i < DOOR_ADDRESS_MAX; i++) close(fds[i]);
  close(ninth);
  close(other);
  close(again);
  door_close(door);
}

static void test_door_65th_unproven_connection_waits_and_replaces_an_old_one(void **state) {
  (void)state;
  Door *door = open_door();
  int fds[DOOR_UNPROVEN_MAX];
  double now = progress_clock();
  for (int i = 0; i < DOOR_UNPROVEN_MAX; i++) {
    fds[i] = connect_from(door, 1 + i / DOOR_ADDRESS_MAX);
    door_advance(door, now);
  }
  int late = connect_from(door, 100);
  door_advance(door, now + 0.5); /* too early: only a connection older than 1 s is replaced */
  uint8_t byte;
  assert_int_equal(recv(late, &byte, 1, MSG_DONTWAIT), -1);
  assert_int_equal(errno, EAGAIN);
  assert_true(is_held(fds[0]));
  door_advance(door, now + 1.5);
  assert_true(is_held(late));
  assert_true(is_closed(fds[0]));
  for (int i = 1; i < DOOR_UNPROVEN_MAX; i++) assert_true(is_held(fds[i]));
  struct pollfd polled[80];
  assert_int_equal(door_poll_for(door, polled, 80), 1 + DOOR_UNPROVEN_MAX);
  /* All connections are in use, so a waiting connection must not wake the owner. */
  door_advance(door, now);
  assert_int_equal(door_poll_for(door, polled, 80), DOOR_UNPROVEN_MAX);
  assert_int_equal(door_poll_for(door, polled, 10), 10);
  for (int i = 0; i < DOOR_UNPROVEN_MAX; i++) close(fds[i]);
  close(late);
  door_close(door);
}

/* While unauthenticated peers use all connections, a peer with the key is still accepted. */
static void test_door_opens_to_the_key_in_a_crowd(void **state) {
  (void)state;
  Door *door = open_door();
  int fds[DOOR_UNPROVEN_MAX];
  double now = progress_clock();
  for (int i = 0; i < DOOR_UNPROVEN_MAX; i++) {
    fds[i] = connect_from(door, 2 + i / DOOR_ADDRESS_MAX);
    door_advance(door, now);
  }
  Channel *client, *server = NULL;
  char address[DOOR_TEXT_MAX];
  OK(door_connect(&client, "127.0.0.1", door_port(door), &right, "the door"));
  while (!door_next(door, &server, address)) {
    OK(channel_advance(client));
    door_advance(door, now + 1.5);
  }
  channel_close(client);
  channel_close(server);
  for (int i = 0; i < DOOR_UNPROVEN_MAX; i++) close(fds[i]);
  door_close(door);
}

static void test_door_connect_to_a_closed_port_is_an_error_of_the_channel(void **state) {
  (void)state;
  Door *door = open_door();
  int port = door_port(door);
  door_close(door);
  Channel *c;
  Err err = door_connect(&c, "127.0.0.1", port, &right, "the door");
  while (!err) {
    struct pollfd fds[2];
    int count;
    channel_events(c, fds, &count);
    poll(fds, (nfds_t)count, channel_wait_ms(c));
    err = channel_advance(c);
  }
  assert_says("no connection to the door: Connection refused");
  channel_close(c);
}

/* Tests of the rendezvous. */

/* An agent that joins in a thread, because rendezvous_join blocks. */
typedef struct {
  RendezvousSpec spec;
  pthread_t thread;
  Channel *channel;
  ErrRecord error;
  atomic_int is_over;
} JoinThread;

static RendezvousSpec make_spec(const Key *key, int port, const char *id) {
  RendezvousSpec spec = {
      .endpoint = {.host = "127.0.0.1", .port = port}, .id = id, .key = *key};
  spec.command = "train --run x";
  spec.timeout = 600;
  return spec;
}

static void *join_head(void *argument) {
  JoinThread *j = argument;
  Err err = rendezvous_join(&j->channel, &j->spec);
  j->error = err_take(err);
  j->is_over = 1;
  return NULL;
}

static void start_thread(JoinThread *j) {
  assert_int_equal(pthread_create(&j->thread, NULL, join_head, j), 0);
}

static void start_joining(JoinThread *j, const Key *key, int port, const char *id) {
  *j = (JoinThread){.spec = make_spec(key, port, id)};
  start_thread(j);
}

static void start_joining_with_command(JoinThread *j, int port, const char *command) {
  *j = (JoinThread){.spec = make_spec(&right, port, "run 7")};
  j->spec.command = command;
  start_thread(j);
}

static void open_head(Source *source, int *port) {
  Rendezvous *r;
  RendezvousSpec spec = make_spec(&right, 0, "run 7");
  OK(rendezvous_listen(&r, "127.0.0.1", *port, &spec));
  *port = rendezvous_port(r);
  rendezvous_to_source(r, source);
}

static void turn_source(Source *s) {
  struct pollfd fds[64];
  int count = s->poll_for(s->self, fds, 64);
  poll(fds, (nfds_t)count, 20);
  OK(s->advance(s->self, progress_clock()));
}

/* Runs the head until the agent's rendezvous_join has returned. */
static void finish_joining(JoinThread *j, Source *s) {
  while (!j->is_over) turn_source(s);
  pthread_join(j->thread, NULL);
}

static void test_rendezvous_agent_joins_and_its_messages_arrive(void **state) {
  (void)state;
  JoinThread j;
  Source s;
  int port = 0;
  open_head(&s, &port);
  start_joining(&j, &right, port, "run 7");
  finish_joining(&j, &s);
  assert_int_equal(j.error.code, ERR_OK);
  Arrival arrival;
  while (!s.next(s.self, &arrival)) turn_source(&s);
  assert_non_null(strstr(arrival.name, "(127.0.0.1)"));
  assert_false(arrival.is_head);
  OK(channel_send(j.channel, MSG_HELLO, "{}", 2));
  Frame f;
  while (!channel_next(arrival.channel, &f)) {
    OK(channel_advance(j.channel));
    OK(channel_advance(arrival.channel));
  }
  assert_int_equal(f.type, MSG_HELLO);
  channel_close(j.channel);
  channel_close(arrival.channel);
  s.close(s.self);
}

static void test_rendezvous_agent_with_another_id_is_told_so(void **state) {
  (void)state;
  JoinThread j;
  Source s;
  int port = 0;
  open_head(&s, &port);
  start_joining(&j, &right, port, "run 8");
  finish_joining(&j, &s);
  assert_int_equal(j.error.code, ERR_WORK);
  err_give(&j.error);
  assert_says("the head's rendezvous is 'run 7', the joining machine's 'run 8'");
  Arrival arrival;
  assert_false(s.next(s.self, &arrival));
  s.close(s.self);
}

/* Lets an agent with this command try to join and checks the reason of the refusal. */
static void check_refusal(Source *s, int port, const char *command, const char *reason) {
  JoinThread j;
  Arrival arrival;
  start_joining_with_command(&j, port, command);
  finish_joining(&j, s);
  assert_int_equal(j.error.code, ERR_WORK);
  err_give(&j.error);
  assert_says(reason);
  assert_false(s->next(s->self, &arrival));
}

static void test_rendezvous_agent_with_another_command_is_told_both(void **state) {
  (void)state;
  Source s;
  int port = 0;
  open_head(&s, &port);
  check_refusal(
      &s, port, "translate --model m",
      "the head's command is 'train --run x', the joining machine's 'translate --model m'");
  check_refusal(
      &s, port, "train --run x --steps 5",
      "the head's command is 'train --run x', the joining machine's 'train --run x --steps 5'");
  check_refusal(&s, port, "", "the joining machine's ''");
  /* The head goes on waiting. */
  JoinThread j;
  start_joining(&j, &right, port, "run 7");
  finish_joining(&j, &s);
  assert_int_equal(j.error.code, ERR_OK);
  channel_close(j.channel);
  s.close(s.self);
}

static void test_rendezvous_long_commands_are_shown_from_where_they_differ(void **state) {
  (void)state;
  char command[20000] = "train --run x --data ";
  Source s;
  int port = 0;
  open_head(&s, &port);
  for (size_t n = strlen(command); n + 3 < sizeof command; n += 2) memcpy(command + n, "é", 3);
  check_refusal(&s, port, command, "the joining machine's 'train … x --data é");
  check_refusal(&s, port, command, "é …'; start both with the same command");
  s.close(s.self);
}

static void test_rendezvous_command_too_long_for_a_message_fails_at_once(void **state) {
  (void)state;
  static char command[100000];
  RendezvousSpec spec = make_spec(&right, 1, "run 7");
  Channel *c;
  memset(command, 'x', sizeof command - 1);
  spec.command = command;
  assert_int_equal(rendezvous_join(&c, &spec), ERR_WORK);
  assert_says("the command line or an environment variable is too long");
}

/* A refused agent does not retry until the time limit, which is ten minutes here. */
static void test_rendezvous_agent_with_another_key_fails_at_once(void **state) {
  (void)state;
  JoinThread j;
  Source s;
  int port = 0;
  open_head(&s, &port);
  start_joining(&j, &wrong, port, "run 7");
  finish_joining(&j, &s);
  assert_int_equal(j.error.code, ERR_WORK);
  err_give(&j.error);
  assert_says("refused our key");
  Arrival arrival;
  assert_false(s.next(s.self, &arrival));
  s.close(s.self);
}

/* Closes a connection like a head that dies after it has received the agent's proof. */
static void close_after_proof(int listener) {
  uint8_t hello[32] = {9}, proof[88];
  int fd = accept(listener, NULL, NULL);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, hello, sizeof hello), sizeof hello);
  assert_int_equal(recv(fd, proof, sizeof proof, MSG_WAITALL), sizeof proof);
  close(listener);
  close(fd);
}

/* One connection that is closed after the agent's proof does not count as a wrong key. */
static void test_rendezvous_agent_tries_again_after_a_head_that_dies_in_the_handshake(
    void **state) {
  (void)state;
  JoinThread j;
  Source s;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t len = sizeof at;
  int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
  int port = ntohs(at.sin_port);
  start_joining(&j, &right, port, "run 7");
  close_after_proof(listener);
  open_head(&s, &port);
  finish_joining(&j, &s);
  assert_int_equal(j.error.code, ERR_OK);
  Arrival arrival;
  while (!s.next(s.self, &arrival)) turn_source(&s);
  channel_close(j.channel);
  channel_close(arrival.channel);
  s.close(s.self);
}

static void test_rendezvous_agent_waits_for_a_head_that_starts_later(void **state) {
  (void)state;
  JoinThread j;
  Source s;
  int port = 0;
  open_head(&s, &port); /* opened once to find a free port */
  s.close(s.self);
  start_joining(&j, &right, port, "run 7");
  poll(NULL, 0, 300); /* time for some failed attempts */
  assert_false(j.is_over);
  open_head(&s, &port);
  finish_joining(&j, &s);
  assert_int_equal(j.error.code, ERR_OK);
  Arrival arrival;
  while (!s.next(s.self, &arrival)) turn_source(&s);
  channel_close(j.channel);
  channel_close(arrival.channel);
  s.close(s.self);
}

static void test_rendezvous_without_head_ends_after_the_limit(void **state) {
  (void)state;
  Source s;
  int port = 0;
  open_head(&s, &port);
  s.close(s.self);
  RendezvousSpec spec = make_spec(&right, port, "run 7");
  spec.timeout = 0.1;
  Channel *c;
  assert_int_equal(rendezvous_join(&c, &spec), ERR_WORK);
  assert_null(c);
  assert_says("cannot join the launch at 127.0.0.1 port");
  assert_says("Connection refused; check that the same command runs on the machine with this");
}

static void test_rendezvous_unknown_name_is_tried_until_the_limit(void **state) {
  (void)state;
  RendezvousSpec spec = make_spec(&right, 1, "run 7");
  snprintf(spec.endpoint.host, sizeof spec.endpoint.host, "no..name");
  spec.timeout = 0.1;
  Channel *c;
  assert_int_equal(rendezvous_join(&c, &spec), ERR_WORK);
  assert_says("cannot resolve the host name no..name");
}

static void *meet_head(void *argument) {
  JoinThread *j = argument;
  Rendezvous *head;
  Err err = rendezvous_meet(&j->spec, &head, &j->channel);
  j->error = err_take(err);
  rendezvous_close(head);
  j->is_over = 1;
  return NULL;
}

/* Two processes with the same command on the head's machine: the second one becomes an
 * agent. */
static void test_rendezvous_second_head_becomes_an_agent(void **state) {
  (void)state;
  Source s;
  int port = 0;
  open_head(&s, &port);
  s.close(s.self);
  RendezvousSpec spec = make_spec(&right, port, "run 7");
  Rendezvous *head;
  Channel *agent;
  OK(rendezvous_meet(&spec, &head, &agent));
  assert_non_null(head);
  assert_null(agent);
  rendezvous_to_source(head, &s);
  JoinThread j = {.spec = spec};
  assert_int_equal(pthread_create(&j.thread, NULL, meet_head, &j), 0);
  finish_joining(&j, &s);
  assert_int_equal(j.error.code, ERR_OK);
  assert_non_null(j.channel);
  channel_close(j.channel);
  s.close(s.self);
}

/* Opens a channel with the key and sends one frame as the first message. */
static Channel *send_first(Source *s, int port, uint8_t type, const char *text) {
  Channel *c;
  OK(door_connect(&c, "127.0.0.1", port, &right, "the head"));
  OK(channel_send(c, type, text, strlen(text)));
  while (!channel_is_proven(c) || channel_unsent(c)) {
    OK(channel_advance(c));
    turn_source(s);
  }
  return c;
}

static void test_rendezvous_other_version_is_refused_with_both_versions(void **state) {
  (void)state;
  Source s;
  int port = 0;
  open_head(&s, &port);
  Channel *c = send_first(&s, port, MSG_JOIN, "{\"id\":\"run 7\",\"version\":\"9.9\"}");
  Frame f;
  while (!channel_next(c, &f)) {
    turn_source(&s);
    OK(channel_advance(c));
  }
  assert_int_equal(f.type, MSG_NOT_JOINED);
  assert_non_null(memmem(
      f.data, f.len, "the head runs Trireme " TRIREME_VERSION ", the joining machine 9.9",
      strlen("the head runs Trireme " TRIREME_VERSION ", the joining machine 9.9")));
  channel_close(c);
  s.close(s.self);
}

static void test_rendezvous_peer_with_the_key_that_sends_nonsense_is_dropped(void **state) {
  (void)state;
  static const struct {
    uint8_t type;
    const char *text;
  } bad[] = {{MSG_HELLO, "{}"}, {MSG_JOIN, "not JSON"}, {MSG_JOIN, "[1]"}, {MSG_JOIN, ""}};
  Source s;
  int port = 0;
  open_head(&s, &port);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Channel *c = send_first(&s, port, bad[i].type, bad[i].text);
    Err err = ERR_OK;
    while (!err) {
      turn_source(&s);
      err = channel_advance(c);
    }
    Arrival arrival;
    Frame f;
    assert_false(s.next(s.self, &arrival));
    assert_false(channel_next(c, &f));
    channel_close(c);
  }
  s.close(s.self);
}

static void test_rendezvous_silent_peer_with_the_key_is_dropped(void **state) {
  (void)state;
  Source s;
  int port = 0;
  open_head(&s, &port);
  Channel *c;
  OK(door_connect(&c, "127.0.0.1", port, &right, "the head"));
  Err err = ERR_OK;
  double now = progress_clock();
  while (!err) {
    if (channel_is_proven(c)) now += 1; /* advances the head's clock */
    OK(s.advance(s.self, now));
    err = channel_advance(c);
  }
  channel_close(c);
  s.close(s.self);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  /* A slow machine may need more than the default limit. */
  setenv("TRIREME_FAULT", "handshake-limit:600", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rendezvous_endpoint_forms),
      cmocka_unit_test(test_rendezvous_endpoint_of_all_addresses_is_refused),
      cmocka_unit_test(test_rendezvous_id_is_1_to_128_bytes_of_utf8),
      cmocka_unit_test(test_door_opens_to_a_peer_with_the_key),
      cmocka_unit_test(test_door_taken_port_is_reported_as_such),
      cmocka_unit_test(test_door_listens_on_its_address_only),
      cmocka_unit_test(test_door_on_all_addresses_accepts_ipv4),
      cmocka_unit_test(test_door_ninth_unproven_connection_of_an_address_is_refused),
      cmocka_unit_test(test_door_65th_unproven_connection_waits_and_replaces_an_old_one),
      cmocka_unit_test(test_door_opens_to_the_key_in_a_crowd),
      cmocka_unit_test(test_door_connect_to_a_closed_port_is_an_error_of_the_channel),
      cmocka_unit_test(test_rendezvous_agent_joins_and_its_messages_arrive),
      cmocka_unit_test(test_rendezvous_agent_with_another_id_is_told_so),
      cmocka_unit_test(test_rendezvous_agent_with_another_command_is_told_both),
      cmocka_unit_test(test_rendezvous_long_commands_are_shown_from_where_they_differ),
      cmocka_unit_test(test_rendezvous_command_too_long_for_a_message_fails_at_once),
      cmocka_unit_test(test_rendezvous_agent_with_another_key_fails_at_once),
      cmocka_unit_test(
          test_rendezvous_agent_tries_again_after_a_head_that_dies_in_the_handshake),
      cmocka_unit_test(test_rendezvous_agent_waits_for_a_head_that_starts_later),
      cmocka_unit_test(test_rendezvous_without_head_ends_after_the_limit),
      cmocka_unit_test(test_rendezvous_unknown_name_is_tried_until_the_limit),
      cmocka_unit_test(test_rendezvous_second_head_becomes_an_agent),
      cmocka_unit_test(test_rendezvous_other_version_is_refused_with_both_versions),
      cmocka_unit_test(test_rendezvous_peer_with_the_key_that_sends_nonsense_is_dropped),
      cmocka_unit_test(test_rendezvous_silent_peer_with_the_key_is_dropped),
  };
  return cmocka_run_group_tests_name("launch rendezvous", tests, NULL, NULL);
}

#else

static void test_rendezvous_without_libsodium_is_an_error_with_the_package(void **state) {
  (void)state;
  RendezvousSpec spec = {
      .endpoint = {.host = "127.0.0.1", .port = 1}, .id = "x", .timeout = 600};
  Rendezvous *head;
  Channel *agent;
  assert_int_equal(rendezvous_meet(&spec, &head, &agent), ERR_WORK);
  assert_says("install libsodium-dev");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rendezvous_endpoint_forms),
      cmocka_unit_test(test_rendezvous_endpoint_of_all_addresses_is_refused),
      cmocka_unit_test(test_rendezvous_id_is_1_to_128_bytes_of_utf8),
      cmocka_unit_test(test_rendezvous_without_libsodium_is_an_error_with_the_package),
  };
  return cmocka_run_group_tests_name("launch rendezvous", tests, NULL, NULL);
}

#endif
