/* Workers, mpirun and its daemons on this machine: their environment, cores, output and exit.
 * Depends on process, cores, protocol. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "launch/agent_internal.h"
#include "launch/cores.h"
#include "launch/process.h"

/* Bytes queued for the head above which no more output is read. */
#define UNSENT_MAX ((size_t)1 << 20)
/* Largest number of bytes of a stream that are forwarded when its process has ended: what a pipe
 * holds. More can only come from its orphans, which may write for ever. */
#define LAST_MAX ((size_t)1 << 20)
#define EVENTS_MAX \
  1024 /* largest number of reads of reports in one call, for the same reason */
#define ABANDONED_TIME 0.5 /* seconds between the end of a stub and the kill of its worker */

extern char **environ;

Err agent_report_failure(Agent *a) {
  return protocol_send(a->head, MSG_FAILED,
                       json_pack("{s:I, s:o}", "generation", (json_int_t)a->generation, "text",
                                 protocol_make_text(err_message())));
}

/* A list of strings for exec: variables "NAME=value" or arguments. */
typedef struct {
  char **item;
  size_t count, capacity;
} List;

static void free_list(List *l) {
  for (size_t i = 0; i < l->count; i++) mem_free(l->item[i]);
  mem_free(l->item);
  *l = (List){0};
}

static Err add_item(List *l, const char *text, size_t len) {
  TRY(mem_grow(&l->item, &l->capacity, l->count + 2, sizeof *l->item));
  TRY(mem_dup(&l->item[l->count], text, len));
  l->count++;
  l->item[l->count] = NULL;
  return ERR_OK;
}

static bool is_variable(const char *item, const char *name) {
  size_t n = strlen(name);
  return strncmp(item, name, n) == 0 && item[n] == '=';
}

static void remove_variable(List *l, const char *name) {
  size_t kept = 0;
  for (size_t i = 0; i < l->count; i++) {
    if (is_variable(l->item[i], name))
      mem_free(l->item[i]);
    else
      l->item[kept++] = l->item[i];
  }
  l->count = kept;
  if (l->item) l->item[kept] = NULL;
}

static Err set_variable(List *l, const char *name, const char *value) {
  Str text = {0};
  remove_variable(l, name);
  str_addf(&text, "%s=%s", name, value);
  Err err = str_check(&text);
  if (!err) err = add_item(l, text.s, text.len);
  str_free(&text);
  return err;
}

static Err set_number(List *l, const char *name, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  return set_variable(l, name, text);
}

static Err copy_environment(List *l, const char *env, size_t len) {
  if (!env) {
    for (char **at = environ; *at; at++) TRY(add_item(l, *at, strlen(*at)));
    return ERR_OK;
  }
  for (size_t at = 0; at < len;) {
    size_t n = strnlen(env + at, len - at);
    if (n && memchr(env + at, '=', n)) TRY(add_item(l, env + at, n));
    at += n + 1;
  }
  return ERR_OK;
}

/* Sets a variable of the worker to its value in this agent, because mpirun has changed it. */
static Err restore_variable(List *l, const char *name) {
  const char *value = getenv(name);
  remove_variable(l, name);
  return value ? set_variable(l, name, value) : ERR_OK;
}

/* Adds the variables that the head sends to every machine. */
static Err add_given_variables(List *l, const json_t *begin) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)json_object_get(begin, "env"), name, value) {
    if (json_is_string(value)) TRY(set_variable(l, name, json_string_value(value)));
  }
  return ERR_OK;
}

/* Removes variables of Slurm, which describe the job step of the agent. MPI and train would use
 * them. */
static void remove_slurm(List *l) {
  size_t kept = 0;
  for (size_t i = 0; i < l->count; i++) {
    if (str_starts(l->item[i], "SLURM_") || str_starts(l->item[i], "PMI_"))
      mem_free(l->item[i]);
    else
      l->item[kept++] = l->item[i];
  }
  l->count = kept;
  if (l->item) l->item[kept] = NULL;
}

