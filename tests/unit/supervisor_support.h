/* A supervisor whose agents are played by the test. Include after support.h. */
#ifndef TESTS_SUPERVISOR_SUPPORT_H
#define TESTS_SUPERVISOR_SUPPORT_H

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/progress.h"
#include "launch/machine.h"
#include "launch/network_proof.h"
#include "launch/protocol.h"
#include "launch/supervisor.h"
#include "support.h"

#define AGENTS 4
#define INBOX  32

/* A source that returns agents when the test adds them. */
typedef struct {
  Arrival waiting[AGENTS];
  int count;
  bool is_broken; /* cannot yield machines any more */
  int readies;    /* calls of Source.ready */
  int open;       /* result of Source.count_open, if limit_source was called */
  int losses;
  Loss last_loss;
} FakeSource;

typedef struct {
  uint8_t type;
  json_t *body;
} Message;

typedef struct {
  FakeSource from;
  Source source;
  Console *console;
  Supervisor *supervisor;
  Channel *agent[AGENTS]; /* the agents' ends of the channels */
  NetworkPeer *peer[AGENTS];
  bool is_mute[AGENTS];         /* does not take part in tests of the network */
  bool has_no_head;             /* agent 0 is on another machine than the supervisor */
  Message inbox[AGENTS][INBOX]; /* messages that the agents have received */
  int received[AGENTS];
  char aside[AGENTS][512]; /* text of the last MSG_ASIDE, which is not stored in the inbox */
  double now;
  int signals;
} Fixture;

UNUSED static int poll_for(void *self, struct pollfd *fds, int room) {
  (void)self;
  (void)fds;
  (void)room;
  return 0;
}

UNUSED static Err advance_agents(void *self, double now) {
  const FakeSource *f = self;
  (void)now;
  return f->is_broken ? err_set(ERR_WORK, "the source is broken") : ERR_OK;
}

UNUSED static bool take_arrival(void *self, Arrival *arrival) {
  FakeSource *f = self;
  if (!f->count) return false;
  *arrival = f->waiting[--f->count];
  return true;
}

UNUSED static void note_ready(void *self, const char *name) {
  FakeSource *f = self;
  (void)name;
  f->readies++;
}

UNUSED static void note_lost(void *self, const char *name, Loss loss, double now) {
  FakeSource *f = self;
  (void)name;
  (void)now;
  f->losses++;
  f->last_loss = loss;
}

UNUSED static int count_open(void *self) {
  const FakeSource *f = self;
  return f->open;
}

UNUSED static void close_source(void *self) {
  (void)self;
}

UNUSED static const char *const command[] = {"train", "--run", "x"};

/* `run`: the run directory that train must create before there are log files; NULL: none. */
UNUSED static Fixture *open_fixture_of(LaunchSpec spec, const char *run) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  f->now = progress_clock();
  f->source = (Source){.self = &f->from,
                       .expected = 1,
                       .poll_for = poll_for,
                       .advance = advance_agents,
                       .next = take_arrival,
                       .ready = note_ready,
                       .lost = note_lost,
                       .close = close_source};
  spec.argv = command;
  spec.args = 3;
  spec.log_dir = scratch;
  if (spec.join_timeout <= 0) spec.join_timeout = 60;
  if (spec.start_timeout <= 0) spec.start_timeout = 120;
  ConsoleSpec console = {.log_dir = scratch, .run = run, .is_quiet = true};
  OK(console_open(&f->console, &console));
  OK(supervisor_open(&f->supervisor, &spec, f->console, &f->source, 1));
  return f;
}

UNUSED static Fixture *open_fixture(LaunchSpec spec) {
  return open_fixture_of(spec, NULL);
}

/* Limits the number of machines that the source can bring. */
UNUSED static void limit_source(Fixture *f, int open) {
  f->from.open = open;
  f->source.count_open = count_open;
}

/* Returns the result of console_close, which fails if lines of log files were lost. */
UNUSED static Err free_fixture(Fixture *f) {
  for (int i = 0; i < AGENTS; i++) {
    for (int k = 0; k < f->received[i]; k++) json_decref(f->inbox[i][k].body);
    network_peer_close(&f->peer[i]);
    channel_close(f->agent[i]);
  }
  supervisor_close(f->supervisor);
  Err err = console_close(f->console);
  free(f);
  return err;
}

UNUSED static void close_fixture(Fixture *f) {
  OK(free_fixture(f));
}

/* Contents of an agent's MSG_HELLO. */
typedef struct {
  const char *version; /* NULL: version of this program */
  const char *address; /* NULL: 127.0.0.(i + 1) */
  int64_t cores;       /* 0: four cores */
  int gpus;
} Hello;

