/* Opens a supervisor, runs its loop until the launch has ended, and ends the agents. Depends on
 * supervisor.c (supervisor_advance), the other files of the supervisor, signals. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/progress.h"
#include "launch/protocol.h"
#include "launch/signals.h"
#include "launch/supervisor_internal.h"

#define END_LIMIT 2.0 /* seconds for the agents to exit at the end of the launch */
#define TICK      200 /* longest wait of the loop in milliseconds */

/* Waits for events of the machines and of the `count` descriptors that the caller has stored in
 * s->fds. */
static Err poll_machines(Supervisor *s, size_t count) {
  int wait = TICK;
  TRY(mem_grow(&s->fds, &s->fd_capacity, count + 2 * s->machines, sizeof *s->fds));
  for (size_t i = 0; i < s->machines; i++) {
    struct pollfd two[2];
    if (!s->machine[i].channel) continue;
    int n, ms = channel_wait_ms(s->machine[i].channel);
    channel_events(s->machine[i].channel, two, &n);
    for (int k = 0; k < n; k++) s->fds[count++] = two[k];
    if (ms >= 0 && ms < wait) wait = ms;
  }
  if (poll(s->fds, count, wait) < 0 && errno != EINTR)
    return err_set(ERR_WORK, "cannot wait for messages of the agents (poll): %s",
                   strerror(errno));
  return ERR_OK;
}

static Err wait_for_events(Supervisor *s, int signal_fd) {
  size_t count = 0;
  TRY(mem_grow(&s->fds, &s->fd_capacity, (size_t)s->sources * 64 + 1, sizeof *s->fds));
  s->fds[count++] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
  for (int i = 0; i < s->sources; i++)
    count += (size_t)s->source[i].poll_for(s->source[i].self, s->fds + count, 64);
  return poll_machines(s, count);
}

/* Reads the signals that have arrived, and returns their number as signals_note does. Ctrl-C after
 * SIGUSR1 or SIGHUP does not change the number, but its user expects an answer. */
static int read_signals(Supervisor *s, int fd, int *demands, int before) {
  struct signalfd_siginfo info;
  int signals = before;
  while (read(fd, &info, sizeof info) == (ssize_t)sizeof info) {
    signals = signals_note(demands, (int)info.ssi_signo);
    if (before == 1 && signals == 1 && info.ssi_signo == SIGINT) supervisor_say_stopping(s);
  }
  return signals;
}

Err supervisor_run(Supervisor *s, bool *is_reported) {
  /* Batch systems send SIGUSR1 before the time limit. */
  int signals = 0, demands = 0, fd = signals_watch(SIGUSR1);
  if (fd < 0) return err_set(ERR_WORK, "signalfd: %s", strerror(errno));
  Err err = ERR_OK;
  while (!err && !supervisor_advance(s, progress_clock(), signals)) {
    err = wait_for_events(s, fd);
    signals = read_signals(s, fd, &demands, signals);
  }
  close(fd);
  if (err) supervisor_finish(s, err, false);
  return supervisor_result(s, is_reported);
}

Err supervisor_result(Supervisor *s, bool *is_reported) {
  *is_reported = s->is_reported;
  if (s->result && !s->is_reported) err_give(&s->error);
  return s->result;
}

Err supervisor_open(Supervisor **out, const LaunchSpec *spec, Console *console, Source *source,
                    int sources) {
  Supervisor *s;
  int expected = 0;
  TRY(mem_alloc(&s, 1, sizeof *s));
  s->spec = *spec;
  s->console = console;
  s->source = source;
  s->sources = sources;
  for (int i = 0; i < sources; i++) expected += source[i].expected;
  if (!s->spec.min) s->spec.min = expected;
  if (!s->spec.max) s->spec.max = expected;
  s->policy.max_restarts = spec->max_restarts;
  s->gather_start = progress_clock();
  supervisor_enter(s, PHASE_GATHER, s->gather_start);
  *out = s;
  return ERR_OK;
}

/* Sends and receives without blocking. Returns true when all agents have closed their channels.
 * Received messages are discarded, but must be read: closing a TCP connection with unread bytes
 * resets it, and the agent might then not receive MSG_END. */
static bool advance_end(Supervisor *s) {
  bool is_done = true;
  for (size_t i = 0; i < s->machines; i++) {
    Machine *m = &s->machine[i];
    if (!m->channel) continue;
    bool is_open = channel_advance(m->channel) == ERR_OK && !channel_is_ended(m->channel);
    for (Frame f; channel_next(m->channel, &f);) {}
    if (!is_open) machine_close(m);
    is_done = is_done && !is_open;
  }
  return is_done;
}

/* Makes the MSG_END of the end of the launch. */
static json_t *pack_end(const Supervisor *s) {
  const char *why = s->result == ERR_OK || s->result == ERR_STOPPED ? ""
                    : s->is_reported ? "the head shows the error of its ranks"
                                     : s->error.text;
  return json_pack("{s:i, s:o}", "status", (int)s->result, "text", protocol_make_text(why));
}

void supervisor_end_agents(Supervisor *s, double limit) {
  double start = progress_clock();
  if (s->is_closing) return;
  s->is_closing = true;
  supervisor_end_proof(s);
  supervisor_cancel_copy(s);
  for (size_t i = 0; i < s->machines; i++) {
    supervisor_send(&s->machine[i], MSG_END, pack_end(s));
    Err ignored = channel_end(s->machine[i].channel);
    (void)ignored; /* a lost agent exits by itself */
  }
  while (!advance_end(s) && progress_clock() - start < limit)
    if (poll_machines(s, 0)) return;
}

void supervisor_close(Supervisor *s) {
  if (!s) return;
  supervisor_end_agents(s, END_LIMIT);
  for (size_t i = 0; i < s->machines; i++) machine_close(&s->machine[i]);
  for (int i = 0; i < s->sources; i++) s->source[i].close(s->source[i].self);
  generation_free(&s->generation);
  standing_free(&s->standing);
  mem_free(s->machine);
  mem_free(s->fds);
  mem_free(s);
}
