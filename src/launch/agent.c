/* The agent's loop, and its handling of messages and signals. Depends on agent_worker,
 * agent_stub, process. */
#include "launch/agent.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "launch/agent_internal.h"
#include "launch/agent_limits.h"
#include "launch/cores.h"
#include "launch/network.h"
#include "launch/process.h"

/* Milliseconds between checks while processes are being killed or networks tested. */
#define TICK 50
/* Seconds after which a process that cannot be killed is reported. */
#define STUCK_TIME 5.0
#define SEND_LIMIT 2.0 /* seconds to send the reason of the agent's end to the head */

static Err send_hello(Agent *a) {
  int cpu[CORES_MAX];
  NetworkList networks;
  TRY(network_list(&networks));
  return protocol_send(
      a->head, MSG_HELLO,
      json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:s, s:o}", "host", a->host, "pid",
                (int)getpid(), "program", a->program, "directory", a->dir.path, "cores",
                cores_list(cpu), "gpus", cores_count_gpus(), "version", TRIREME_VERSION,
                "networks", network_to_json(&networks)));
}

static Err send_to_head(void *context, size_t machine, uint8_t type, json_t *body) {
  Agent *a = context;
  (void)machine;
  return protocol_send(a->head, type, body);
}

/* Sends SIGKILL to all children; when none is left, sends MSG_CLEAR once. */
static Err continue_kill(Agent *a, double now) {
  char names[256];
  if (a->kill_since <= 0) return ERR_OK;
  process_kill_children();
  if (!process_has_children()) {
    a->kill_since = 0;
    agent_forget_processes(a);
    agent_close_stubs(a);
    TRY(agent_dir_renew(&a->dir, "mpi"));
    return protocol_send(a->head, MSG_CLEAR,
                         json_pack("{s:I}", "generation", (json_int_t)a->generation));
  }
  if (a->is_stuck || now - a->kill_since < STUCK_TIME) return ERR_OK;
  a->is_stuck = true;
  process_list_children(names, sizeof names);
  log_warn(
      "%s: processes do not end although they were killed: %s; they may wait for a network "
      "drive or a GPU, see 'dmesg' there",
      a->host, names);
  return ERR_OK;
}

static Err begin_generation(Agent *a, json_t *body) {
  json_decref(a->begin);
  a->begin = json_incref(body);
  a->generation = (uint32_t)protocol_int(body, "generation", 0);
  a->is_stuck = false;
  a->is_stopping = false;
  peer_cancel(&a->peer); /* the head has cancelled earlier transfers of checkpoints */
  /* If there are several ranks, mpirun will start them. */
  if (!json_is_true(json_object_get(body, "alone")))
    return agent_check_limits(a->dir.path, (int)protocol_int(body, "local_size", 1));
  pid_t pid;
  return agent_start_worker(a, 0, NULL, 0, &pid);
}

/* Stores how the launch has ended. */
static void note_end(Agent *a, const json_t *body) {
  a->is_over = true;
  if (a->origin != AGENT_OF_USER) return;
  a->end = (Err)protocol_between(body, "status", ERR_OK, ERR_STOPPED, ERR_OK);
  snprintf(a->why, sizeof a->why, "%s", protocol_text(body, "text"));
}

/* Prints why this machine is not used. */
static void report_aside(const Agent *a, const json_t *body) {
  if (a->origin == AGENT_OF_USER)
    log_warn("the head has set this machine aside: %s", protocol_text(body, "text"));
}

