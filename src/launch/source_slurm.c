/* Agents of a Slurm allocation: one srun for all nodes, later one for each node that was lost. srun
 * runs only until its agents have set themselves up.
 * Depends on source_slurm.h, slurm, door, process, network. */
#include "launch/source_slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "launch/door.h"
#include "launch/network.h"
#include "launch/process.h"
#include "launch/protocol.h"

#define PENDING     64   /* most authenticated agents that have not reported their node */
#define STEPS       64   /* largest number of srun processes at the same time */
#define RETRY_FIRST 5.0  /* seconds before a lost node is tried again; doubled each time */
#define RETRY_MAX   60.0 /* longest of these waits in seconds */
#define END_TIME    10.0 /* seconds in which srun must exit after the launch */
#define STUCK_TIME  2.0  /* seconds after which a srun that was killed is left behind */
/* Seconds in which srun can report why an agent has crashed; less than RETRY_FIRST. */
#define REPORT_TIME 1.0
/* An agent that is lost within so many seconds after srun was killed may have ended with it. */
#define RELEASE_TIME 5.0

typedef enum {
  NODE_STARTING,
  NODE_ARRIVED,
  NODE_CONNECTED,
  NODE_READY, /* its agent has set itself up */
  NODE_LOST,  /* the agent of this node is started again */
  NODE_LEFT   /* the node has left on purpose and is not tried again */
} NodeState;

typedef struct {
  NodeState state;
  char name[SOURCE_NAME_MAX]; /* "" until its agent has connected */
  Channel *arrived;           /* channel of an agent that has arrived, until it is taken */
  double retry_at, delay;
  double lost_at;      /* when its agent was lost, or could not be started */
  double release_time; /* when the srun of its agent was killed; 0: it runs */
  bool keeps_srun; /* its agent seems to have ended with srun: the next srun is not killed */
} Node;

/* A process of srun. */
typedef struct {
  pid_t pid; /* process id of srun; 0: the entry is unused */
  int node;  /* number of the node; -1: all nodes */
  int in;
  ProcessLines lines; /* reads srun's standard output and standard error */
  char last[256];
  bool is_kept;     /* it is not killed (Node.keeps_srun) */
  bool is_released; /* it was killed, because its agents do not need it any more */
  bool is_refused;  /* it has printed that the allocation has ended, or its job step */
} StepRun;

typedef struct {
  const SlurmAllocation *allocation;
  bool has_nproc, has_begun; /* has_begun: every node has arrived once */
  bool is_over;              /* the allocation has ended: srun can start no agent any more */
  Door *door;
  SlurmMeeting meeting;
  char line[SLURM_LINE_MAX];
  Node *node;
  Channel *pending[PENDING];
  StepRun step[STEPS];
} Slurm;

/* Returns true if srun prints that the allocation, or a job step, has ended. */
static bool is_refusal(const char *line) {
  static const char *const ends[] = {"Invalid job id specified", "Expired or invalid job",
                                     "Job/step already completing or completed"};
  if (!str_starts(line, "srun: ")) return false;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (strstr(line, ends[i])) return true;
  return false;
}

/* Prints complete lines of srun as warnings, except its remark that this cluster cannot bind
 * cores: the launch does not request that. */
static void read_lines(StepRun *r) {
  char line[PROCESS_LINE_MAX + 1];
  while (process_next_line(&r->lines, line)) {
    if (strstr(line, "lacks support for cpu binding")) continue;
    log_warn("%s", line);
    r->is_refused = r->is_refused || is_refusal(line);
    snprintf(r->last, sizeof r->last, "%.255s", line);
  }
}

static void close_step(StepRun *r) {
  process_close(&r->in);
  process_close(&r->lines.fd);
  *r = (StepRun){.in = -1, .lines.fd = -1};
}

