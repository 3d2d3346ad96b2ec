/* Runs one command with pipes to its standard streams; uses poll. Depends on base,
 * process. */
#include "launch/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/progress.h"
#include "base/stop.h"
#include "launch/process.h"

#define POLL_MS    200 /* milliseconds between two checks for a request to stop */
#define REAP_MS    10  /* milliseconds between two checks whether the command has ended */
#define KILL_AFTER 2.0 /* seconds from SIGTERM to SIGKILL */

enum { IN, OUT, ERROR, STREAMS };

/* The running command. `fd` are this process's ends of the pipes; -1: closed. */
typedef struct {
  pid_t pid;
  int fd[STREAMS];
  size_t sent;
  bool has_activity; /* a byte was sent or received since the last look at the clock */
  double active;     /* time of the start, then of the last byte after the beginning */
  double terminated; /* time of SIGTERM; 0: not sent */
  size_t printed;    /* bytes of output that were read */
  Str line[STREAMS]; /* incomplete line of standard output and of standard error */
} Child;

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

static Err start_child(Child *c, const char *const *argv) {
  int theirs[STREAMS] = {-1, -1, -1};
  Err err = open_pipes(c, theirs);
  ProcessSpec spec = {.argv = (char *const *)(uintptr_t)argv,
                      .in = theirs[IN],
                      .out = theirs[OUT],
                      .err = theirs[ERROR]};
  if (!err) err = process_start(&spec, &c->pid);
  for (int i = 0; i < STREAMS; i++) process_close(&theirs[i]);
  return err;
}

/* Writes to the command's input. A command that exits without reading its input is not an
 * error: its exit status counts. */
static void write_input(Child *c, const Session *s) {
  ssize_t n = write(c->fd[IN], s->input + c->sent, s->input_len - c->sent);
  if (n > 0) {
    c->sent += (size_t)n;
    c->has_activity = true;
  }
  bool is_broken = n < 0 && errno != EAGAIN && errno != EINTR;
  if (is_broken || (c->sent == s->input_len && !s->has_open_input)) process_close(&c->fd[IN]);
}

/* Start-up files may print text without a line break before the line `begin`. */
static bool is_begin(const Session *s, int stream, const char *line) {
  if (!s->begin || stream != OUT) return false;
  size_t len = strlen(line), expected = strlen(s->begin);
  return len >= expected && strcmp(line + len - expected, s->begin) == 0;
}

static void pass_line(const Session *s, SessionEnd *end, int stream, const char *line) {
  if (!end->has_begun && is_begin(s, stream, line))
    end->has_begun = true;
  else
    s->on_line(s->argument, stream, line);
}

static void pass_lines(Child *c, const Session *s, SessionEnd *end, int stream,
                       const char *bytes, size_t len) {
  Str *line = &c->line[stream];
  for (size_t i = 0; i < len; i++) {
    if (bytes[i] != '\n') {
      if (line->len < SESSION_OUTPUT_MAX) str_addc(line, bytes[i]);
      continue;
    }
    /* ssh ends its own messages with a carriage return and a line feed. */
    if (line->len && line->s[line->len - 1] == '\r') line->s[--line->len] = '\0';
    pass_line(s, end, stream, str_text(line));
    str_clear(line);
  }
}

static void read_output(Child *c, const Session *s, SessionEnd *end, int stream) {
  char buffer[16384];
  ssize_t n = read(c->fd[stream], buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    process_close(&c->fd[stream]);
    return;
  }
  size_t len = (size_t)n;
  c->has_activity = true;
  c->printed += len;
  if (!s->begin || !s->on_line) end->has_begun = true;
  if (s->on_line) {
    pass_lines(c, s, end, stream, buffer, len);
  } else {
    Str *kept = stream == OUT ? &end->out : &end->err;
    size_t room = SESSION_OUTPUT_MAX - kept->len;
    str_addn(kept, buffer, len < room ? len : room);
  }
}

