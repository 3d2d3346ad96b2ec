/* Starts the agent of this machine. Depends on source, process. */
#include "launch/source_local.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "launch/process.h"

#define END_TIME 5.0 /* seconds in which the agent must exit after the launch */

typedef struct {
  int slots;
  pid_t pid;      /* process of the agent; 0: none */
  bool is_wanted; /* an agent must be started */
  Channel *ready; /* connected, but not yet taken by the supervisor */
  char name[SOURCE_NAME_MAX];
} Local;

/* Starts the agent; its end of a socket pair is descriptor PROCESS_EVENT_FD. */
static Err start_agent(Local *l) {
  char program[FILE_PATH_MAX];
  int ends[2];
  ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  if (n < 0) return err_errno("cannot read", "/proc/self/exe");
  program[n] = '\0';
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return err_set(ERR_WORK, "cannot make a socket pair: %s", strerror(errno));
  char launch[] = "launch", option[] = "--agent-fd", number[16];
  snprintf(number, sizeof number, "%d", PROCESS_EVENT_FD);
  char *argv[] = {program, launch, option, number, NULL};
  ProcessSpec spec = {.argv = argv,
                      .in = -1,
                      .out = STDERR_FILENO,
                      .err = STDERR_FILENO,
                      .event = ends[1],
                      .outlives = true};
  Err err = process_start(&spec, &l->pid);
  close(ends[1]);
  if (!err) return channel_open(&l->ready, ends[0], ends[0], "the agent of this machine");
  close(ends[0]);
  return err;
}

static int poll_for(void *self, struct pollfd *fds, int room) {
  (void)self;
  (void)fds;
  (void)room;
  return 0;
}

static Err advance_agents(void *self, double now) {
  Local *l = self;
  (void)now;
  if (!l->is_wanted) return ERR_OK;
  l->is_wanted = false;
  return start_agent(l);
}

static bool take_arrival(void *self, Arrival *arrival) {
  Local *l = self;
  if (!l->ready) return false;
  *arrival = (Arrival){.channel = l->ready, .slots = l->slots, .is_head = true};
  memcpy(arrival->name, l->name, sizeof l->name);
  l->ready = NULL;
  return true;
}

/* Waits until the agent has exited; kills it after some attempts. */
static void await_agent(Local *l, int attempts) {
  struct timespec pause = {.tv_nsec = 10000000};
  for (int i = 0; l->pid > 0; i++) {
    pid_t ended = waitpid(l->pid, NULL, WNOHANG);
    if (ended == l->pid || (ended < 0 && errno == ECHILD)) break;
    if (i == attempts) kill(l->pid, SIGKILL);
    nanosleep(&pause, NULL);
  }
  l->pid = 0;
}

/* The channel is closed, so a running agent exits by itself. */
static void note_lost(void *self, const char *name, double now) {
  Local *l = self;
  (void)now;
  if (strcmp(name, l->name) != 0) return;
  await_agent(l, 0);
  l->is_wanted = true;
}

static void close_local(void *self) {
  Local *l = self;
  channel_close(l->ready);
  await_agent(l, (int)(END_TIME * 100));
  mem_free(l);
}

Err source_local_open(Source *source, int slots) {
  Local *l;
  TRY(mem_alloc(&l, 1, sizeof *l));
  l->slots = slots;
  l->is_wanted = true;
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
