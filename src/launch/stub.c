/* The programs that mpirun starts. Depends on channel, protocol. */
#include "launch/stub.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/str.h"
#include "launch/channel.h"
#include "launch/protocol.h"

extern char **environ;

/* Connects to the agent's Unix socket. *agent: pid of the process that listens there. */
static Err connect_to_agent(Channel **c, pid_t *agent) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *path = getenv("TRIREME_AGENT");
  if (!path || !*path || strlen(path) >= sizeof address.sun_path)
    return err_set(
        ERR_USAGE,
        "TRIREME_AGENT names no socket: --worker and --rsh are started by 'trireme launch' "
        "alone");
  memcpy(address.sun_path, path, strlen(path) + 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
    Err err = err_errno("cannot connect to the agent at", path);
    if (fd >= 0) close(fd);
    return err;
  }
  struct ucred peer = {0};
  socklen_t len = sizeof peer;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
  *agent = peer.pid;
  return channel_open(c, fd, fd, "the agent of this machine");
}

/* Ends the stub if SIGTERM was sent by its parent: mpirun, or the daemon of mpirun. */
static void handle_term(int signal_number, siginfo_t *info, void *context) {
  (void)signal_number;
  (void)context;
  if (info->si_pid == getppid()) _exit(ERR_WORK);
}

/* A batch system sends SIGUSR1 and SIGTERM to all processes, and a closing terminal SIGHUP; mpirun
 * forwards SIGUSR1. The ranks receive them as well, or the head, which stops them. */
static void ignore_announcements(void) {
  struct sigaction term = {.sa_sigaction = handle_term, .sa_flags = SA_SIGINFO | SA_RESTART};
  signal(SIGUSR1, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  sigemptyset(&term.sa_mask);
  sigaction(SIGTERM, &term, NULL);
}

/* Waits for STUB_END and returns its status as an Err: 0 to 3 are exit statuses of main(). */
static Err await_end(Channel *c) {
  for (;;) {
    struct pollfd fds[2];
    int count;
    channel_events(c, fds, &count);
    if (poll(fds, (nfds_t)count, channel_wait_ms(c)) < 0 && errno != EINTR)
      return err_set(ERR_WORK, "cannot wait for messages of the agent (poll): %s",
                     strerror(errno));
    Err lost = channel_advance(c);
    for (Frame f; channel_next(c, &f);) {
      json_t *body;
      if (f.type != STUB_END) continue;
      TRY(protocol_parse(&f, channel_name(c), &body));
      int64_t status = protocol_int(body, "status", 1);
      json_decref(body);
      return status
                 ? err_set(ERR_WORK, "the command on the other machine ended with status %lld",
                           (long long)status)
                 : ERR_OK;
    }
    TRY(lost);
  }
}

static Err send_environment(Channel *c) {
  Str all = {0};
  for (char **at = environ; *at; at++) str_addn(&all, *at, strlen(*at) + 1);
  Err err = str_check(&all);
  if (!err) err = channel_send(c, STUB_WORKER, str_text(&all), all.len);
  str_free(&all);
  return err;
}

Err stub_run_worker(void) {
  Channel *c;
  pid_t agent;
  ignore_announcements();
  /* Exit with mpirun; the agent then detects the end of mpirun by the closed connection. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  TRY(connect_to_agent(&c, &agent));
  Err err = ERR_OK;
  /* If mpirun ended before prctl, the agent is the parent now, because it adopts orphans. */
  if (getppid() == agent)
    err = err_set(ERR_WORK, "mpirun has ended before this rank was started");
  if (!err) err = send_environment(c);
  if (!err) err = await_end(c);
  channel_close(c);
  return err;
}

/* mpirun passes the command in one or several words; join them with blanks, as ssh does for the
 * remote shell. */
Err stub_run_rsh(const char *host, const char *const *word, int words) {
  Channel *c;
  pid_t agent;
  Str command = {0};
  ignore_announcements();
  for (int i = 0; i < words; i++) str_addf(&command, "%s%s", i ? " " : "", word[i]);
  Err err = str_check(&command);
  if (!err) err = connect_to_agent(&c, &agent);
  if (!err) {
    err = protocol_send(c, STUB_RSH,
                        json_pack("{s:s, s:s}", "host", host, "command", str_text(&command)));
    if (!err) err = await_end(c);
    channel_close(c);
  }
  str_free(&command);
  return err;
}