static Err handle_message(Agent *a, uint8_t type, json_t *body, double now) {
  bool is_current = (uint32_t)protocol_int(body, "generation", 0) == a->generation;
  if (type >= MSG_NETWORK_LISTEN && type <= MSG_NETWORK_END)
    return network_peer_handle(&a->network, type, body, (NetworkLink){send_to_head, a}, now);
  if (type == MSG_BEGIN) return begin_generation(a, body) ? agent_report_failure(a) : ERR_OK;
  if (type == MSG_END) note_end(a, body);
  if (type == MSG_ASIDE) report_aside(a, body);
  if (!is_current) return ERR_OK;
  switch (type) {
    case MSG_START:
      if (a->kill_since > 0) return ERR_OK;
      return agent_start_daemon(a, protocol_int(body, "id", 0), json_object_get(body, "argv"))
                 ? agent_report_failure(a)
                 : ERR_OK;
    case MSG_STOP:
      a->is_stopping = true;
      /* SIGUSR1, because SIGTERM of a batch system may have arrived as well, and a second SIGTERM
       * ends a worker at once. */
      agent_signal_workers(a, SIGUSR1);
      return ERR_OK;
    case MSG_KILL:
      if (a->kill_since <= 0) a->kill_since = now;
      return ERR_OK;
    case MSG_RSH_ENDED:
      agent_end_stub(a, 0, protocol_int(body, "id", 0), (int)protocol_int(body, "status", 1));
      return ERR_OK;
    default:
      return ERR_OK; /* ignore messages of later versions */
  }
}

static Err serve_head(Agent *a, double now) {
  Err lost = channel_advance(a->head);
  ErrRecord why = err_copy();
  for (Frame f; !a->is_over && channel_next(a->head, &f);) {
    json_t *body;
    if (f.type >= PEER_SEND && f.type <= PEER_LAST) {
      TRY(peer_handle(&a->peer, a->head, &f));
      continue;
    }
    TRY(protocol_parse(&f, "the head", &body));
    Err err = handle_message(a, f.type, body, now);
    json_decref(body);
    TRY(err);
  }
  return lost && !a->is_over ? err_give(&why) : ERR_OK;
}

/* Reaps all children that have ended. */
static Err reap_children(Agent *a) {
  for (;;) {
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return ERR_OK;
    TRY(agent_note_end(a, pid, status));
    agent_end_stub(a, pid, 0, 0);
  }
}

/* At the first signal the head is asked to let the workers save and stop; at the second SIGINT or
 * SIGTERM this agent ends everything. */
static Err read_signals(Agent *a) {
  struct signalfd_siginfo info;
  while (read(a->signals, &info, sizeof info) == (ssize_t)sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;
    bool is_first = !a->leaving;
    a->leaving = signals_note(&a->demands, (int)info.ssi_signo);
    if (is_first && a->origin == AGENT_OF_USER)
      log_info(
          "%s: this machine leaves the run after a checkpoint; a second signal ends its ranks "
          "at once",
          process_signal_name((int)info.ssi_signo));
    if (is_first)
      TRY(protocol_send(
          a->head, MSG_LEAVE,
          json_pack("{s:s}", "reason", process_signal_name((int)info.ssi_signo))));
  }
  return ERR_OK;
}

static Err add_fd(Agent *a, int fd, short events) {
  if (fd < 0) return ERR_OK;
  TRY(mem_grow(&a->fds, &a->fd_capacity, a->fd_count + 1, sizeof *a->fds));
  a->fds[a->fd_count++] = (struct pollfd){.fd = fd, .events = events};
  return ERR_OK;
}

static Err add_channel(Agent *a, const Channel *c, int *wait) {
  struct pollfd two[2];
  int count;
  channel_events(c, two, &count);
  for (int i = 0; i < count; i++) TRY(add_fd(a, two[i].fd, two[i].events));
  int ms = channel_wait_ms(c);
  if (ms >= 0 && (*wait < 0 || ms < *wait)) *wait = ms;
  return ERR_OK;
}

/* Adds the sockets of a running network test to those that are polled, and limits the wait to
 * TICK ms, because the test has deadlines. */
static Err add_network(Agent *a, int *wait) {
  if (!a->network) return ERR_OK;
  *wait = TICK;
  TRY(mem_grow(&a->fds, &a->fd_capacity, a->fd_count + NETWORK_PEER_FDS, sizeof *a->fds));
  a->fd_count +=
      (size_t)network_peer_poll_for(a->network, a->fds + a->fd_count, NETWORK_PEER_FDS);
  return ERR_OK;
}