static Err start_process(Slurm *s, StepRun *r, char **argv) {
  int in[2] = {-1, -1};
  int out[2] = {-1, -1};
  Err err = ERR_OK;
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
    err = err_errno("cannot create a pipe for", "srun");
  size_t len = strlen(s->line);
  /* Write before srun starts: the line fits into the pipe, even if srun exits at once. */
  if (!err && write(in[1], s->line, len) != (ssize_t)len)
    err = err_errno("cannot write to", "srun");
  ProcessSpec spec = {.argv = argv, .in = in[0], .out = out[1], .err = out[1]};
  if (!err) err = process_start(&spec, &r->pid);
  process_close(&in[0]);
  process_close(&out[1]);
  r->in = in[1];
  r->lines.fd = out[0];
  if (err) {
    close_step(r);
    return err;
  }
  fcntl(r->lines.fd, F_SETFL, O_NONBLOCK);
  return ERR_OK;
}

/* Starts one task on all nodes (node -1) or on one, with all cores and memory of the allocation
 * there. --overlap: the job step shares them with the step of the other agents. If an agent
 * exits, the others continue. */
static Err start_step(Slurm *s, int node) {
  char program[FILE_PATH_MAX];
  char nodes[32];
  char tasks[32];
  char where[SOURCE_NAME_MAX + 16];
  StepRun *r = s->step;
  while (r < s->step + STEPS && r->pid) r++;
  if (r == s->step + STEPS) return err_set(ERR_WORK, "too many runs of srun at a time");
  TRY(file_program(program));
  int count = node < 0 ? s->allocation->nodes : 1;
  snprintf(nodes, sizeof nodes, "--nodes=%d", count);
  snprintf(tasks, sizeof tasks, "--ntasks=%d", count);
  snprintf(where, sizeof where, "--nodelist=%s", node < 0 ? "" : s->node[node].name);
  const char *words[] = {"srun",
                         nodes,
                         tasks,
                         "--ntasks-per-node=1",
                         "--overlap",
                         "--mem=0",
                         "--mpi=none",
                         "--cpu-bind=none",
                         "--no-kill",
                         "--kill-on-bad-exit=0",
                         "--wait=0",
                         "--export=ALL",
                         "--input=all",
                         "--unbuffered",
                         "--job-name=trireme-agent",
                         node < 0 ? program : where,
                         node < 0 ? "launch" : program,
                         node < 0 ? "--agent-slurm" : "launch",
                         node < 0 ? NULL : "--agent-slurm",
                         NULL};
  *r = (StepRun){
      .node = node, .in = -1, .lines.fd = -1, .is_kept = node >= 0 && s->node[node].keeps_srun};
  return start_process(s, r, (char **)(void *)words);
}

static void mark_lost(Node *n, double now) {
  n->state = NODE_LOST;
  n->lost_at = now;
  n->retry_at = now + n->delay;
  n->delay = n->delay * 2 < RETRY_MAX ? n->delay * 2 : RETRY_MAX;
}

/* Handles the end of a srun process: an error before the launch has begun; later its node is
 * tried again, unless srun was refused. The same refusal means only that its job step has ended if
 * it comes from a srun whose agents had connected. */
static Err judge_end(Slurm *s, const StepRun *r, int wait_status, double now) {
  bool is_missing = false;
  for (int i = 0; i < s->allocation->nodes; i++) {
    if (s->node[i].state != NODE_STARTING || (r->node >= 0 && r->node != i)) continue;
    is_missing = true;
    if (s->has_begun) mark_lost(&s->node[i], now);
  }
  s->is_over = s->is_over || (is_missing && r->is_refused);
  if (s->has_begun || !is_missing) return ERR_OK;
  return err_set(ERR_WORK,
                 "srun ended (%s %d) before all agents had connected: %s; check the allocation "
                 "with 'srun --overlap hostname'",
                 WIFEXITED(wait_status) ? "exit status" : "signal",
                 WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : WTERMSIG(wait_status),
                 r->last[0] ? r->last : "it printed nothing");
}