/* Returns true if the time limit has been reached. */
static bool is_over_limit(Child *c, const Session *s, const SessionEnd *end, double now) {
  if (c->has_activity && end->has_begun) c->active = now;
  c->has_activity = false;
  if (s->limit <= 0 || (end->has_begun && s->may_pause)) return false;
  return now - c->active > s->limit;
}

/* Ends the command after a request to stop or at a limit: closes its input and sends
 * SIGTERM, later SIGKILL. Returns false when its output need not be read any more: a process that
 * the command left behind may keep it open. */
static bool watch_child(Child *c, const Session *s, SessionEnd *end, bool *is_stopped) {
  double now = progress_clock();
  if (c->terminated > 0) {
    if (now - c->terminated < KILL_AFTER) return true;
    kill(c->pid, SIGKILL);
    return false;
  }
  *is_stopped = stop_asked();
  end->is_too_long = !*is_stopped && s->output_limit && c->printed > s->output_limit;
  end->is_timed_out = !*is_stopped && !end->is_too_long && is_over_limit(c, s, end, now);
  if (*is_stopped || end->is_too_long || end->is_timed_out) {
    c->terminated = now;
    process_close(&c->fd[IN]);
    kill(c->pid, SIGTERM);
  }
  return true;
}

/* Transfers bytes until the command has closed both outputs or was ended. */
static void move_bytes(Child *c, const Session *s, SessionEnd *end, bool *is_stopped) {
  c->active = progress_clock();
  while ((c->fd[OUT] >= 0 || c->fd[ERROR] >= 0) && watch_child(c, s, end, is_stopped)) {
    bool has_more = c->sent < s->input_len;
    struct pollfd p[STREAMS] = {{.fd = has_more ? c->fd[IN] : -1, .events = POLLOUT},
                                {.fd = c->fd[OUT], .events = POLLIN},
                                {.fd = c->fd[ERROR], .events = POLLIN}};
    if (poll(p, STREAMS, POLL_MS) <= 0) continue;
    if (p[IN].revents && c->fd[IN] >= 0) write_input(c, s);
    if (p[OUT].revents) read_output(c, s, end, OUT);
    if (p[ERROR].revents) read_output(c, s, end, ERROR);
  }
}

/* Waits for the end of the command and returns its wait status. A command that has closed its
 * outputs may still run for ever, so the limits count here too. */
static int await_child(Child *c, const Session *s, SessionEnd *end, bool *is_stopped) {
  int status = 0;
  process_close(&c->fd[IN]);
  for (;;) {
    pid_t ended = waitpid(c->pid, &status, WNOHANG);
    if (ended != 0 && !(ended < 0 && errno == EINTR)) return status;
    watch_child(c, s, end, is_stopped);
    poll(NULL, 0, REAP_MS);
  }
}

Err session_run(const Session *s, SessionEnd *end) {
  Child c = {.fd = {-1, -1, -1}};
  *end = (SessionEnd){0};
  Err err = start_child(&c, s->argv);
  if (err) goto done;
  if (s->input_len == 0 && !s->has_open_input) process_close(&c.fd[IN]);
  bool is_stopped = false;
  move_bytes(&c, s, end, &is_stopped);
  int status = await_child(&c, s, end, &is_stopped);
  end->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  for (int i = OUT; i <= ERROR; i++) {
    if (c.line[i].len) pass_line(s, end, i, str_text(&c.line[i]));
  }
  if (is_stopped) err = err_set(ERR_STOPPED, "stopped by a signal");
  if (!err) err = str_check(&end->out);
  if (!err) err = str_check(&end->err);
done:
  for (int i = 0; i < STREAMS; i++) {
    process_close(&c.fd[i]);
    str_free(&c.line[i]);
  }
  return err;
}

void session_free(SessionEnd *end) {
  str_free(&end->out);
  str_free(&end->err);
}