/* Adds the variables of torchrun, and our own. */
static Err add_worker_variables(const Agent *a, List *l, uint32_t rank) {
  const json_t *b = a->begin;
  char path[FILE_PATH_MAX];
  int64_t restarts = protocol_int(b, "restart_count", 0);
  TRY(set_number(l, "RANK", rank));
  TRY(set_number(l, "LOCAL_RANK", (int64_t)rank - protocol_int(b, "first_rank", 0)));
  TRY(set_number(l, "WORLD_SIZE", protocol_int(b, "world_size", 1)));
  TRY(set_number(l, "LOCAL_WORLD_SIZE", protocol_int(b, "local_size", 1)));
  TRY(set_number(l, "GROUP_RANK", protocol_int(b, "group_rank", 0)));
  TRY(set_number(l, "GROUP_WORLD_SIZE", protocol_int(b, "groups", 1)));
  TRY(set_variable(l, "MASTER_ADDR", protocol_text(b, "master_addr")));
  TRY(set_number(l, "MASTER_PORT", protocol_int(b, "master_port", 0)));
  TRY(set_number(l, "TORCHELASTIC_RESTART_COUNT", restarts));
  TRY(set_number(l, "TORCHELASTIC_MAX_RESTARTS", protocol_int(b, "max_restarts", 0)));
  TRY(set_number(l, "TRIREME_RESTART_COUNT", restarts));
  TRY(set_number(l, "TRIREME_MAX_RANKS", protocol_int(b, "max_ranks", 0)));
  TRY(set_variable(l, "TRIREME_RESTART_REASON", protocol_text(b, "reason")));
  bool has_trained = json_is_true(json_object_get(b, "has_trained"));
  TRY(set_number(l, "TRIREME_RESTART_TRAINED", has_trained ? 1 : 0));
  TRY(set_number(l, "TRIREME_EVENT_FD", PROCESS_EVENT_FD));
  TRY(file_join(path, a->dir.path, "mpi"));
  TRY(set_variable(l, "OMPI_MCA_btl_vader_backing_directory", path));
  /* A fault injected by a test happens only once. */
  if (restarts > 0) remove_variable(l, "TRIREME_FAULT");
  return ERR_OK;
}

static Err add_agent_variables(const Agent *a, List *l) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, a->dir.path, "agent"));
  TRY(set_variable(l, "TRIREME_AGENT", path));
  TRY(set_variable(l, "TRIREME_PEER_DIR", a->peer.dir));
  return set_variable(l, "TRIREME_PROGRAM", a->program);
}

static Err make_worker_environment(const Agent *a, List *l, uint32_t rank, const char *env,
                                   size_t len) {
  TRY(copy_environment(l, env, len));
  TRY(restore_variable(l, "TMPDIR"));
  TRY(restore_variable(l, "PATH"));
  remove_slurm(l);
  TRY(add_given_variables(l, a->begin));
  TRY(add_agent_variables(a, l));
  return add_worker_variables(a, l, rank);
}

/* mpirun and its daemons store their files in the agent's directory. The directory is also
 * first in PATH, so that "trireme" is this program on every machine: mpirun's daemons search
 * for plm_rsh_agent although they do not use it. */
static Err make_daemon_environment(const Agent *a, List *l) {
  char path[FILE_PATH_MAX];
  Str search = {0};
  const char *old = getenv("PATH");
  str_addf(&search, "%s:%s", a->dir.path, old ? old : "/usr/local/bin:/usr/bin:/bin");
  Err err = str_check(&search);
  if (!err) err = copy_environment(l, NULL, 0);
  if (!err) err = set_variable(l, "PATH", str_text(&search));
  str_free(&search);
  TRY(err);
  remove_slurm(l);
  TRY(add_given_variables(l, a->begin));
  TRY(add_agent_variables(a, l));
  TRY(file_join(path, a->dir.path, "mpi"));
  return set_variable(l, "TMPDIR", path);
}

/* Opens a pseudo-terminal in raw mode: the worker detects a terminal and prints its status
 * line, and the bytes are not changed. */
static Err open_terminal(const json_t *begin, int *ours, int *theirs) {
  char name[128];
  struct termios mode;
  *theirs = -1;
  *ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  bool ok = *ours >= 0 && grantpt(*ours) == 0 && unlockpt(*ours) == 0 &&
            ptsname_r(*ours, name, sizeof name) == 0;
  if (ok) *theirs = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (*theirs < 0) {
    process_close(ours);
    return err_set(ERR_WORK,
                   "cannot open a pseudo-terminal: %s; redirect standard error to a file to "
                   "launch without a terminal",
                   strerror(errno));
  }
  struct winsize size = {.ws_row = (unsigned short)protocol_int(begin, "rows", 24),
                         .ws_col = (unsigned short)protocol_int(begin, "columns", 80)};
  ioctl(*theirs, TIOCSWINSZ, &size);
  if (tcgetattr(*theirs, &mode) == 0) {
    cfmakeraw(&mode);
    tcsetattr(*theirs, TCSANOW, &mode);
  }
  return ERR_OK;
}

static Err open_pipe(int *ours, int *theirs) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return err_set(ERR_WORK,
                   "cannot create a pipe: %s; raise the limit of open files (ulimit -n)",
                   strerror(errno));
  *ours = ends[0];
  *theirs = ends[1];
  return ERR_OK;
}

static void set_nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (fd >= 0 && flags >= 0) fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static bool has_terminal(const Agent *a, const AgentProcess *p) {
  return p->kind == OF_WORKER && p->rank == 0 && protocol_int(a->begin, "columns", 0) > 0;
}

