/* Runs one command with pipes to its standard streams; uses poll. Depends on base. */
#include "launch/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/stop.h"

#define POLL_MS 200 /* milliseconds between two checks for a request to stop */

extern char **environ;

enum { IN, OUT, ERROR, STREAMS };

/* The running command. `fd` are this process's ends of the pipes; -1: closed. */
typedef struct {
  pid_t pid;
  int fd[STREAMS];
  size_t sent;
  Str line[STREAMS]; /* incomplete line of standard output and of standard error */
} Child;

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* Creates the pipes; theirs[] are the command's ends. */
static Err open_pipes(Child *c, int theirs[STREAMS]) {
  for (int i = 0; i < STREAMS; i++) {
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC)) return err_errno("cannot make", "a pipe");
    c->fd[i] = pipe_fd[i == IN ? 1 : 0];
    theirs[i] = pipe_fd[i == IN ? 0 : 1];
    fcntl(c->fd[i], F_SETFL, O_NONBLOCK);
  }
  return ERR_OK;
}

/* Resets signals for the command, because threads of this program block signals and main()
 * ignores some. */
static int set_signals(posix_spawnattr_t *attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &all);
  return posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static Err start_child(Child *c, const char *const *argv) {
  int theirs[STREAMS] = {-1, -1, -1};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  Err err = open_pipes(c, theirs);
  if (!err) {
    for (int i = 0; i < STREAMS; i++) posix_spawn_file_actions_adddup2(&actions, theirs[i], i);
    set_signals(&attributes);
    errno = posix_spawnp(&c->pid, argv[0], &actions, &attributes,
                         (char *const *)(uintptr_t)argv, environ);
    if (errno) err = err_errno("cannot start", argv[0]);
  }
  for (int i = 0; i < STREAMS; i++) close_fd(&theirs[i]);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return err;
}

/* Writes to the command's input. A command that exits without reading its input is not an
 * error: its exit status counts. */
static void write_input(Child *c, const Session *s) {
  ssize_t n = write(c->fd[IN], s->input + c->sent, s->input_len - c->sent);
  if (n > 0) c->sent += (size_t)n;
  bool is_broken = n < 0 && errno != EAGAIN && errno != EINTR;
  if (is_broken || (c->sent == s->input_len && !s->has_open_input)) close_fd(&c->fd[IN]);
}

static void pass_lines(Child *c, const Session *s, int stream, const char *bytes, size_t len) {
  Str *line = &c->line[stream];
  for (size_t i = 0; i < len; i++) {
    if (bytes[i] != '\n') {
      if (line->len < SESSION_OUTPUT_MAX) str_addc(line, bytes[i]);
      continue;
    }
    s->on_line(s->argument, stream, str_text(line));
    str_clear(line);
  }
}

static void read_output(Child *c, const Session *s, int stream, Str *kept) {
  char buffer[16384];
  ssize_t n = read(c->fd[stream], buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    close_fd(&c->fd[stream]);
    return;
  }
  size_t len = (size_t)n;
  if (s->on_line) {
    pass_lines(c, s, stream, buffer, len);
  } else {
    size_t room = SESSION_OUTPUT_MAX - kept->len;
    str_addn(kept, buffer, len < room ? len : room);
  }
}

/* Transfers bytes until the command has closed both outputs. */
static bool move_bytes(Child *c, const Session *s, SessionEnd *end) {
  bool is_stopped = false;
  while (c->fd[OUT] >= 0 || c->fd[ERROR] >= 0) {
    bool has_more = c->sent < s->input_len;
    struct pollfd p[STREAMS] = {{.fd = has_more ? c->fd[IN] : -1, .events = POLLOUT},
                                {.fd = c->fd[OUT], .events = POLLIN},
                                {.fd = c->fd[ERROR], .events = POLLIN}};
    if (!is_stopped && stop_asked()) {
      is_stopped = true;
      close_fd(&c->fd[IN]);
      kill(c->pid, SIGTERM);
    }
    if (poll(p, STREAMS, POLL_MS) <= 0) continue;
    if (p[IN].revents && c->fd[IN] >= 0) write_input(c, s);
    if (p[OUT].revents) read_output(c, s, OUT, &end->out);
    if (p[ERROR].revents) read_output(c, s, ERROR, &end->err);
  }
  return is_stopped;
}

Err session_run(const Session *s, SessionEnd *end) {
  Child c = {.fd = {-1, -1, -1}};
  *end = (SessionEnd){0};
  Err err = start_child(&c, s->argv);
  if (err) goto done;
  if (s->input_len == 0 && !s->has_open_input) close_fd(&c.fd[IN]);
  bool is_stopped = move_bytes(&c, s, end);
  close_fd(&c.fd[IN]);
  int status = 0;
  while (waitpid(c.pid, &status, 0) < 0 && errno == EINTR) continue;
  end->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  for (int i = OUT; i <= ERROR; i++) {
    if (c.line[i].len) s->on_line(s->argument, i, str_text(&c.line[i]));
  }
  if (is_stopped) err = err_set(ERR_STOPPED, "stopped by a signal");
  if (!err) err = str_check(&end->out);
  if (!err) err = str_check(&end->err);
done:
  for (int i = 0; i < STREAMS; i++) {
    close_fd(&c.fd[i]);
    str_free(&c.line[i]);
  }
  return err;
}

void session_free(SessionEnd *end) {
  str_free(&end->out);
  str_free(&end->err);
}