static Err wait_for_events(Agent *a) {
  int wait = a->kill_since > 0 ? TICK : -1;
  bool may_read = channel_unsent(a->head) < ((size_t)1 << 20);
  bool may_accept = progress_clock() >= a->accept_at;
  a->fd_count = 0;
  if (may_accept)
    TRY(add_fd(a, a->listener, POLLIN));
  else
    wait = TICK;
  TRY(add_fd(a, a->signals, POLLIN));
  TRY(add_channel(a, a->head, &wait));
  for (size_t i = 0; i < a->stubs; i++) TRY(add_channel(a, a->stub[i].channel, &wait));
  for (size_t i = 0; i < a->processes; i++) {
    if (a->process[i].abandoned > 0) wait = TICK;
    if (!may_read) continue;
    TRY(add_fd(a, a->process[i].out, POLLIN));
    TRY(add_fd(a, a->process[i].err, POLLIN));
    TRY(add_fd(a, a->process[i].event, POLLIN));
    TRY(add_fd(a, a->process[i].start, POLLIN));
  }
  TRY(add_network(a, &wait));
  if (poll(a->fds, a->fd_count, wait) < 0 && errno != EINTR)
    return err_set(ERR_WORK, "the agent cannot wait for messages (poll): %s", strerror(errno));
  return ERR_OK;
}

static Err run_loop(Agent *a) {
  while (!a->is_over && a->leaving < 2) {
    TRY(wait_for_events(a));
    double now = progress_clock();
    TRY(read_signals(a));
    TRY(serve_head(a, now));
    TRY(network_peer_advance(a->network, (NetworkLink){send_to_head, a}, now));
    TRY(agent_serve_stubs(a, now));
    TRY(agent_forward_output(a));
    TRY(reap_children(a));
    agent_kill_abandoned(a, now);
    TRY(continue_kill(a, now));
  }
  return a->is_over ? ERR_OK : ERR_STOPPED;
}

/* Returns the status of the launch, with a line about it if it has failed or was stopped. A machine
 * that was asked to leave is released without a status. */
static Err report_result(const Agent *a) {
  if (a->end == ERR_OK && a->leaving && a->origin == AGENT_OF_USER)
    log_info("this machine has left the run; the same command lets it join again");
  if (a->end == ERR_OK) return ERR_OK;
  if (a->end != ERR_STOPPED) return err_set(a->end, "the run has failed: %s", a->why);
  log_info("the run was stopped; the same command on every machine continues it");
  return ERR_STOPPED;
}

/* SIGINT, SIGTERM and SIGHUP (the terminal was closed) ask this machine to leave. In agents that
 * the head has started, SIGHUP is ignored. Batch systems send SIGUSR1 before the time limit;
 * the agent ignores it, because the ranks receive it as well, or the head, which stops them. It is
 * also blocked: a worker inherits both, and the SIGUSR1 of MSG_STOP must wait until the worker has
 * reset them. */
static Err watch_signals(Agent *a) {
  sigset_t announcement;
  signal(SIGUSR1, SIG_IGN);
  sigemptyset(&announcement);
  sigaddset(&announcement, SIGUSR1);
  sigprocmask(SIG_BLOCK, &announcement, NULL);
  a->signals = signals_watch(SIGCHLD);
  return a->signals < 0 ? err_set(ERR_WORK, "signalfd: %s", strerror(errno)) : ERR_OK;
}

/* Creates a link to the program with a short path without blanks, for mpirun. */
static Err link_program(const Agent *a) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, a->dir.path, "trireme"));
  return symlink(a->program, path) == 0 ? ERR_OK : err_errno("cannot make the link", path);
}

