/* Starts agents and exchanges questions and answers with them, driven by poll in one thread.
 * Depends on doctor_session.h, process. */
#include "launch/doctor_session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/progress.h"
#include "launch/network.h"
#include "launch/process.h"

#define POLL_MS 200 /* milliseconds between two checks of ssh without an event */

static void lose_session(Session *s, const char *why) {
  snprintf(s->problem, sizeof s->problem, "%s", why);
  s->is_ready = false;
  s->is_asked = false;
}

/* Returns true if the host is this machine, by its name or by an address to which its name
 * resolves. */
static bool is_this_machine(const Host *host, const NetworkList *own) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  char address[NI_MAXHOST];
  bool is_own = hosts_is_local(host);
  if (is_own || getaddrinfo(host->address, NULL, &hints, &found) != 0) return is_own;
  for (const struct addrinfo *i = found; i && !is_own; i = i->ai_next)
    is_own = getnameinfo(i->ai_addr, i->ai_addrlen, address, sizeof address, NULL, 0,
                         NI_NUMERICHOST) == 0 &&
             network_is_own(own, address);
  freeaddrinfo(found);
  return is_own;
}

/* Reads and discards the agent's greeting line, which only ssh connections need. */
static bool skip_greeting(int fd) {
  char c = 0;
  while (c != '\n')
    if (read(fd, &c, 1) != 1) return false;
  return true;
}

static Err start_local(Session *s, const Sessions *all) {
  char own[FILE_PATH_MAX];
  const char *program = ssh_program(&(SshOptions){0}, own);
  char *const argv[] = {(char *)program, (char *)all->ssh.command, (char *)"--agent", NULL};
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return err_errno("cannot create", "a pipe");
  if (pipe2(out, O_CLOEXEC) != 0) {
    close(in[0]);
    close(in[1]);
    return err_errno("cannot create", "a pipe");
  }
  ProcessSpec spec = {.argv = argv, .in = in[0], .out = out[1], .err = STDERR_FILENO};
  Err err = process_start(&spec, &s->pid);
  if (err) s->pid = 0;
  close(in[0]);
  close(out[1]);
  if (!err && !skip_greeting(out[0]))
    err = err_set(ERR_WORK, "the agent on this machine ended at once");
  if (!err) return channel_open(&s->channel, out[0], in[1], s->host.name);
  close(in[1]);
  close(out[0]);
  return err;
}

static void start_session(Session *s, const Sessions *all) {
  Err err = s->is_local ? start_local(s, all)
                        : ssh_agent_start(&s->ssh, &s->host, &all->ssh, progress_clock());
  if (err) lose_session(s, err_message());
  if (!err && s->is_local) s->is_ready = true;
}

static bool is_starting(const Session *s) {
  return s->ssh && !s->channel && !s->problem[0];
}

static void advance_start(Session *s) {
  int in, out;
  switch (ssh_agent_advance(s->ssh, progress_clock())) {
    case SSH_STARTING:
      return;
    case SSH_FAILED:
      lose_session(s, err_message());
      return;
    case SSH_READY:
      ssh_agent_take(s->ssh, &in, &out);
      if (channel_open(&s->channel, in, out, s->host.name))
        lose_session(s, err_message());
      else
        s->is_ready = true;
  }
}

static void read_answers(Session *s) {
  Frame frame;
  json_t *answer;
  while (channel_next(s->channel, &frame)) {
    if (frame.type != PROBE_ANSWER) continue;
    if (protocol_parse(&frame, s->host.name, &answer)) {
      lose_session(s, err_message());
      return;
    }
    if (s->is_asked && protocol_int(answer, "id", -1) == s->id) {
      s->answered = progress_clock();
      s->is_asked = false;
      s->answer = answer;
    } else {
      json_decref(answer); /* the answer to a question that has timed out */
    }
  }
}

static void advance_session(Session *s) {
  if (is_starting(s)) {
    advance_start(s);
    return;
  }
  if (s->ssh)
    ssh_agent_has_ended(s->ssh); /* read standard error of ssh, so that ssh does not block */
  if (!s->is_ready) return;
  ErrRecord why = err_take(channel_advance(s->channel));
  read_answers(s); /* handle also the answers that arrived before the channel failed */
  if (why.code) lose_session(s, why.text);
}

