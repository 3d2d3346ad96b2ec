/* Starts the agent of this machine. Depends on source, process. */
#include "launch/source_local.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "launch/process.h"

/* Largest number of agents in a row that may fail soon after their start. */
#define ATTEMPTS 5
/* Seconds before the second attempt to start the agent; doubled for each further one. */
#define PAUSE_FIRST 0.5
/* Seconds after which the failure of an agent no longer counts as a failed start. */
#define SOON      2.0
#define LOST_TIME 2.0 /* seconds within which an agent that was lost must exit */
#define END_TIME  5.0 /* seconds in which the agent must exit after the launch */

typedef struct {
  int slots;
  pid_t pid;      /* process of the agent; 0: none */
  bool is_wanted; /* an agent must be started as soon as the previous one has exited */
  double start_at;
  double started;
  /* Time at which a lost agent is killed if it has not exited; 0: the agent is not lost. */
  double kill_at;
  int failures;       /* number of attempts in a row that failed */
  char reason[256];   /* reason of the last failure */
  ProcessLines lines; /* reads the agent's standard error */
  Channel *ready;     /* connected, but not yet taken by the supervisor */
  char name[SOURCE_NAME_MAX];
} Local;

/* Starts the agent; its end of a socket pair is descriptor PROCESS_EVENT_FD. */
static Err start_agent(Local *l) {
  char program[FILE_PATH_MAX];
  int ends[2];
  TRY(file_program(program));
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return err_set(ERR_WORK,
                   "cannot make a socket pair: %s; raise the limit of open files (ulimit -n)",
                   strerror(errno));
  int said[2];
  if (pipe2(said, O_CLOEXEC) != 0) {
    close(ends[0]);
    close(ends[1]);
    return err_errno("cannot create a pipe for", "the agent of this machine");
  }
  fcntl(said[0], F_SETFL, O_NONBLOCK);
  char launch[] = "launch";
  char option[] = "--agent-fd";
  char number[16];
  snprintf(number, sizeof number, "%d", PROCESS_EVENT_FD);
  char *argv[] = {program, launch, option, number, NULL};
  ProcessSpec spec = {.argv = argv,
                      .in = -1,
                      .out = said[1],
                      .err = said[1],
                      .event = ends[1],
                      .outlives = true};
  Err err = process_start(&spec, &l->pid);
  if (err) l->pid = 0;
  close(ends[1]);
  close(said[1]);
  process_close(&l->lines.fd);
  l->lines = (ProcessLines){.fd = said[0]};
  if (!err) return channel_open(&l->ready, ends[0], ends[0], "the agent of this machine");
  close(ends[0]);
  return err;
}

/* Prints the lines that the agent wrote to standard error. A line that the previous attempt
 * printed too is not repeated. */
static void print_lines(Local *l) {
  char line[PROCESS_LINE_MAX + 1];
  while (process_next_line(&l->lines, line)) {
    const char *text = line;
    if (str_starts(text, "trireme: ")) text += strlen("trireme: ");
    if (str_starts(text, "warning: ")) text += strlen("warning: ");
    if (strncmp(text, l->reason, sizeof l->reason - 1) == 0) continue;
    log_warn("%s", text);
    snprintf(l->reason, sizeof l->reason, "%.255s", text);
  }
}

static int poll_for(void *self, struct pollfd *fds, int room) {
  const Local *l = self;
  if (l->lines.fd < 0 || room < 1) return 0;
  fds[0] = (struct pollfd){l->lines.fd, POLLIN, 0};
  return 1;
}

static void count_failure(Local *l, double now) {
  l->start_at = now + PAUSE_FIRST * (1 << l->failures);
  l->failures++;
}

/* Returns true when the lost agent has exited. */
static bool reap_agent(Local *l, double now) {
  int status = 0;
  if (l->pid <= 0) return true;
  pid_t ended = waitpid(l->pid, &status, WNOHANG);
  if (ended == 0) {
    if (now >= l->kill_at) kill(l->pid, SIGKILL);
    return false;
  }
  print_lines(l);
  if (!l->reason[0] && ended == l->pid)
    process_describe_end(l->reason, sizeof l->reason,
                         WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                         WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  l->pid = 0;
  l->kill_at = 0;
  return true;
}

static Err advance_agents(void *self, double now) {
  Local *l = self;
  print_lines(l);
  if (l->kill_at > 0 && !reap_agent(l, now)) return ERR_OK;
  if (l->failures >= ATTEMPTS)
    return err_set(ERR_WORK,
                   "the agent of this machine ended %d times soon after its start: %s",
                   l->failures, l->reason);
  if (!l->is_wanted || now < l->start_at) return ERR_OK;
  if (start_agent(l)) {
    snprintf(l->reason, sizeof l->reason, "%.255s", err_message());
    count_failure(l, now);
    if (l->pid) l->kill_at = now; /* it runs, but its channel could not be opened */
    return ERR_OK;
  }
  l->is_wanted = false;
  l->started = now;
  return ERR_OK;
}

static bool take_arrival(void *self, Arrival *arrival) {
  Local *l = self;
  if (!l->ready) return false;
  *arrival = (Arrival){.channel = l->ready, .slots = l->slots, .is_head = true};
  memcpy(arrival->name, l->name, sizeof l->name);
  l->ready = NULL;
  return true;
}

/* Handles the loss of the agent. Its channel is closed, so a running agent exits by itself. It
 * is started again even if it was asked to leave, because this machine takes part as long as
 * the launch runs on it. */
static void note_lost(void *self, const char *name, Loss loss, double now) {
  Local *l = self;
  if (strcmp(name, l->name) != 0) return;
  bool is_early = loss == LOSS_EARLY || (loss == LOSS_FAILURE && now - l->started < SOON);
  if (is_early) {
    count_failure(l, now);
  } else {
    l->failures = 0;
    l->reason[0] = '\0';
    l->start_at = now;
  }
  l->kill_at = now + LOST_TIME;
  l->is_wanted = true;
}

/* Waits until the agent has exited; kills it after END_TIME. */
static void close_local(void *self) {
  Local *l = self;
  struct timespec pause = {.tv_nsec = 10000000};
  channel_close(l->ready);
  l->kill_at = progress_clock() + END_TIME;
  while (l->pid > 0 && !reap_agent(l, progress_clock())) {
    print_lines(l);
    nanosleep(&pause, NULL);
  }
  process_close(&l->lines.fd);
  mem_free(l);
}

Err source_local_open(Source *source, int slots) {
  Local *l;
  TRY(mem_alloc(&l, 1, sizeof *l));
  l->slots = slots;
  l->is_wanted = true;
  l->lines.fd = -1;
  gethostname(l->name, sizeof l->name - 1);
  *source = (Source){.self = l,
                     .expected = 1,
                     .poll_for = poll_for,
                     .advance = advance_agents,
                     .next = take_arrival,
                     .lost = note_lost,
                     .close = close_local};
  return ERR_OK;
}
