/* The agent's Unix socket, to which `launch --worker` and `launch --rsh` connect. Only processes of
 * the same user are accepted. Depends on channel, protocol. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "launch/agent_internal.h"
#include "launch/process.h"

#define STUBS_MAX (2 * AGENT_PROCESSES_MAX)
/* Seconds for which no stub is accepted after the process ran out of file descriptors. */
#define ACCEPT_PAUSE 0.2

Err agent_listen(Agent *a) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char path[FILE_PATH_MAX];
  TRY(file_join(path, a->dir.path, "agent"));
  if (strlen(path) >= sizeof address.sun_path)
    return err_set(ERR_WORK, "%s is too long for a Unix socket; set TMPDIR to a shorter path",
                   path);
  memcpy(address.sun_path, path, strlen(path) + 1);
  a->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (a->listener < 0 || bind(a->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
      listen(a->listener, SOMAXCONN) != 0)
    return err_errno("cannot listen on", path);
  return ERR_OK;
}

static bool is_own_user(int fd) {
  struct ucred peer;
  socklen_t len = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

/* Handles a failure of accept4 (errno). A connection that cannot be accepted stays in the
 * kernel's queue, where it would wake poll again and again, so it is tried again after a
 * pause. */
static void judge_accept(Agent *a, double now) {
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
  bool is_limited = errno == EMFILE || errno == ENFILE;
  if (a->accept_at <= 0)
    log_warn("%s: cannot accept the connection of a rank: %s; %sstart fewer ranks", a->host,
             strerror(errno),
             is_limited ? "raise the limit of open files (ulimit -n) or " : "");
  a->accept_at = now + ACCEPT_PAUSE;
}

static Err accept_stubs(Agent *a, double now) {
  while (now >= a->accept_at && a->listener >= 0) {
    int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
      judge_accept(a, now);
      return ERR_OK;
    }
    if (!is_own_user(fd) || a->stubs >= STUBS_MAX) {
      close(fd);
      continue;
    }
    AgentStub stub = {0};
    Err err = mem_grow(&a->stub, &a->stub_capacity, a->stubs + 1, sizeof *a->stub);
    if (err) close(fd);
    TRY(err);
    TRY(channel_open(&stub.channel, fd, fd, "a launch stub"));
    a->stub[a->stubs++] = stub;
  }
  return ERR_OK;
}

/* Returns the integer value of a variable in an environment of NUL-terminated strings; -1 if it
 * is not set. */
static int64_t find_number(const char *env, size_t len, const char *name) {
  size_t want = strlen(name);
  for (size_t at = 0; at < len;) {
    size_t n = strnlen(env + at, len - at);
    if (n == len - at) return -1; /* the last string is not terminated */
    if (n > want && env[at + want] == '=' && strncmp(env + at, name, want) == 0) {
      char *end;
      long long value = strtoll(env + at + want + 1, &end, 10);
      return *end ? -1 : value;
    }
    at += n + 1;
  }
  return -1;
}

static Err start_for_stub(Agent *a, AgentStub *s, const Frame *f) {
  const char *env = (const char *)f->data;
  int64_t rank = find_number(env, f->len, "OMPI_COMM_WORLD_RANK");
  int64_t first = protocol_int(a->begin, "first_rank", 0);
  /* The generation of this stub has ended. */
  if (!a->generation || a->kill_since > 0) return ERR_OK;
  if (s->worker || rank < first || rank >= first + protocol_int(a->begin, "local_size", 1)) {
    err_set(ERR_WORK,
            "%s: mpirun started rank %lld here, but ranks %lld to %lld belong to this machine; "
            "is a "
            "machine listed twice?",
            a->host, (long long)rank, (long long)first,
            (long long)(first + protocol_int(a->begin, "local_size", 1) - 1));
    return agent_report_failure(a);
  }
  Err err = agent_start_worker(a, (uint32_t)rank, env, f->len, &s->worker);
  if (!err && a->is_stopping) kill(s->worker, SIGUSR1);
  return err ? agent_report_failure(a) : ERR_OK;
}

static Err pass_rsh_on(Agent *a, AgentStub *s, const Frame *f) {
  json_t *body;
  if (!a->generation || a->kill_since > 0 || s->rsh) return ERR_OK;
  TRY(protocol_parse(f, "a launch stub", &body));
  s->rsh = ++a->last_rsh;
  json_object_set_new(body, "generation", json_integer((json_int_t)a->generation));
  json_object_set_new(body, "id", json_integer(s->rsh));
  return protocol_send(a->head, MSG_RSH, body);
}

static Err handle_frame(Agent *a, AgentStub *s, const Frame *f) {
  if (f->type == STUB_WORKER) return start_for_stub(a, s, f);
  if (f->type == STUB_RSH) return pass_rsh_on(a, s, f);
  return ERR_OK;
}

/* Called when mpirun has killed the stub of a running worker, which means that MPI wants the
 * worker to end. The worker is killed only after ABANDONED_TIME, so that the head receives the
 * original error first. */
static void abandon_worker(Agent *a, const AgentStub *s, double now) {
  for (size_t i = 0; i < a->processes; i++)
    if (s->worker && a->process[i].pid == s->worker) a->process[i].abandoned = now;
}

Err agent_serve_stubs(Agent *a, double now) {
  TRY(accept_stubs(a, now));
  for (size_t i = 0; i < a->stubs;) {
    AgentStub *s = &a->stub[i];
    bool is_closed = channel_advance(s->channel) != ERR_OK;
    for (Frame f; channel_next(s->channel, &f);) TRY(handle_frame(a, s, &f));
    if (!is_closed) {
      i++;
      continue;
    }
    abandon_worker(a, s, now);
    channel_close(s->channel);
    *s = a->stub[--a->stubs];
  }
  return ERR_OK;
}

void agent_end_stub(Agent *a, pid_t worker, int64_t rsh, int status) {
  for (size_t i = 0; i < a->stubs; i++) {
    AgentStub *s = &a->stub[i];
    if (!(worker && s->worker == worker) && !(rsh && s->rsh == rsh)) continue;
    s->worker = 0;
    /* sending fails if the stub has exited, which is not an error */
    if (protocol_send(s->channel, STUB_END, json_pack("{s:i}", "status", status)) ||
        channel_advance(s->channel))
      s->rsh = 0;
  }
}

void agent_close_stubs(Agent *a) {
  for (size_t i = 0; i < a->stubs; i++) channel_close(a->stub[i].channel);
  a->stubs = 0;
}
