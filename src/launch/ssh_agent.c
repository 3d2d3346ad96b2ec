/* Starts an agent through ssh, in two steps: `ssh -G` shows whether the user has turned
 * host-key checking off; then ssh runs the agent, whose messages begin after its greeting line.
 * Depends on ssh.h, process, base. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "launch/process.h"
#include "launch/ssh.h"

#define START_LIMIT 40.0 /* time limit in seconds for the agent's greeting */
/* Largest number of bytes that start-up files may print before the greeting. */
#define NOISE_LIMIT 65536
#define SAID_LIMIT  8192 /* bytes of standard error that are stored */

static const char greeting[] = "trireme-agent ";

typedef enum { STEP_SETTINGS, STEP_AGENT, STEP_READY, STEP_FAILED } Step;

struct SshAgent {
  const Host *host;
  const SshOptions *options;
  Step step;
  pid_t pid; /* process of ssh; 0: none */
  int in, out, err;
  double deadline;
  Str printed; /* output of ssh -G (STEP_SETTINGS), or the line being read (STEP_AGENT) */
  size_t noise;
  Str said;     /* the last bytes of standard error */
  size_t shown; /* bytes of `said` that have been shown to the user */
  SshFailure failure;
  ErrRecord error;
};

static SshState fail_agent(SshAgent *a, SshFailure failure, const char *said) {
  a->failure = failure;
  a->error = err_take(ssh_explain(failure, a->host, a->options, said));
  a->step = STEP_FAILED;
  return SSH_FAILED;
}

static SshState fail_with_error(SshAgent *a, Err err) {
  a->error = err_take(err);
  a->step = STEP_FAILED;
  return SSH_FAILED;
}

static Err make_pipes(int ends[3][2]) {
  for (int i = 0; i < 3; i++) ends[i][0] = ends[i][1] = -1;
  for (int i = 0; i < 3; i++)
    if (pipe2(ends[i], O_CLOEXEC) != 0) return err_errno("cannot create a pipe for", "ssh");
  return ERR_OK;
}

/* Starts ssh with pipes to its standard input, output and error. */
static Err start_call(SshAgent *a, SshCall *call) {
  int ends[3][2];
  Err err = make_pipes(ends);
  ProcessSpec spec = {
      .argv = call->word, .in = ends[0][0], .out = ends[1][1], .err = ends[2][1]};
  if (!err) err = process_start(&spec, &a->pid);
  if (err) {
    a->pid = 0;
    for (int i = 0; i < 6; i++) process_close(&ends[i / 2][i % 2]);
    return err;
  }
  process_close(&ends[0][0]);
  process_close(&ends[1][1]);
  process_close(&ends[2][1]);
  a->in = ends[0][1];
  a->out = ends[1][0];
  a->err = ends[2][0];
  fcntl(a->out, F_SETFL, O_NONBLOCK);
  fcntl(a->err, F_SETFL, O_NONBLOCK);
  return ERR_OK;
}

Err ssh_agent_start(SshAgent **agent, const Host *host, const SshOptions *options, double now) {
  SshCall call;
  *agent = NULL;
  TRY(mem_alloc(agent, 1, sizeof **agent));
  SshAgent *a = *agent;
  *a = (SshAgent){.host = host, .options = options, .in = -1, .out = -1, .err = -1};
  a->deadline = now + START_LIMIT;
  Err err = ssh_call_settings(&call, host, options);
  if (!err) err = start_call(a, &call);
  ssh_call_free(&call);
  if (!err) {
    process_close(&a->in);
    return ERR_OK;
  }
  err = err_context("host %s", host->name);
  ssh_agent_close(a);
  *agent = NULL;
  return err;
}

int ssh_agent_poll_for(const SshAgent *a, struct pollfd fds[2]) {
  int count = 0;
  bool reads_output = a->step == STEP_SETTINGS || a->step == STEP_AGENT;
  if (a->out >= 0 && reads_output) fds[count++] = (struct pollfd){a->out, POLLIN, 0};
  if (a->err >= 0) fds[count++] = (struct pollfd){a->err, POLLIN, 0};
  return count;
}

/* Reads standard error and keeps the last SAID_LIMIT bytes. Closes the descriptor at the
 * end. */
static void read_said(SshAgent *a) {
  char bytes[4096];
  ssize_t n;
  while (a->err >= 0 && (n = read(a->err, bytes, sizeof bytes)) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    str_addn(&a->said, bytes, (size_t)n);
    if (a->said.failed || a->said.len <= SAID_LIMIT) continue;
    size_t drop = a->said.len - SAID_LIMIT;
    memmove(a->said.s, a->said.s + drop, SAID_LIMIT + 1);
    a->said.len = SAID_LIMIT;
    a->shown = a->shown > drop ? a->shown - drop : 0;
  }
  process_close(&a->err);
}

/* Gets the exit status of ssh after its output has ended. Returns false if ssh has not exited
 * yet. */