static Err watch_steps(Slurm *s, double now) {
  for (StepRun *r = s->step; r < s->step + STEPS; r++) {
    int status = 0;
    if (!r->pid) continue;
    read_lines(r);
    if (waitpid(r->pid, &status, WNOHANG) == 0) continue;
    read_lines(r);
    Err err = r->is_released ? ERR_OK : judge_end(s, r, status, now);
    close_step(r);
    TRY(err);
  }
  return ERR_OK;
}

/* Returns true if the agents of a job step do not need srun any more. */
static bool can_release(const Slurm *s, const StepRun *r, double now) {
  if (r->is_kept) return false;
  for (int i = 0; i < s->allocation->nodes; i++) {
    const Node *n = &s->node[i];
    if (r->node >= 0 && r->node != i) continue;
    bool is_starting = n->state == NODE_STARTING || n->state == NODE_ARRIVED;
    if (is_starting || n->state == NODE_CONNECTED) return false;
    if (n->state == NODE_LOST && now - n->lost_at < REPORT_TIME) return false;
  }
  return true;
}

/* Kills srun when its agents are ready; Slurm lets them run on. Until then srun passes on why an
 * agent cannot begin, also if it crashes. scancel sends SIGTERM to srun too, which then kills its
 * tasks at once, before the ranks have saved. srun has a child process in its group that cancels
 * the job step if srun ends alone, so the group is killed. watch_steps reaps srun. */
static void release_steps(Slurm *s, double now) {
  for (StepRun *r = s->step; r < s->step + STEPS; r++) {
    if (!r->pid || r->is_released || !can_release(s, r, now)) continue;
    kill(-r->pid, SIGKILL);
    r->is_released = true;
    for (int i = 0; i < s->allocation->nodes; i++)
      if (r->node < 0 || r->node == i) s->node[i].release_time = now;
  }
}

static void accept_agents(Slurm *s, double now) {
  char address[DOOR_TEXT_MAX];
  door_advance(s->door, now);
  for (int i = 0; i < PENDING; i++)
    if (!s->pending[i] && !door_next(s->door, &s->pending[i], address)) return;
}

/* Handles the message of an agent that reports its node, and takes over its channel. */
static Err take_agent(Slurm *s, Channel **channel, const Frame *f) {
  json_t *body;
  if (f->type != MSG_SLURM_NODE)
    return err_set(ERR_WORK,
                   "the agent of a Slurm node sent an unexpected first message instead of its "
                   "node name; install the same version of trireme on all nodes");
  TRY(protocol_parse(f, "a node", &body));
  int64_t number = protocol_int(body, "node", -1);
  char name[SOURCE_NAME_MAX];
  snprintf(name, sizeof name, "%s", protocol_text(body, "name"));
  json_decref(body);
  Node *n = NULL;
  /* An agent of a later job step is found by the name of its node. */
  for (int i = 0; i < s->allocation->nodes && !n; i++) {
    bool is_connected = s->node[i].state == NODE_CONNECTED || s->node[i].state == NODE_READY;
    if (strcmp(s->node[i].name, name) == 0 && !is_connected) n = &s->node[i];
  }
  bool is_number = number >= 0 && number < s->allocation->nodes;
  if (!n && is_number && !s->node[number].name[0]) n = &s->node[number];
  if (!n || !name[0] || n->arrived)
    return err_set(ERR_WORK,
                   "an agent connected from node '%.64s', which is not part of the allocation; "
                   "start the launch again",
                   name);
  memcpy(n->name, name, sizeof name);
  n->arrived = *channel;
  channel_set_heartbeat(n->arrived, HEARTBEAT_EVERY, 0);
  n->state = NODE_ARRIVED;
  n->release_time = 0;
  *channel = NULL;
  return ERR_OK;
}

static void serve_pending(Slurm *s) {
  for (int i = 0; i < PENDING; i++) {
    Frame f;
    if (!s->pending[i]) continue;
    Err err = channel_advance(s->pending[i]);
    if (!err && channel_next(s->pending[i], &f)) err = take_agent(s, &s->pending[i], &f);
    if (!err) continue;
    log_warn("%s", err_message());
    channel_close(s->pending[i]);
    s->pending[i] = NULL;
  }
}

