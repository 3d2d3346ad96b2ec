/* The agent as a task of srun: connects to the head and then serves it. Depends on slurm.h,
 * agent, channel. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/progress.h"
#include "base/str.h"
#include "launch/agent.h"
#include "launch/protocol.h"
#include "launch/slurm.h"

#define READ_LIMIT    60.0 /* time limit in seconds for the line on standard input */
#define CONNECT_LIMIT 10.0 /* time limit in seconds for a connection to one address */

extern char **environ;

/* Reads the line byte by byte, so that nothing after it is consumed. */
static Err read_meeting(SlurmMeeting *meeting) {
  char line[SLURM_LINE_MAX];
  size_t len = 0;
  double limit = progress_clock() + READ_LIMIT;
  while (len < sizeof line - 1) {
    struct pollfd fd = {STDIN_FILENO, POLLIN, 0};
    int ready = poll(&fd, 1, 1000);
    if (ready < 0 && errno != EINTR) return err_errno("cannot read", "standard input");
    if (progress_clock() > limit)
      return err_set(ERR_WORK,
                     "nothing arrived on standard input within %.0f s: srun does not forward "
                     "it; check the log of slurmd on this node",
                     READ_LIMIT);
    if (ready <= 0) continue;
    if (read(STDIN_FILENO, line + len, 1) != 1 || line[len] == '\n') break;
    len++;
  }
  line[len] = '\0';
  Err err = slurm_parse_meeting(meeting, line);
  explicit_bzero(line, sizeof line);
  return err;
}

/* Connects within CONNECT_LIMIT; returns -1 with errno on failure. */
static int connect_to(const char *address, int port) {
  struct sockaddr_storage to = {0};
  struct sockaddr_in *v4 = (void *)&to;
  struct sockaddr_in6 *v6 = (void *)&to;
  bool is_v6 = strchr(address, ':') != NULL;
  to.ss_family = is_v6 ? AF_INET6 : AF_INET;
  if (is_v6)
    v6->sin6_port = htons((uint16_t)port);
  else
    v4->sin_port = htons((uint16_t)port);
  inet_pton(to.ss_family, address, is_v6 ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr);
  int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int error = 0;
  socklen_t len = sizeof error;
  struct pollfd ready = {fd, POLLOUT, 0};
  bool is_on_its_way =
      connect(fd, (struct sockaddr *)&to, is_v6 ? sizeof *v6 : sizeof *v4) == 0 ||
      errno == EINPROGRESS;
  if (!is_on_its_way)
    error = errno;
  else if (poll(&ready, 1, (int)(CONNECT_LIMIT * 1000)) != 1)
    error = ETIMEDOUT;
  else
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
  if (!error) return fd;
  close(fd);
  errno = error;
  return -1;
}

/* Waits until the head is authenticated. */
static Err prove_head(Channel *head) {
  while (!channel_is_proven(head)) {
    struct pollfd fds[2];
    int count;
    channel_events(head, fds, &count);
    poll(fds, (nfds_t)count, channel_wait_ms(head));
    TRY(channel_advance(head));
  }
  return ERR_OK;
}

static Err open_channel(const SlurmMeeting *m, const char *address, Channel **head) {
  int fd = connect_to(address, m->port);
  if (fd < 0) return err_set(ERR_WORK, "%s port %d: %s", address, m->port, strerror(errno));
  TRY(channel_open_secure(head, fd, &m->key, HANDSHAKE_CLIENT, "the head"));
  Err err = prove_head(*head);
  if (!err) return ERR_OK;
  err = err_context("%s port %d", address, m->port);
  channel_close(*head);
  *head = NULL;
  return err;
}

/* Connects to the head: tries the address from which srun was started, then those that the head
 * listed. */
static Err meet_head(const SlurmMeeting *m, Channel **head) {
  Str failures = {0};
  const char *hint = getenv("SLURM_LAUNCH_NODE_IPADDR");
  struct in_addr parsed;
  bool has_hint = hint && inet_pton(AF_INET, hint, &parsed) == 1;
  for (int i = has_hint ? -1 : 0; i < m->addresses; i++) {
    if (open_channel(m, i < 0 ? hint : m->address[i], head) == ERR_OK) {
      str_free(&failures);
      return ERR_OK;
    }
    str_addf(&failures, "%s%s", failures.len ? "; " : "", err_message());
  }
  Err err =
      err_set(ERR_WORK,
              "this node cannot reach the head of the launch (%s); the nodes must be able to "
              "connect to each other and to the machine of 'trireme launch'",
              str_text(&failures));
  str_free(&failures);
  return err;
}

/* Removes srun's environment variables: Open MPI would regard the job step as its allocation
 * and start its daemons with srun. SLURM_JOB_ID is kept, to show the job of a process. */
static Err clear_environment(void) {
  for (char **at = environ; *at;) {
    char name[256];
    size_t len = strcspn(*at, "=");
    bool is_slurm = str_starts(*at, "SLURM") || str_starts(*at, "PMI");
    if (!is_slurm || str_starts(*at, "SLURM_JOB_ID=") || len >= sizeof name) {
      at++;
      continue;
    }
    snprintf(name, sizeof name, "%.*s", (int)len, *at);
    if (unsetenv(name) != 0) return err_errno("cannot remove the variable", name);
    at = environ; /* unsetenv moves the other entries, so start again */
  }
  return ERR_OK;
}

Err slurm_run_agent(void) {
  SlurmMeeting meeting;
  Channel *head = NULL;
  char name[256];
  const char *node_name = getenv("SLURMD_NODENAME");
  const char *node = getenv("SLURM_NODEID");
  if (!node_name || !node)
    return err_set(ERR_USAGE,
                   "--agent-slurm is for tasks of srun, which trireme launch starts");
  log_quiet(true);
  signal(SIGHUP, SIG_IGN); /* the head started this agent and decides when it ends */
  snprintf(name, sizeof name, "%s", node_name);
  int number = atoi(node);
  Err err = read_meeting(&meeting);
  if (!err) err = meet_head(&meeting, &head);
  key_wipe(&meeting.key);
  if (!err) err = clear_environment();
  if (!err)
    err = protocol_send(head, MSG_SLURM_NODE,
                        json_pack("{s:i, s:s}", "node", number, "name", name));
  if (!err) return agent_run(head, name, AGENT_OF_SRUN);
  ErrRecord why = err_copy();
  channel_close(head);
  return err_give(&why);
}