static bool reap_call(SshAgent *a, int *exit_status) {
  int status;
  pid_t pid = waitpid(a->pid, &status, WNOHANG);
  if (pid == 0) return false;
  *exit_status = pid == a->pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  a->pid = 0;
  return true;
}

static Err start_remote_agent(SshAgent *a, bool must_check) {
  char own[FILE_PATH_MAX];
  const char *command = a->options->command ? a->options->command : "launch";
  const char *const remote[] = {"exec", ssh_program(a->options, own), command, "--agent", NULL};
  SshCall call;
  Err err = ssh_call_command(&call, a->host, a->options, remote, must_check);
  if (!err) err = start_call(a, &call);
  ssh_call_free(&call);
  return err;
}

/* Reads the output of `ssh -G` to its end, then starts the agent. */
static SshState read_settings(SshAgent *a) {
  char bytes[4096];
  ssize_t n;
  int exit_status;
  while (a->out >= 0 && (n = read(a->out, bytes, sizeof bytes)) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SSH_STARTING;
    if (a->printed.len < NOISE_LIMIT) str_addn(&a->printed, bytes, (size_t)n);
  }
  process_close(&a->out);
  if (!reap_call(a, &exit_status)) return SSH_STARTING;
  if (exit_status != 0) return fail_agent(a, SSH_OTHER, str_text(&a->said));
  Err err = str_check(&a->printed);
  bool must_check = !err && ssh_is_check_off(str_text(&a->printed));
  str_clear(&a->printed);
  str_clear(&a->said);
  process_close(&a->err);
  a->step = STEP_AGENT;
  if (!err) err = start_remote_agent(a, must_check);
  return err ? fail_with_error(a, err) : SSH_STARTING;
}

/* Checks a complete line of the agent's output for the greeting. */
static SshState read_line(SshAgent *a) {
  const char *line = str_text(&a->printed);
  const char *version = strstr(line, greeting);
  if (version && strcmp(version + sizeof greeting - 1, TRIREME_VERSION) == 0) {
    a->step = STEP_READY;
    return SSH_READY;
  }
  if (version) return fail_agent(a, SSH_OTHER_VERSION, version);
  str_clear(&a->printed);
  return SSH_STARTING;
}

/* Reads byte by byte to the end of the greeting, because the bytes after it belong to the
 * channel. */
static SshState read_greeting(SshAgent *a) {
  char c;
  ssize_t n;
  int exit_status;
  while (a->out >= 0 && (n = read(a->out, &c, 1)) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SSH_STARTING;
    if (++a->noise > NOISE_LIMIT)
      return fail_agent(a, SSH_OTHER, "its start-up files print without end");
    if (c == '\r' || c == '\0') continue;
    if (c != '\n') {
      str_addc(&a->printed, c);
      continue;
    }
    SshState state = read_line(a);
    if (state != SSH_STARTING) return state;
  }
  process_close(&a->out);
  if (!reap_call(a, &exit_status)) return SSH_STARTING;
  read_said(a);
  return fail_agent(a, ssh_judge(exit_status, str_text(&a->said)), str_text(&a->said));
}

SshState ssh_agent_advance(SshAgent *a, double now) {
  read_said(a);
  SshState state = SSH_FAILED;
  if (a->step == STEP_SETTINGS) state = read_settings(a);
  if (a->step == STEP_AGENT) state = read_greeting(a);
  if (a->step == STEP_READY) state = SSH_READY;
  if (state == SSH_STARTING && now > a->deadline)
    state = fail_agent(a, SSH_HANGS, "no agent within 40 s");
  if (state == SSH_FAILED) err_give(&a->error);
  return state;
}

SshFailure ssh_agent_failure(const SshAgent *a) {
  return a->failure;
}

void ssh_agent_take(SshAgent *a, int *from_agent, int *to_agent) {
  *from_agent = a->out;
  *to_agent = a->in;
  a->out = -1;
  a->in = -1;
}

void ssh_agent_take_lines(SshAgent *a, Str *lines) {
  const char *said = str_text(&a->said);
  const char *last = memrchr(said, '\n', a->said.len);
  size_t end = last ? (size_t)(last - said) + 1 : 0;
  if (end <= a->shown) return;
  str_addn(lines, said + a->shown, end - a->shown);
  a->shown = end;
}

bool ssh_agent_has_ended(SshAgent *a) {
  int exit_status;
  read_said(a); /* read standard error, so that ssh does not block on a full pipe */
  return !a->pid || reap_call(a, &exit_status);
}

void ssh_agent_close(SshAgent *a) {
  if (!a) return;
  if (a->pid) {
    kill(a->pid, SIGKILL);
    waitpid(a->pid, NULL, 0);
  }
  process_close(&a->in);
  process_close(&a->out);
  process_close(&a->err);
  str_free(&a->printed);
  str_free(&a->said);
  mem_free(a);
}

Err ssh_greet(int fd) {
  char line[64];
  int len = snprintf(line, sizeof line, "%s" TRIREME_VERSION "\n", greeting);
  if (write(fd, line, (size_t)len) == len) return ERR_OK;
  return err_errno("cannot write to", "standard output");
}