/* Sends heartbeats to agents that wait until the nodes before them have arrived. */
static void serve_arrived(Slurm *s) {
  for (int i = 0; i < s->allocation->nodes; i++) {
    Err lost = s->node[i].arrived ? channel_advance(s->node[i].arrived) : ERR_OK;
    (void)lost; /* the supervisor reports it when it has taken the channel */
  }
}

static int poll_for(void *self, struct pollfd *fds, int room) {
  Slurm *s = self;
  int count = 0;
  if (room < 3) return 0;
  for (int i = 0; i < STEPS && count < room; i++)
    if (s->step[i].pid && s->step[i].lines.fd >= 0)
      fds[count++] = (struct pollfd){s->step[i].lines.fd, POLLIN, 0};
  for (int i = 0; i < PENDING && count + 2 <= room; i++) {
    int added = 0;
    if (s->pending[i]) channel_events(s->pending[i], fds + count, &added);
    count += added;
  }
  return count + door_poll_for(s->door, fds + count, room - count);
}

static Err advance_agents(void *self, double now) {
  Slurm *s = self;
  bool has_all = true;
  accept_agents(s, now);
  serve_pending(s);
  serve_arrived(s);
  for (int i = 0; i < s->allocation->nodes; i++) has_all &= s->node[i].name[0] != '\0';
  s->has_begun |= has_all;
  release_steps(s, now);
  TRY(watch_steps(s, now));
  for (int i = 0; i < s->allocation->nodes; i++) {
    Node *n = &s->node[i];
    if (n->state != NODE_LOST || now < n->retry_at || s->is_over) continue;
    if (start_step(s, i) == ERR_OK)
      n->state = NODE_STARTING;
    else
      mark_lost(n, now);
  }
  return ERR_OK;
}

/* At the start, returns nodes in their order, so that ranks are numbered in this order. */
static bool take_arrival(void *self, Arrival *arrival) {
  Slurm *s = self;
  for (int i = 0; i < s->allocation->nodes; i++) {
    Node *n = &s->node[i];
    if (n->state == NODE_STARTING && !s->has_begun) return false;
    if (n->state != NODE_ARRIVED) continue;
    *arrival = (Arrival){.channel = n->arrived};
    if (!s->has_nproc) arrival->slots = s->allocation->tasks[i];
    memcpy(arrival->name, n->name, sizeof n->name);
    n->arrived = NULL;
    n->state = NODE_CONNECTED;
    return true;
  }
  return false;
}

static void note_ready(void *self, const char *name) {
  Slurm *s = self;
  for (int i = 0; i < s->allocation->nodes; i++) {
    Node *n = &s->node[i];
    if (n->state == NODE_CONNECTED && strcmp(n->name, name) == 0) n->state = NODE_READY;
  }
}

/* Keeps the next srun of a node whose agent failed so soon after srun was killed that it may have
 * ended with it, as with a Slurm that ends a job step with its srun. */
static void check_release(Node *n, double now) {
  bool is_soon = n->release_time > 0 && now - n->release_time < RELEASE_TIME;
  if (!is_soon || n->keeps_srun) return;
  n->keeps_srun = true;
  log_warn(
      "%s: its agent ended within %.0f s after srun was ended; srun is kept running for this "
      "node from now on, and scancel may then end its ranks before they have saved; to stop "
      "the run after a checkpoint use 'scancel --signal=TERM JOB'",
      n->name, RELEASE_TIME);
}

static void note_lost(void *self, const char *name, Loss loss, double now) {
  Slurm *s = self;
  for (int i = 0; i < s->allocation->nodes; i++) {
    Node *n = &s->node[i];
    bool is_connected = n->state == NODE_CONNECTED || n->state == NODE_READY;
    if (!is_connected || strcmp(n->name, name) != 0) continue;
    if (loss == LOSS_FAILURE) check_release(n, now);
    /* The agent had started, so the delay before the next attempt is reset. */
    if (loss == LOSS_FAILURE) n->delay = RETRY_FIRST;
    mark_lost(n, now);
    if (loss == LOSS_LEFT) n->state = NODE_LEFT;
  }
}

