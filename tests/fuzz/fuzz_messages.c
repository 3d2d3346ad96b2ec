/* Messages between head and agents with hostile bodies: those of the head and of stubs to an agent, and
 * those of agents to a supervisor. Input: a byte that selects the receiver, then messages, each a byte
 * for its type, two for the length of its body (little-endian), and the body.
 * The agent starts no process and makes no connection: process_begin and connect are replaced here.
 * Depends on the agent's files, which are part of this one, and launch/supervisor. */
#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define process_begin refuse_process
#include "../../src/launch/agent.c"
#include "../../src/launch/agent_stub.c"
#include "../../src/launch/agent_worker.c"
#undef process_begin

#include "fuzz_file.h"
#include "launch/machine.h"
#include "launch/supervisor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define NO_PROCESS 0x3fffffff /* a pid that no process can have */

/* Replaces process_begin: every second call fails, and no process is started. */
Err refuse_process(const ProcessSpec *spec, pid_t *pid, int *start) {
  static unsigned turn;
  REQUIRE(spec->argv[0] && spec->env && spec->dir);
  *pid = NO_PROCESS;
  *start = -1;
  return turn++ % 2 ? err_set(ERR_WORK, "cannot start %.64s", spec->argv[0]) : ERR_OK;
}

int connect(int fd, const struct sockaddr *address, socklen_t len) {
  (void)fd;
  (void)address;
  (void)len;
  errno = ECONNREFUSED;
  return -1;
}

static char root[64];

static void remove_root(void) {
  if (file_remove_all(root)) fprintf(stderr, "%s\n", err_message());
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  snprintf(root, sizeof root, "/tmp/fuzz-messages-%d", (int)getpid());
  REQUIRE(file_mkdirs(root) == ERR_OK);
  atexit(remove_root);
  signal(SIGPIPE, SIG_IGN); /* as main does */
  log_mute();
  return 0;
}

/* Reads the next message of the input; returns false if there is none. */
static bool next_message(const uint8_t **data, size_t *size, uint8_t *type,
                         const uint8_t **body, size_t *len) {
  if (*size < 3) return false;
  *type = (*data)[0];
  *len = (size_t)((*data)[1] | (*data)[2] << 8);
  *data += 3;
  *size -= 3;
  if (*len > *size) *len = *size;
  *body = *data;
  *data += *len;
  *size -= *len;
  return true;
}

static Channel *open_channel(int *other) {
  int ends[2];
  Channel *c;
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  REQUIRE(channel_open(&c, ends[0], ends[0], "fuzz") == ERR_OK);
  *other = ends[1];
  return c;
}

/* ---- agent ---- */

static Err give_to_agent(Agent *a, AgentStub *stub, const Frame *f) {
  json_t *body;
  if (f->type == STUB_WORKER || f->type == STUB_RSH) return handle_frame(a, stub, f);
  if (f->type >= PEER_SEND && f->type <= PEER_LAST) return peer_handle(&a->peer, a->head, f);
  TRY(protocol_parse(f, "the head", &body));
  Err err = handle_message(a, f->type, body, 1);
  json_decref(body);
  return err;
}

static void fuzz_agent(const uint8_t *data, size_t size) {
  static const uint8_t types[] = {MSG_BEGIN,
                                  MSG_START,
                                  MSG_STOP,
                                  MSG_KILL,
                                  MSG_RSH_ENDED,
                                  MSG_END,
                                  MSG_ASIDE,
                                  PEER_SEND,
                                  PEER_READ,
                                  PEER_PART,
                                  MSG_NETWORK_LISTEN,
                                  MSG_NETWORK_END,
                                  MSG_NETWORK_CONNECT,
                                  MSG_NETWORK_RESULT,
                                  STUB_WORKER,
                                  STUB_RSH};
  Agent a = {
      .listener = -1, .signals = -1, .dir.lock = -1, .program = "/bin/false", .host = "h"};
  AgentStub stub = {0};
  Frame f;
  int other;
  uint8_t type;
  char copies[128];
  a.head = open_channel(&other);
  snprintf(a.dir.path, sizeof a.dir.path, "%s", root);
  snprintf(copies, sizeof copies, "%s/copies", root);
  REQUIRE(file_mkdirs(copies) == ERR_OK);
  REQUIRE(peer_open(&a.peer, copies) == ERR_OK);
  Err err = ERR_OK;
  while (!err && next_message(&data, &size, &type, &f.data, &f.len)) {
    f.type = types[type % sizeof types];
    err = give_to_agent(&a, &stub, &f);
    if (!err) err = network_peer_advance(a.network, (NetworkLink){send_to_head, &a}, 1);
    if (f.type == MSG_KILL) a.kill_since = 0; /* simulates that all processes have ended */
  }
  agent_signal_workers(&a, SIGTERM);
  agent_forget_processes(&a);
  network_peer_close(&a.network);
  peer_cancel(&a.peer);
  peer_close(&a.peer);
  channel_close(a.head);
  close(other);
  json_decref(a.begin);
  mem_free(a.process);
  mem_free(a.fds);
}

/* ---- supervisor ---- */

#define MACHINES 2

typedef struct {
  Arrival waiting[MACHINES];
  int count;
} FakeSource;

static int poll_for(void *self, struct pollfd *fds, int room) {
  (void)self;
  (void)fds;
  (void)room;
  return 0;
}

static Err advance_agents(void *self, double now) {
  (void)self;
  (void)now;
  return ERR_OK;
}

static bool take_arrival(void *self, Arrival *arrival) {
  FakeSource *f = self;
  if (!f->count) return false;
  *arrival = f->waiting[--f->count];
  return true;
}