static void close_output(AgentProcess *p) {
  process_close(&p->start);
  process_close(&p->out);
  process_close(&p->err);
  process_close(&p->event);
}

/* Starts the process with its output connected to this agent, and adds it to the list. */
static Err launch_process(Agent *a, AgentProcess p, ProcessSpec *spec) {
  int out = -1, err_end = -1, event = -1;
  Err err;
  p.out = -1;
  p.err = -1;
  p.event = -1;
  p.start = -1;
  p.err_stream = OUTPUT_STDERR;
  TRY(mem_grow(&a->process, &a->process_capacity, a->processes + 1, sizeof *a->process));
  TRY_DONE(open_pipe(&p.out, &out));
  if (has_terminal(a, &p)) {
    p.err_stream = OUTPUT_TERMINAL;
    TRY_DONE(open_terminal(a->begin, &p.err, &err_end));
  } else {
    TRY_DONE(open_pipe(&p.err, &err_end));
  }
  if (p.kind == OF_WORKER) TRY_DONE(open_pipe(&p.event, &event));
  spec->in = -1;
  spec->event = event;
  spec->out = out;
  spec->err = err_end;
  TRY_DONE(process_begin(spec, &p.pid, &p.start));
  set_nonblocking(p.start);
  set_nonblocking(p.out);
  set_nonblocking(p.err);
  set_nonblocking(p.event);
  a->process[a->processes++] = p;
done:
  process_close(&out);
  process_close(&err_end);
  process_close(&event);
  if (err) close_output(&p);
  return err;
}

static Err add_words(List *l, const json_t *words) {
  size_t i;
  json_t *word;
  json_array_foreach(words, i, word) {
    if (!json_is_string(word))
      return err_set(ERR_WORK,
                     "the head sent a command whose word %zu is not a string; install the same "
                     "version of trireme on all machines",
                     i + 1);
    TRY(add_item(l, json_string_value(word), json_string_length(word)));
  }
  return ERR_OK;
}

Err agent_start_worker(Agent *a, uint32_t rank, const char *env, size_t len, pid_t *pid) {
  List words = {0}, variables = {0};
  cpu_set_t cores;
  int local_size = (int)protocol_int(a->begin, "local_size", 1);
  int local_rank = (int)((int64_t)rank - protocol_int(a->begin, "first_rank", 0));
  Err err;
  TRY_DONE(add_item(&words, a->program, strlen(a->program)));
  TRY_DONE(add_words(&words, json_object_get(a->begin, "argv")));
  TRY_DONE(make_worker_environment(a, &variables, rank, env, len));
  ProcessSpec spec = {
      .argv = words.item, .env = variables.item, .dir = protocol_text(a->begin, "dir")};
  if (cores_share(local_rank, local_size, &cores)) spec.cores = &cores;
  TRY_DONE(launch_process(a, (AgentProcess){.kind = OF_WORKER, .rank = rank}, &spec));
  *pid = a->process[a->processes - 1].pid;
done:
  free_list(&words);
  free_list(&variables);
  return err;
}

Err agent_start_daemon(Agent *a, int64_t id, const json_t *argv) {
  List words = {0}, variables = {0};
  Err err;
  TRY_DONE(add_words(&words, argv));
  if (!words.count) {
    err = err_set(
        ERR_WORK,
        "the head sent an empty command; install the same version of trireme on all machines");
    goto done;
  }
  TRY_DONE(make_daemon_environment(a, &variables));
  /* A batch system sends SIGTERM or SIGUSR1 to all processes. mpirun and its daemons would end the ranks
   * before they have saved; the agent ends daemons with SIGKILL. */
  ProcessSpec spec = {
      .argv = words.item, .env = variables.item, .dir = a->dir.path, .blocks_stops = true};
  err = launch_process(a, (AgentProcess){.kind = OF_DAEMON, .id = id}, &spec);
done:
  free_list(&words);
  free_list(&variables);
  return err;
}

/* Once the result of exec is known, reports that a worker has started, or why a process could
 * not be started. */
static Err report_start(Agent *a, AgentProcess *p) {
  bool is_known;
  if (p->start < 0) return ERR_OK;
  p->has_failed = process_check_start(&p->start, &is_known) != ERR_OK;
  if (p->has_failed) return agent_report_failure(a);
  if (!is_known || p->kind != OF_WORKER) return ERR_OK;
  return protocol_send(a->head, MSG_WORKER_BEGAN,
                       json_pack("{s:I, s:I, s:i}", "generation", (json_int_t)a->generation,
                                 "rank", (json_int_t)p->rank, "pid", (int)p->pid));
}

/* Forwards what can be read from *fd without blocking, and closes it at the end. Reading a
 * pseudo-terminal fails with EIO after the worker has closed it. */
