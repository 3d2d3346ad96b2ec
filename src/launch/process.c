/* Starts processes, adopts orphans and kills children. Depends on base, Linux (prctl,
 * /proc). */
#include "launch/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void process_close(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* Size of a buffer for the text of a failure; below PIPE_BUF, so the write is atomic. */
#define FAILURE_MAX 1024

/* Sets all signals to their defaults, but ignores SIGHUP: a closing terminal may send it to all
 * processes of the session, and only the head may react, by asking the ranks to save and stop. */
static void reset_signals(bool blocks_stops) {
  sigset_t blocked;
  /* Fails for SIGKILL and SIGSTOP, which cannot be changed. */
  for (int s = 1; s < NSIG; s++) signal(s, s == SIGHUP ? SIG_IGN : SIG_DFL);
  sigemptyset(&blocked);
  if (blocks_stops) {
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGUSR1);
  }
  sigprocmask(SIG_SETMASK, &blocked, NULL);
}

/* Duplicates `fd` to descriptor `target`; -1 stands for /dev/null. */
static bool place_descriptor(int fd, int target) {
  int from = fd >= 0 ? fd : open("/dev/null", O_RDWR | O_CLOEXEC);
  if (from < 0) return false;
  /* dup2 with equal descriptors would keep O_CLOEXEC. */
  if (from == target) return fcntl(from, F_SETFD, 0) == 0;
  return dup2(from, target) == target;
}

static bool place_descriptors(const ProcessSpec *spec) {
  return place_descriptor(spec->in, 0) && place_descriptor(spec->out, 1) &&
         place_descriptor(spec->err, 2) &&
         (spec->event <= 0 || place_descriptor(spec->event, PROCESS_EVENT_FD));
}

/* Runs in the child after fork; returns the name of the call that failed, with errno set. */
static const char *become_program(const ProcessSpec *spec, pid_t parent) {
  if (setpgid(0, 0) != 0) return "setpgid";
  if (!spec->outlives) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return "prctl";
    if (getppid() != parent) raise(SIGKILL); /* the parent has ended before prctl was called */
  }
  reset_signals(spec->blocks_stops);
  if (spec->dir && chdir(spec->dir) != 0) return "chdir";
  if (spec->cores && sched_setaffinity(0, sizeof *spec->cores, spec->cores) != 0)
    return "sched_setaffinity";
  if (!place_descriptors(spec)) return "dup2";
  if (spec->env)
    execvpe(spec->argv[0], spec->argv, spec->env);
  else
    execvp(spec->argv[0], spec->argv);
  return "exec";
}

/* Writes why the child cannot execute the program: the call `what` failed with errno. */
static int explain_failure(char text[FAILURE_MAX], const ProcessSpec *spec, const char *what) {
  const char *program = spec->argv[0];
  const char *why = strerror(errno);
  if (strcmp(what, "chdir") == 0)
    return snprintf(text, FAILURE_MAX,
                    "cannot enter the working directory %s: %s; it must exist on every machine",
                    spec->dir, why);
  if (strcmp(what, "exec") == 0 && strcmp(program, "mpirun") == 0)
    return snprintf(text, FAILURE_MAX,
                    "cannot start mpirun: %s; install Open MPI (openmpi-bin), or run one rank",
                    why);
  if (strcmp(what, "exec") == 0 && strcmp(program, "ssh") == 0)
    return snprintf(text, FAILURE_MAX,
                    "cannot start ssh: %s; install the ssh client (openssh-client)", why);
  if (strcmp(what, "exec") == 0)
    return snprintf(text, FAILURE_MAX, "cannot start %s: %s", program, why);
  return snprintf(text, FAILURE_MAX, "cannot start %s: %s: %s", program, what, why);
}

/* Runs in the child: sends the reason of a failure to the parent through the pipe. */
static void report_failure(int fd, const ProcessSpec *spec, const char *what) {
  char text[FAILURE_MAX];
  int len = explain_failure(text, spec, what);
  if (len >= FAILURE_MAX) len = FAILURE_MAX - 1;
  ssize_t written = write(fd, text, (size_t)len);
  (void)written; /* the write fails only if the parent has ended */
}

/* Sets the error of a fork that failed (errno). */
static Err explain_fork(const char *program) {
  bool is_limited = errno == EAGAIN;
  Err err = err_errno("cannot fork for", program);
  if (!is_limited) return err;
  ErrRecord why = err_take(err);
  return err_set(ERR_WORK, "%s; raise the limit of processes and threads (ulimit -u)",
                 why.text);
}