/* Connects agent i, which sends MSG_HELLO. Its address is a loopback address. */
UNUSED static void connect_agent_as(Fixture *f, int i, Hello hello) {
  int ends[2];
  Channel *head;
  NetworkList networks = {.count = 1, .address = {{.card = "lo", .prefix = 8}}};
  char *address = networks.address[0].address;
  size_t room = sizeof networks.address[0].address;
  snprintf(address, room, "127.0.0.%d", i + 1);
  if (hello.address) snprintf(address, room, "%s", hello.address);
  Arrival *a = &f->from.waiting[f->from.count++];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  OK(channel_open(&head, ends[0], ends[0], "agent"));
  OK(channel_open(&f->agent[i], ends[1], ends[1], "head"));
  /* The channels of the head use the real clock. */
  channel_set_heartbeat(f->agent[i], 0.5, 3600);
  *a = (Arrival){.channel = head, .is_head = i == 0 && !f->has_no_head};
  snprintf(a->name, sizeof a->name, "host%d", i);
  OK(protocol_send(
      f->agent[i], MSG_HELLO,
      json_pack("{s:s, s:s, s:s, s:I, s:i, s:o}", "version",
                hello.version ? hello.version : TRIREME_VERSION, "host", a->name, "directory",
                "/dev/shm/agent", "cores", (json_int_t)(hello.cores ? hello.cores : 4), "gpus",
                hello.gpus, "networks", network_to_json(&networks))));
}

UNUSED static void connect_agent(Fixture *f, int i, const char *version) {
  connect_agent_as(f, i, (Hello){.version = version});
}

UNUSED static Err send_to_head(void *context, size_t machine, uint8_t type, json_t *body) {
  (void)machine;
  return protocol_send(context, type, body);
}

/* Stores the messages for agent i; answers those of the network test at once. */
UNUSED static void receive(Fixture *f, int i) {
  Frame frame;
  NetworkLink link = {send_to_head, f->agent[i]};
  Err err = channel_advance(f->agent[i]);
  (void)err; /* the supervisor may have closed the channel */
  while (channel_next(f->agent[i], &frame)) {
    json_t *body;
    OK(protocol_parse(&frame, "head", &body));
    if (frame.type >= MSG_NETWORK_LISTEN) {
      if (!f->is_mute[i]) OK(network_peer_handle(&f->peer[i], frame.type, body, link, f->now));
      json_decref(body);
    } else if (frame.type == MSG_ASIDE) {
      snprintf(f->aside[i], sizeof f->aside[i], "%s", protocol_text(body, "text"));
      json_decref(body);
    } else {
      assert_between(f->received[i], 0, INBOX - 1);
      f->inbox[i][f->received[i]++] = (Message){frame.type, body};
    }
  }
  OK(network_peer_advance(f->peer[i], link, f->now));
}

UNUSED static bool advance_all(Fixture *f) {
  for (int i = 0; i < AGENTS; i++)
    if (f->agent[i]) receive(f, i);
  return supervisor_advance(f->supervisor, f->now, f->signals);
}

/* Runs iterations of the supervisor in which the agents send their queued messages and answer
 * nothing. */
UNUSED static void advance_supervisor(Fixture *f) {
  for (int turn = 0; turn < 20; turn++) {
    for (int i = 0; i < AGENTS; i++)
      if (f->agent[i]) OK(channel_advance(f->agent[i]));
    supervisor_advance(f->supervisor, f->now, f->signals);
  }
}

/* Waits for the next message for agent i and asserts its type. */
UNUSED static json_t *expect(Fixture *f, int i, uint8_t type) {
  for (double start = progress_clock(); progress_clock() - start < 60;) {
    advance_all(f);
    if (!f->received[i]) continue;
    Message first = f->inbox[i][0];
    f->received[i]--;
    memmove(f->inbox[i], f->inbox[i] + 1, (size_t)f->received[i] * sizeof first);
    if (first.type != type) fail_msg("a message of type %d instead of %d", first.type, type);
    return first.body;
  }
  fail_msg("no message of type %d", type);
  return NULL;
}

UNUSED static void expect_only(Fixture *f, int i, uint8_t type) {
  json_decref(expect(f, i, type));
}

/* Waits until agent i was told, in these words, that its machine is set aside. */
UNUSED static void expect_aside(Fixture *f, int i, const char *words) {
  for (double start = progress_clock(); progress_clock() - start < 60;) {
    advance_all(f);
    if (strstr(f->aside[i], words)) return;
  }
  fail_msg("agent %d was told \"%s\", not \"%s\"", i, f->aside[i], words);
}