static void note_lost(void *self, const char *name, Loss loss, double now) {
  (void)self;
  (void)name;
  (void)loss;
  (void)now;
}

static void close_source(void *self) {
  (void)self;
}

/* Connects an agent that has sent its MSG_HELLO, and returns its end. */
static Channel *connect_agent(FakeSource *from, int i) {
  NetworkList networks = {.count = 1, .address = {{.card = "lo", .prefix = 8}}};
  int other;
  Channel *agent = open_channel(&other);
  Arrival *a = &from->waiting[from->count++];
  *a = (Arrival){.is_head = i == 0};
  snprintf(a->name, sizeof a->name, "host%d", i);
  snprintf(networks.address[0].address, sizeof networks.address[0].address, "127.0.0.%d",
           i + 1);
  REQUIRE(channel_open(&a->channel, other, other, a->name) == ERR_OK);
  REQUIRE(protocol_send(agent, MSG_HELLO,
                        json_pack("{s:s, s:s, s:s, s:i, s:i, s:o}", "version", TRIREME_VERSION,
                                  "host", a->name, "directory", root, "cores", 4, "gpus", 0,
                                  "networks", network_to_json(&networks))) == ERR_OK);
  REQUIRE(channel_advance(agent) == ERR_OK);
  return agent;
}

static json_int_t last_proof; /* number of the last network test of the supervisor */

/* Sends the queued messages and discards the received ones; stores the number of a network
 * test. */
static void drain(Channel *agent) {
  Frame f;
  json_t *body;
  Err lost = channel_advance(agent);
  (void)lost; /* if the connection is lost, the next channel_send fails */
  while (channel_next(agent, &f)) {
    if (f.type != MSG_NETWORK_LISTEN) continue;
    REQUIRE(protocol_parse(&f, "the head", &body) == ERR_OK);
    last_proof = protocol_int(body, "proof", 0);
    json_decref(body);
  }
}

/* Sends a message of the input. Replaces "proof": 1 by the number of the last network test. */
static Err send_message(Channel *c, uint8_t type, const Frame *f) {
  json_t *body = json_loadb((const char *)f->data, f->len, 0, NULL);
  if (json_is_object(body) && protocol_int(body, "proof", 0) == 1) {
    json_object_set_new(body, "proof", json_integer(last_proof));
    return protocol_send(c, type, body);
  }
  json_decref(body);
  return channel_send(c, type, f->data, f->len);
}

/* Sends the messages of the input from the two agents, and lets the supervisor handle each. */
static void send_messages(Supervisor *s, Channel *agent[MACHINES], const uint8_t *data,
                          size_t size) {
  static const uint8_t types[] = {
      MSG_HELLO,   MSG_WORKER_BEGAN, MSG_WORKER_ENDED, MSG_EVENT,         MSG_PROCESS_ENDED,
      MSG_RSH,     MSG_CLEAR,        MSG_FAILED,       MSG_LEAVE,         PEER_STORED,
      PEER_FAILED, PEER_PART,        MSG_OUTPUT,       MSG_NETWORK_PORTS, MSG_NETWORK_RESULT};
  enum { TYPES = sizeof types, WAIT = TYPES, SIGNAL };
  double now = progress_clock();
  int signals = 0;
  uint8_t choice;
  Frame f;
  bool is_over = supervisor_advance(s, now, signals);
  for (int i = 0; i < MACHINES; i++) drain(agent[i]);
  while (!is_over && next_message(&data, &size, &choice, &f.data, &f.len)) {
    unsigned kind = choice % (SIGNAL + 1);
    Channel *from = agent[choice >= 128 ? 1 : 0];
    if (kind == WAIT) now += 7;
    if (kind == SIGNAL) signals++;
    if (kind < TYPES && send_message(from, types[kind], &f)) return; /* connection failed */
    for (int i = 0; i < MACHINES; i++) drain(agent[i]);
    is_over = supervisor_advance(s, now, signals);
  }
}

static void fuzz_supervisor(const uint8_t *data, size_t size, int machines) {
  static const char *const command[] = {"train", "--run", "x"};
  FakeSource from = {0};
  Source source = {.self = &from,
                   .expected = 1,
                   .poll_for = poll_for,
                   .advance = advance_agents,
                   .next = take_arrival,
                   .lost = note_lost,
                   .close = close_source};
  LaunchSpec spec = {.argv = command,
                     .args = 3,
                     .nproc = 2,
                     .min = machines,
                     .max = machines,
                     .max_restarts = 3,
                     .join_timeout = 60,
                     .start_timeout = 120,
                     .log_dir = root};
  Console *console;
  Supervisor *s;
  Channel *agent[MACHINES];
  /* The run is never created, so no log file is written. */
  REQUIRE(console_open(&console, &(ConsoleSpec){.log_dir = root,
                                                .run = "/nonexistent",
                                                .is_quiet = true}) == ERR_OK);
  REQUIRE(supervisor_open(&s, &spec, console, &source, 1) == ERR_OK);
  for (int i = 0; i < MACHINES; i++) agent[i] = connect_agent(&from, i);
  send_messages(s, agent, data, size);
  for (int i = 0; i < MACHINES; i++) channel_close(agent[i]);
  for (int i = 0; i < from.count; i++) channel_close(from.waiting[i].channel);
  supervisor_close(s);
  Err lost = console_close(console);
  (void)lost; /* nobody reads the output */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  if (data[0] % 3 == 0)
    fuzz_agent(data + 1, size - 1);
  else
    fuzz_supervisor(data + 1, size - 1, data[0] % 3);
  return 0;
}