static int count_open(void *self) {
  const Slurm *s = self;
  int open = 0;
  for (int i = 0; i < s->allocation->nodes; i++) {
    NodeState state = s->node[i].state;
    bool must_start = state == NODE_STARTING || state == NODE_LOST;
    open += state != NODE_LEFT && !(must_start && s->is_over);
  }
  return open;
}

/* Waits for srun, which exits after the agents. Gives up soon after the limit, because a process in
 * state D cannot be killed. */
static void await_step(StepRun *r, double limit) {
  struct timespec pause = {.tv_nsec = 10000000};
  process_close(&r->in);
  while (waitpid(r->pid, NULL, WNOHANG) == 0 && progress_clock() < limit + STUCK_TIME) {
    read_lines(r);
    if (progress_clock() > limit) kill(r->pid, SIGKILL);
    nanosleep(&pause, NULL);
  }
}

static void close_source(void *self) {
  Slurm *s = self;
  double limit = progress_clock() + END_TIME;
  door_close(s->door);
  for (int i = 0; i < PENDING; i++) channel_close(s->pending[i]);
  for (int i = 0; s->node && i < s->allocation->nodes; i++) channel_close(s->node[i].arrived);
  for (StepRun *r = s->step; r < s->step + STEPS; r++) {
    if (!r->pid) continue;
    await_step(r, limit);
    close_step(r);
  }
  key_wipe(&s->meeting.key);
  explicit_bzero(s->line, sizeof s->line);
  mem_free(s->node);
  mem_free(s);
}

/* Lists this machine's addresses, those of container bridges last: on a node the same address
 * often belongs to its own bridge. */
static Err list_addresses(SlurmMeeting *m) {
  NetworkList own;
  TRY(network_list(&own));
  for (int is_virtual = 0; is_virtual < 2; is_virtual++) {
    for (size_t i = 0; i < own.count && m->addresses < SLURM_ADDRESSES; i++) {
      if (own.address[i].is_virtual != (bool)is_virtual) continue;
      memcpy(m->address[m->addresses++], own.address[i].address, sizeof m->address[0]);
    }
  }
  if (!m->addresses) snprintf(m->address[m->addresses++], sizeof m->address[0], "127.0.0.1");
  return ERR_OK;
}

static Err set_up(Slurm *s) {
  int cause;
  TRY(mem_alloc(&s->node, (size_t)s->allocation->nodes, sizeof *s->node));
  for (int i = 0; i < s->allocation->nodes; i++) s->node[i].delay = RETRY_FIRST;
  TRY(key_make(&s->meeting.key));
  TRY(door_open(&s->door, NULL, 0, &s->meeting.key, &cause));
  s->meeting.port = door_port(s->door);
  TRY(list_addresses(&s->meeting));
  slurm_print_meeting(&s->meeting, s->line);
  return start_step(s, -1);
}

Err source_slurm_open(Source *source, const SlurmAllocation *allocation, bool has_nproc) {
  Slurm *s;
  TRY(mem_alloc(&s, 1, sizeof *s));
  s->allocation = allocation;
  s->has_nproc = has_nproc;
  for (int i = 0; i < STEPS; i++) s->step[i] = (StepRun){.in = -1, .lines.fd = -1};
  Err err = set_up(s);
  if (err) {
    ErrRecord why = err_copy();
    close_source(s);
    return err_give(&why);
  }
  *source = (Source){.self = s,
                     .expected = allocation->nodes,
                     .poll_for = poll_for,
                     .advance = advance_agents,
                     .next = take_arrival,
                     .ready = note_ready,
                     .lost = note_lost,
                     .count_open = count_open,
                     .close = close_source};
  return ERR_OK;
}