/* Waits for events of all sessions. */
static void poll_sessions(const Sessions *s, int milliseconds) {
  struct pollfd *fds;
  nfds_t count = 0;
  if (mem_alloc(&fds, 4 * s->count + 1, sizeof *fds)) return;
  for (size_t i = 0; i < s->count; i++) {
    const Session *x = &s->list[i];
    int n = 0;
    if (x->ssh) count += (nfds_t)ssh_agent_poll_for(x->ssh, fds + count);
    if (x->is_ready) channel_events(x->channel, fds + count, &n);
    count += (nfds_t)n;
  }
  poll(fds, count, milliseconds);
  mem_free(fds);
}

/* Lists the hosts, and this machine if it is not among them. */
static void list_sessions(Sessions *s, const HostList *hosts, const NetworkList *own) {
  bool has_local = false;
  for (size_t i = 0; i < hosts->count; i++) {
    Session *x = &s->list[s->count++];
    x->host = hosts->host[i];
    x->is_member = true;
    x->is_local = is_this_machine(&x->host, own);
    if (x->is_local) has_local = true;
  }
  if (has_local) return;
  Session *x = &s->list[s->count++];
  x->is_local = true;
  snprintf(x->host.address, sizeof x->host.address, "localhost");
  if (gethostname(x->host.name, sizeof x->host.name - 1) != 0)
    snprintf(x->host.name, sizeof x->host.name, "this machine");
}

static bool has_starting(const Sessions *s) {
  for (size_t i = 0; i < s->count; i++)
    if (is_starting(&s->list[i])) return true;
  return false;
}

Err sessions_open(Sessions *s, const HostList *hosts, const SshOptions *ssh) {
  NetworkList *own;
  *s = (Sessions){.ssh = *ssh};
  s->ssh.command = "doctor";
  TRY(mem_alloc(&s->list, hosts->count + 1, sizeof *s->list));
  TRY(mem_alloc(&own, 1, sizeof *own));
  Err err = network_list(own);
  if (!err) list_sessions(s, hosts, own);
  mem_free(own);
  for (size_t i = 0; i < s->count; i++) start_session(&s->list[i], s);
  while (has_starting(s)) {
    poll_sessions(s, POLL_MS);
    for (size_t i = 0; i < s->count; i++) advance_session(&s->list[i]);
  }
  return err;
}

void sessions_close(Sessions *s) {
  for (size_t i = 0; i < s->count; i++) {
    Session *x = &s->list[i];
    json_decref(x->answer);
    channel_close(x->channel); /* closing its input makes the agent exit */
    ssh_agent_close(x->ssh);
    if (x->pid) {
      kill(x->pid, SIGKILL);
      waitpid(x->pid, NULL, 0);
    }
  }
  mem_free(s->list);
  *s = (Sessions){0};
}

void session_ask(Session *s, json_t *question) {
  json_decref(s->answer);
  s->answer = NULL;
  s->is_asked = false;
  if (!s->is_ready) {
    json_decref(question);
    return;
  }
  s->id++;
  if (question) json_object_set_new(question, "id", json_integer(s->id));
  s->asked = progress_clock();
  s->is_asked = true;
  Err err = protocol_send(s->channel, PROBE_ASK, question);
  if (!err) err = channel_advance(s->channel);
  if (err) lose_session(s, err_message());
}

void sessions_wait(Sessions *s, double seconds) {
  double deadline = progress_clock() + seconds;
  for (;;) {
    size_t asked = 0;
    for (size_t i = 0; i < s->count; i++) {
      advance_session(&s->list[i]);
      asked += s->list[i].is_asked;
    }
    double left = deadline - progress_clock();
    if (asked == 0 || left <= 0) break;
    poll_sessions(s, left < POLL_MS / 1e3 ? (int)(left * 1e3) + 1 : POLL_MS);
  }
  char why[64];
  snprintf(why, sizeof why, "no answer within %g s", seconds);
  for (size_t i = 0; i < s->count; i++)
    if (s->list[i].is_asked) lose_session(&s->list[i], why);
}