UNUSED static void expect_nothing(Fixture *f, int i) {
  for (int turn = 0; turn < 20; turn++) advance_all(f);
  if (f->received[i]) fail_msg("a message of type %d", f->inbox[i][0].type);
}

UNUSED static void send_for(Fixture *f, int i, uint8_t type, int generation, int rank,
                            int status, int signal_number) {
  OK(protocol_send(f->agent[i], type,
                   json_pack("{s:i, s:i, s:i, s:i}", "generation", generation, "rank", rank,
                             "status", status, "signal", signal_number)));
}

UNUSED static void send_event_step(Fixture *f, int generation, int step) {
  OK(protocol_send(f->agent[0], MSG_EVENT,
                   json_pack("{s:i, s:i, s:{s:s, s:i}}", "generation", generation, "rank", 0,
                             "event", "event", "step", "step", step)));
}

UNUSED static Err finish(Fixture *f, bool *is_reported) {
  for (int turn = 0; turn < 1000; turn++)
    if (advance_all(f)) return supervisor_result(f->supervisor, is_reported);
  fail_msg("the launch does not end");
  return ERR_WORK;
}

/* Asserts that machine 0 was asked to begin generation `number`, and reports all its ranks as
 * begun. */
UNUSED static void begin(Fixture *f, int number, int ranks) {
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_int_equal(protocol_int(body, "generation", 0), number);
  json_decref(body);
  if (ranks > 1) expect_only(f, 0, MSG_START);
  for (int r = 0; r < ranks; r++) send_for(f, 0, MSG_WORKER_BEGAN, number, r, 0, 0);
}

UNUSED static void confirm_kill(Fixture *f, int number) {
  expect_only(f, 0, MSG_KILL);
  send_for(f, 0, MSG_CLEAR, number, 0, 0, 0);
}

UNUSED static const LaunchSpec two = {.nproc = 1, .min = 1, .max = 2, .max_restarts = 3};

/* Asserts that both machines were asked to begin generation `number`, and reports one rank of
 * each. */
UNUSED static void begin_two(Fixture *f, int number) {
  for (int i = 0; i < 2; i++) {
    json_t *body = expect(f, i, MSG_BEGIN);
    assert_int_equal(protocol_int(body, "generation", 0), number);
    assert_int_equal(protocol_int(body, "world_size", 0), 2);
    assert_int_equal(protocol_int(body, "first_rank", -1), i);
    assert_int_equal(protocol_int(body, "group_rank", -1), i);
    assert_string_equal(protocol_text(body, "master_addr"), "127.0.0.1");
    json_decref(body);
  }
  expect_only(f, 0, MSG_START);
  for (int i = 0; i < 2; i++) send_for(f, i, MSG_WORKER_BEGAN, number, i, 0, 0);
}

UNUSED static Fixture *open_two(void) {
  Fixture *f = open_fixture(two);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  begin_two(f, 1);
  return f;
}

UNUSED static void confirm_kill_on(Fixture *f, int i, int number) {
  expect_only(f, i, MSG_KILL);
  send_for(f, i, MSG_CLEAR, number, 0, 0, 0);
}

UNUSED static void lose_agent(Fixture *f, int i) {
  channel_close(f->agent[i]);
  network_peer_close(&f->peer[i]);
  f->agent[i] = NULL;
}

/* Waits until launch.log contains the line, which a thread writes. */
UNUSED static void assert_logged(const char *words) {
  char text[1 << 16];
  for (double start = progress_clock(); progress_clock() - start < 60;) {
    FILE *log = fopen(at("launch.log"), "r");
    size_t n = log ? fread(text, 1, sizeof text - 1, log) : 0;
    if (log) fclose(log);
    text[n] = '\0';
    if (strstr(text, words)) return;
  }
  fail_msg("launch.log lacks \"%s\"", words);
}

UNUSED static const LaunchSpec three = {.nproc = 1, .min = 1, .max = 3, .max_restarts = 3};

/* Starts a generation on two machines; a third may join. */
UNUSED static Fixture *open_two_of(LaunchSpec spec, Hello hello) {
  Fixture *f = open_fixture(spec);
  connect_agent_as(f, 0, hello);
  connect_agent_as(f, 1, hello);
  expect_nothing(f, 0);
  f->now += 11; /* longer than GATHER_LAST_CALL */
  begin_two(f, 1);
  return f;
}

UNUSED static void begin_number(Fixture *f, int i, int number, int world) {
  json_t *body = expect(f, i, MSG_BEGIN);
  assert_int_equal(protocol_int(body, "generation", 0), number);
  assert_int_equal(protocol_int(body, "world_size", 0), world);
  json_decref(body);
}

#endif