Err process_begin(const ProcessSpec *spec, pid_t *pid, int *start) {
  int report[2];
  pid_t parent = getpid();
  *start = -1;
  if (pipe2(report, O_CLOEXEC) != 0)
    return err_errno("cannot create a pipe for", spec->argv[0]);
  /* A descriptor above 3, which place_descriptors does not overwrite. */
  int write_end = fcntl(report[1], F_DUPFD_CLOEXEC, PROCESS_EVENT_FD + 1);
  close(report[1]);
  *pid = write_end < 0 ? -1 : fork();
  if (*pid == 0) {
    report_failure(write_end, spec, become_program(spec, parent));
    _exit(127);
  }
  Err err = *pid < 0 ? explain_fork(spec->argv[0]) : ERR_OK;
  process_close(&write_end);
  if (err)
    close(report[0]);
  else
    *start = report[0];
  return err;
}

Err process_check_start(int *start, bool *is_known) {
  char text[FAILURE_MAX];
  ssize_t n;
  do {
    n = read(*start, text, sizeof text - 1);
  } while (n < 0 && errno == EINTR);
  *is_known = n >= 0 || errno != EAGAIN;
  if (!*is_known) return ERR_OK;
  process_close(start);
  if (n <= 0) return ERR_OK; /* exec has closed the pipe, so it succeeded */
  text[n] = '\0';
  return err_set(ERR_WORK, "%s", text);
}

Err process_start(const ProcessSpec *spec, pid_t *pid) {
  int start;
  bool is_known;
  TRY(process_begin(spec, pid, &start));
  if (process_check_start(&start, &is_known) == ERR_OK) return ERR_OK;
  waitpid(*pid, NULL, 0);
  return ERR_WORK;
}

Err process_adopt_orphans(void) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) return ERR_OK;
  return err_errno("cannot become a subreaper for", "processes of this launch");
}

bool process_has_children(void) {
  siginfo_t info;
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

/* Reads the parent of a process from /proc/PID/stat: "pid (command) state ppid …". The command
 * may contain any characters, so fields are counted from the last ')'. */
static pid_t read_parent(const char *pid, char command[32]) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return -1;
  text[n] = '\0';
  char *begin = strchr(text, '('), *end = strrchr(text, ')');
  int parent;
  char state;
  if (!begin || !end || sscanf(end + 1, " %c %d", &state, &parent) != 2) return -1;
  snprintf(command, 32, "%.*s", (int)(end - begin - 1), begin + 1);
  return state == 'Z' ? -1 : parent;
}

typedef void (*VisitChild)(pid_t pid, const char *command, void *context);

static int visit_children(VisitChild visit, void *context) {
  int found = 0;
  char command[32];
  DIR *dir = opendir("/proc");
  if (!dir) return 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    if (read_parent(entry->d_name, command) != getpid()) continue;
    visit((pid_t)atol(entry->d_name), command, context);
    found++;
  }
  closedir(dir);
  return found;
}

static void kill_child(pid_t pid, const char *command, void *context) {
  (void)command;
  (void)context;
  kill(pid, SIGKILL);
}

int process_kill_children(void) {
  return visit_children(kill_child, NULL);
}

typedef struct {
  char *out;
  size_t room, used;
} ChildList;

static void add_child(pid_t pid, const char *command, void *context) {
  ChildList *list = context;
  if (list->used >= list->room) return;
  int n = snprintf(list->out + list->used, list->room - list->used, "%s%d (%s)",
                   list->used ? ", " : "", (int)pid, command);
  if (n > 0) list->used += (size_t)n;
}

void process_list_children(char *out, size_t room) {
  ChildList list = {.out = out, .room = room};
  out[0] = '\0';
  visit_children(add_child, &list);
}

const char *process_signal_name(int signal_number) {
  const char *name = sigabbrev_np(signal_number);
  static char text[32];
  if (name)
    snprintf(text, sizeof text, "SIG%s", name);
  else
    snprintf(text, sizeof text, "signal %d", signal_number);
  return text;
}

void process_describe_end(char *out, size_t room, int status, int signal_number) {
  if (status < 0)
    snprintf(out, room, "killed by %s", process_signal_name(signal_number));
  else
    snprintf(out, room, "exit status %d", status);
}

/* Removes a line of `len` bytes, and the `end` bytes after it, from the buffer. */
static bool take_line(ProcessLines *l, char line[PROCESS_LINE_MAX + 1], size_t len,
                      size_t end) {
  memcpy(line, l->bytes, len);
  line[len] = '\0';
  l->len -= len + end;
  memmove(l->bytes, l->bytes + len + end, l->len);
  return true;
}

bool process_next_line(ProcessLines *l, char line[PROCESS_LINE_MAX + 1]) {
  for (;;) {
    char *end = memchr(l->bytes, '\n', l->len);
    if (end) return take_line(l, line, (size_t)(end - l->bytes), 1);
    if (l->len == sizeof l->bytes) return take_line(l, line, l->len, 0);
    ssize_t n = l->fd < 0 ? 0 : read(l->fd, l->bytes + l->len, sizeof l->bytes - l->len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) {
      process_close(&l->fd);
      return l->len ? take_line(l, line, l->len, 0) : false;
    }
    l->len += (size_t)n;
  }
}