static Err set_up(Agent *a, const char *name) {
  char copies[FILE_PATH_MAX];
  TRY(file_program(a->program));
  if (name)
    snprintf(a->host, sizeof a->host, "%s", name);
  else
    gethostname(a->host, sizeof a->host - 1);
  TRY(process_adopt_orphans());
  TRY(watch_signals(a));
  TRY(agent_dir_make(&a->dir));
  TRY(link_program(a));
  TRY(agent_dir_renew(&a->dir, "mpi"));
  TRY(agent_dir_renew(&a->dir, "copies"));
  TRY(file_join(copies, a->dir.path, "copies"));
  TRY(peer_open(&a->peer, copies));
  return agent_listen(a);
}

/* Kills and reaps all processes. Gives up after STUCK_TIME, because a process in state D cannot
 * be killed. */
static void end_processes(void) {
  struct timespec pause = {.tv_nsec = 20000000};
  for (double start = progress_clock(); progress_clock() - start < STUCK_TIME;) {
    process_kill_children();
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    if (!process_has_children()) return;
    nanosleep(&pause, NULL);
  }
}

/* Sends a warning to the head, which adds the name of this machine. */
static void send_warning(void *agent, const char *label, const char *line) {
  Agent *a = agent;
  size_t len = strlen(a->host);
  (void)label;
  if (strncmp(line, a->host, len) == 0 && str_starts(line + len, ": ")) line += len + 2;
  Err lost =
      protocol_send(a->head, MSG_WARNING, json_pack("{s:o}", "text", protocol_make_text(line)));
  (void)lost; /* the loop reports the loss of the head */
}

/* Sends the current error, for which this agent ends, to the head. Returns true if the head has taken
 * it: it closes the channel when it has received the end mark. */
static bool send_reason(Agent *a) {
  double limit = progress_clock() + SEND_LIMIT;
  send_warning(a, "", err_message());
  if (channel_end(a->head)) return false;
  while (progress_clock() < limit) {
    struct pollfd fds[2];
    int count;
    bool is_sent = channel_unsent(a->head) == 0;
    if (channel_advance(a->head)) return is_sent;
    for (Frame f; channel_next(a->head, &f);) {}
    channel_events(a->head, fds, &count);
    poll(fds, (nfds_t)count, TICK);
  }
  return false;
}

/* Implements agent_run, in a process whose children were all started by the agent. At the end,
 * end_processes kills every child. */
static Err serve_launch(Channel *head, const char *name, AgentOrigin origin) {
  Agent a = {.head = head,
             .origin = origin,
             .listener = -1,
             .signals = -1,
             .dir.lock = -1,
             .peer = PEER_AGENT_CLOSED};
  if (origin == AGENT_OF_SRUN) log_divert(send_warning, &a);
  Err err = set_up(&a, name);
  channel_set_heartbeat(head, HEARTBEAT_EVERY, HEARTBEAT_LIMIT);
  if (!err) err = send_hello(&a);
  if (!err) err = run_loop(&a);
  ErrRecord why = err_copy();
  end_processes();
  agent_forget_processes(&a);
  agent_close_stubs(&a);
  network_peer_close(&a.network);
  peer_close(&a.peer);
  agent_dir_remove(&a.dir);
  process_close(&a.listener);
  process_close(&a.signals);
  if (origin == AGENT_OF_SRUN) log_divert(NULL, NULL);
  if (err == ERR_WORK && origin == AGENT_OF_SRUN) {
    err_give(&why);
    if (send_reason(&a)) log_mute(); /* the head prints it */
  }
  channel_close(a.head);
  json_decref(a.begin);
  mem_free(a.process);
  mem_free(a.stub);
  mem_free(a.fds);
  if (err == ERR_WORK) err_give(&why);
  return err ? err : report_result(&a);
}

Err agent_run(Channel *head, const char *name, AgentOrigin origin) {
  bool is_parent;
  Err err = process_separate(&is_parent);
  if (!err && !is_parent) return serve_launch(head, name, origin);
  channel_close(head); /* only the child uses the channel */
  return err;
}