static Err forward_stream(Agent *a, const AgentProcess *p, int *fd, uint8_t stream,
                          size_t unsent_max) {
  char bytes[OUTPUT_MAX];
  OutputHeader header = {.generation = a->generation,
                         .rank = p->kind == OF_WORKER ? p->rank : OUTPUT_OF_MPIRUN,
                         .stream = stream};
  while (*fd >= 0 && channel_unsent(a->head) < unsent_max) {
    ssize_t n = read(*fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0)
      process_close(fd);
    else
      TRY(output_send(a->head, &header, bytes, (size_t)n));
  }
  return ERR_OK;
}

/* Forwards a report of a worker if it is a JSON object. */
static Err forward_event(Agent *a, const AgentProcess *p, const char *line, size_t len) {
  json_t *event = json_loadb(line, len, 0, NULL);
  if (!json_is_object(event)) {
    json_decref(event);
    return ERR_OK;
  }
  return protocol_send(a->head, MSG_EVENT,
                       json_pack("{s:I, s:I, s:o}", "generation", (json_int_t)a->generation,
                                 "rank", (json_int_t)p->rank, "event", event));
}

static Err forward_events(Agent *a, AgentProcess *p) {
  for (int reads = 0; p->event >= 0 && reads < EVENTS_MAX; reads++) {
    /* Discard a line that is too long. */
    if (p->report_len == sizeof p->report) p->report_len = 0;
    ssize_t n = read(p->event, p->report + p->report_len, sizeof p->report - p->report_len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) process_close(&p->event);
    if (n > 0) p->report_len += (size_t)n;
    for (char *end; (end = memchr(p->report, '\n', p->report_len));) {
      size_t len = (size_t)(end - p->report);
      TRY(forward_event(a, p, p->report, len));
      p->report_len -= len + 1;
      memmove(p->report, end + 1, p->report_len);
    }
  }
  return ERR_OK;
}

/* Forwards standard error before standard output, because a worker prints its results to
 * standard output at the end. */
static Err forward_process(Agent *a, AgentProcess *p, size_t unsent_max) {
  TRY(report_start(a, p));
  TRY(forward_events(a, p));
  TRY(forward_stream(a, p, &p->err, p->err_stream, unsent_max));
  return forward_stream(a, p, &p->out, OUTPUT_STDOUT, unsent_max);
}

Err agent_forward_output(Agent *a) {
  for (size_t i = 0; i < a->processes; i++) TRY(forward_process(a, &a->process[i], UNSENT_MAX));
  return ERR_OK;
}

static Err report_end(Agent *a, const AgentProcess *p, int status, int signal_number) {
  json_int_t generation = (json_int_t)a->generation;
  if (p->kind == OF_DAEMON)
    return protocol_send(
        a->head, MSG_PROCESS_ENDED,
        json_pack("{s:I, s:I, s:i, s:i}", "generation", generation, "id", (json_int_t)p->id,
                  "status", status, "signal", signal_number));
  return protocol_send(
      a->head, MSG_WORKER_ENDED,
      json_pack("{s:I, s:I, s:i, s:i}", "generation", generation, "rank", (json_int_t)p->rank,
                "status", status, "signal", signal_number));
}

Err agent_note_end(Agent *a, pid_t pid, int wait_status) {
  size_t i = 0;
  while (i < a->processes && a->process[i].pid != pid) i++;
  if (i == a->processes) return ERR_OK; /* an orphan that this agent has adopted */
  AgentProcess p = a->process[i];
  int signal_number = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
  int status = signal_number ? -1 : WEXITSTATUS(wait_status);
  size_t most = channel_unsent(a->head) + LAST_MAX;
  Err err = forward_process(a, &p, most < CHANNEL_QUEUE_MAX / 2 ? most : CHANNEL_QUEUE_MAX / 2);
  close_output(&p); /* before the end of the streams: orphans may hold the pipes open */
  a->process[i] = a->process[--a->processes];
  if (!err && !p.has_failed) err = report_end(a, &p, status, signal_number);
  return err;
}

void agent_signal_workers(Agent *a, int signal_number) {
  for (size_t i = 0; i < a->processes; i++)
    if (a->process[i].kind == OF_WORKER) kill(a->process[i].pid, signal_number);
}

/* Kills workers whose stub disconnected ABANDONED_TIME ago, but not workers that were asked to
 * stop: a signal to all processes may also end mpirun and its stubs while the workers save. */
void agent_kill_abandoned(Agent *a, double now) {
  if (a->is_stopping || a->leaving) return;
  for (size_t i = 0; i < a->processes; i++) {
    const AgentProcess *p = &a->process[i];
    if (p->abandoned > 0 && now - p->abandoned > ABANDONED_TIME) kill(p->pid, SIGKILL);
  }
}

void agent_forget_processes(Agent *a) {
  for (size_t i = 0; i < a->processes; i++) close_output(&a->process[i]);
  a->processes = 0;
}
