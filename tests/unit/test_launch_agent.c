/* The agent of a machine, in its own process, with the test as the head; and the stubs that
 * connect to the agent.
 * run-tests: own program */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/agent.c" /* for continue_kill */
#include "launch/stub.h"
#include "support.h"

#define LIMIT 120.0 /* time limit in seconds that suffices on a loaded machine */

typedef struct {
  pid_t pid;
  Channel *channel; /* the head's end of the channel */
} Fixture;

typedef void (*Prepare)(void);

/* Starts an agent. `prepare` runs in its process before agent_run; NULL: nothing. */
static void start_agent_as(Fixture *f, Prepare prepare, AgentOrigin origin) {
  skip_if_emulated(); /* under qemu-user the agent ends at its start */
  int ends[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  f->pid = fork();
  assert_true(f->pid >= 0);
  if (f->pid == 0) {
    Channel *head;
    close(ends[0]);
    if (prepare) prepare();
    if (channel_open(&head, ends[1], ends[1], "the head")) _exit(99);
    _exit((int)agent_run(head, "host", origin));
  }
  close(ends[1]);
  OK(channel_open(&f->channel, ends[0], ends[0], "the agent"));
  channel_set_heartbeat(f->channel, 2, 0);
}

static void start_agent(Fixture *f, Prepare prepare) {
  start_agent_as(f, prepare, AGENT_OF_HEAD);
}

/* Waits for the next message that is not MSG_OUTPUT. */
static json_t *expect(Fixture *f, uint8_t type) {
  for (double start = progress_clock(); progress_clock() - start < LIMIT;) {
    struct pollfd fds[2];
    int count;
    Frame frame;
    channel_events(f->channel, fds, &count);
    poll(fds, (nfds_t)count, 100);
    Err lost = channel_advance(f->channel);
    ErrRecord why = err_copy();
    while (channel_next(f->channel, &frame)) {
      json_t *body;
      if (frame.type == MSG_OUTPUT) continue;
      OK(protocol_parse(&frame, "the agent", &body));
      if (frame.type != type) fail_msg("a message of type %d, not %d", frame.type, type);
      return body;
    }
    if (lost) OK(err_give(&why));
  }
  fail_msg("no message of type %d", type);
  return NULL;
}

static void expect_only(Fixture *f, uint8_t type) {
  json_decref(expect(f, type));
}

static void send_json(Fixture *f, uint8_t type, json_t *body) {
  OK(protocol_send(f->channel, type, body));
  OK(channel_advance(f->channel));
}

/* Sends MSG_END and asserts that the agent exits with status 0. */
static void close_agent(Fixture *f) {
  int status;
  send_json(f, MSG_END, json_object());
  assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  channel_close(f->channel);
}

/* Asserts the exit status of an agent after an end of the launch with this status. */
static void assert_exit(AgentOrigin origin, int told, int expected) {
  Fixture f;
  int status;
  start_agent_as(&f, NULL, origin);
  expect_only(&f, MSG_HELLO);
  send_json(&f, MSG_END, json_pack("{s:i, s:s}", "status", told, "text", "rank 1 failed"));
  assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), expected);
  channel_close(f.channel);
}

static void test_agent_that_joined_ends_with_the_status_of_the_launch(void **state) {
  (void)state;
  for (int status = ERR_OK; status <= ERR_STOPPED; status++)
    assert_exit(AGENT_OF_USER, status, status);
  assert_exit(AGENT_OF_USER, 77, ERR_OK); /* no status of a launch */
}

static void test_agent_of_the_head_leaves_the_status_to_the_head(void **state) {
  (void)state;
  assert_exit(AGENT_OF_HEAD, ERR_WORK, ERR_OK);
}

static void kill_all(Fixture *f) {
  send_json(f, MSG_KILL, json_object());
  expect_only(f, MSG_CLEAR);
}

static void start_command(Fixture *f, int id, const char *program, const char *option,
                          const char *argument) {
  send_json(f, MSG_START,
            json_pack("{s:i, s:[s, s, s]}", "id", id, "argv", program, option, argument));
}

/* /dev/zero stands for the pipe of a process that has ended, but has left an orphan that prints
 * without end. */
static void test_agent_reports_the_end_of_a_process_whose_orphan_prints_without_end(
    void **state) {
  (void)state;
  int ends[2];
  Agent a = {.generation = 1};
  AgentProcess p = {.kind = OF_DAEMON, .pid = 77, .id = 1, .err = -1, .event = -1, .start = -1};
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  OK(channel_open(&a.head, ends[1], ends[1], "the head"));
  OK(mem_alloc(&a.process, 1, sizeof *a.process));
  p.out = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  assert_true(p.out >= 0);
  a.process[a.processes++] = p;
  OK(agent_note_end(&a, 77, 0));
  assert_int_equal(a.processes, 0);
  assert_between(channel_unsent(a.head), 1, 4 << 20);
  mem_free(a.process);
  channel_close(a.head);
  close(ends[0]);
}

/* A pipe that reaches its end when the process that holds life[1] has ended. */
static int life[2];
static int leash[2]; /* a pipe: the process ends when the test closes leash[1] */

static bool is_alive(void) {
  struct pollfd fd = {life[0], POLLIN, 0};
  return poll(&fd, 1, 0) == 0;
}

static void open_life(void) {
  assert_int_equal(pipe2(life, O_CLOEXEC), 0);
  assert_int_equal(pipe2(leash, O_CLOEXEC), 0);
}

/* Closes the child's ends, in the test's process after the fork. */
static void keep_life(void) {
  close(life[1]);
  close(leash[0]);
}

static void close_life(void) {
  close(life[0]);
  close(leash[1]);
}

/* Starts a process that does not belong to the agent. */
static void start_sleeper(void) {
  close(leash[1]);
  if (fork() == 0) {
    char byte;
    _exit(read(leash[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(life[1]);
}

static void test_agent_kills_what_its_processes_left_behind(void **state) {
  (void)state;
  Fixture f;
  char command[FILE_PATH_MAX + 128];
  int fifo;
  char byte;
  assert_int_equal(mkfifo(at("daemon"), 0600), 0);
  /* Starts a daemon with its own session and an empty environment, which holds the FIFO
   * open. */
  snprintf(command, sizeof command, "setsid env -i sh -c 'echo x; exec sleep 100000' > '%s' &",
           at("daemon"));
  start_agent(&f, NULL);
  expect_only(&f, MSG_HELLO);
  start_command(&f, 1, "sh", "-c", command);
  fifo = open(at("daemon"), O_RDONLY | O_CLOEXEC);
  assert_int_equal(read(fifo, &byte, 1), 1);
  expect_only(&f, MSG_PROCESS_ENDED);
  kill_all(&f);
  while (read(fifo, &byte, 1) == 1) {} /* reaches its end when the daemon has ended */
  close(fifo);
  close_agent(&f);
}

static void test_agent_spares_children_that_it_did_not_start(void **state) {
  (void)state;
  Fixture f;
  open_life();
  start_agent(&f, start_sleeper);
  keep_life();
  expect_only(&f, MSG_HELLO);
  kill_all(&f);
  assert_true(is_alive());
  close_agent(&f);
  assert_true(is_alive());
  close_life();
}

/* Simulates a container: creates a pid namespace in which the agent becomes process 1, and an
 * orphan in it. */
static void become_process_1(void) {
  int status;
  if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) _exit(77);
  pid_t first = fork();
  if (first > 0) {
    close(life[1]);
    close(leash[1]);
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
  }
  if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("proc", "/proc", "proc", 0, NULL) != 0)
    _exit(77);
  pid_t parent = fork();
  if (parent == 0) {
    start_sleeper();
    _exit(0);
  }
  waitpid(parent, &status, 0);
  close(life[1]);
  close(leash[1]);
}

static bool may_make_namespaces(void) {
  pid_t pid = fork();
  int status = 0;
  if (pid == 0) {
    bool can = unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 &&
               mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0;
    pid_t first = can ? fork() : -1;
    if (first == 0) _exit(mount("proc", "/proc", "proc", 0, NULL) == 0 ? 0 : 77);
    if (first > 0) waitpid(first, &status, 0);
    _exit(first > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 77);
  }
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_agent_as_process_1_spares_orphans_of_others(void **state) {
  (void)state;
  Fixture f;
  if (!may_make_namespaces()) skip();
  open_life();
  start_agent(&f, become_process_1);
  keep_life();
  expect_only(&f, MSG_HELLO);
  start_command(&f, 1, "sh", "-c", "sleep 100000 & exit 4");
  json_t *body = expect(&f, MSG_PROCESS_ENDED);
  assert_int_equal(protocol_int(body, "status", 0), 4);
  json_decref(body);
  kill_all(&f);
  assert_true(is_alive());
  close_agent(&f);
  /* Process 1 has ended, and with it all processes of the namespace. */
  assert_false(is_alive());
  close_life();
}

static void test_agent_missing_program_is_reported_once(void **state) {
  (void)state;
  Fixture f;
  start_agent(&f, NULL);
  expect_only(&f, MSG_HELLO);
  start_command(&f, 1, "/no/such/program", "-c", "x");
  json_t *body = expect(&f, MSG_FAILED);
  assert_string_equal(protocol_text(body, "text"),
                      "cannot start /no/such/program: No such file or directory");
  json_decref(body);
  kill_all(&f); /* asserts that its end was not reported before */
  close_agent(&f);
}

/* Creates a program that cannot be opened while this process holds a lease on the file, as if
 * its file server did not answer. Returns -1 if leases are not supported. */
static int make_blocked_program(const char *path) {
  static const char text[] = "#!/bin/sh\nexit 5\n";
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0700);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
  close(fd);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  signal(SIGIO, SIG_IGN);
  if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) return fd;
  close(fd);
  return -1;
}

static int lease; /* the lease ends when no process has the descriptor */

static void close_lease(void) {
  close(lease);
}

static void test_agent_serves_while_a_program_is_not_loaded(void **state) {
  (void)state;
  Fixture f;
  lease = make_blocked_program(at("blocked"));
  if (lease < 0) skip();
  start_agent(&f, close_lease);
  expect_only(&f, MSG_HELLO);
  /* The kernel ends the lease after 45 s (/proc/sys/fs/lease-break-time). An agent that blocked
   * so long would send no heartbeats. */
  channel_set_heartbeat(f.channel, 2, 25);
  start_command(&f, 1, at("blocked"), "-c", "x");
  start_command(&f, 2, "sh", "-c", "exit 7");
  json_t *body = expect(&f, MSG_PROCESS_ENDED);
  assert_int_equal(protocol_int(body, "id", 0), 2);
  json_decref(body);
  close(lease);
  body = expect(&f, MSG_PROCESS_ENDED);
  assert_int_equal(protocol_int(body, "id", 0), 1);
  assert_int_equal(protocol_int(body, "status", 0), 5);
  json_decref(body);
  close_agent(&f);
}

static void test_agent_worker_without_mpirun_is_killed_unless_it_saves(void **state) {
  (void)state;
  AgentProcess worker = {.kind = OF_WORKER, .abandoned = 1};
  Agent a = {.process = &worker, .processes = 1, .is_stopping = true};
  int status;
  worker.pid = fork();
  if (worker.pid == 0)
    for (;;) pause();
  agent_kill_abandoned(&a, 100);
  kill(worker.pid, SIGSTOP);
  assert_int_equal(waitpid(worker.pid, &status, WUNTRACED), worker.pid);
  assert_true(WIFSTOPPED(status)); /* not killed */
  a.is_stopping = false;
  agent_kill_abandoned(&a, 100);
  assert_int_equal(waitpid(worker.pid, &status, 0), worker.pid);
  assert_true(WIFSIGNALED(status));
}

static bool spares; /* kill() has no effect, as on a process that waits for a network drive */

/* Replaces kill(2) of the C library in this program. */
int kill(pid_t pid, int signal_number) {
  return spares ? 0 : (int)syscall(SYS_kill, pid, signal_number);
}

typedef struct {
  int lines;
  char text[512]; /* the last one */
} Warnings;

static void take_warning(void *context, const char *label, const char *line) {
  Warnings *w = context;
  w->lines++;
  snprintf(w->text, sizeof w->text, "%s%s", label, line);
}

/* Other tests of this program leave no children. */
static void test_agent_process_that_cannot_be_killed_is_reported_once(void **state) {
  (void)state;
  Warnings w = {0};
  char expected[256];
  Agent a = {.host = "node-7", .kill_since = 100};
  pid_t pid = fork();
  if (pid == 0)
    for (;;) pause();
  snprintf(expected, sizeof expected,
           "warning: node-7: processes do not end although they were killed: %d (", (int)pid);
  log_divert(take_warning, &w);
  spares = true;
  OK(continue_kill(&a, 104.9));
  int early = w.lines;
  OK(continue_kill(&a, 105));
  int due = w.lines;
  OK(continue_kill(&a, 200));
  spares = false;
  log_divert(NULL, NULL);
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_int_equal(early, 0);
  assert_int_equal(due, 1);
  assert_int_equal(w.lines, 1);
  assert_ptr_equal(strstr(w.text, expected), w.text);
  assert_non_null(strstr(w.text, "; they may wait for a network drive or a GPU"));
}

static void test_agent_user_signal_is_ignored(void **state) {
  (void)state;
  Fixture f;
  start_agent(&f, NULL);
  expect_only(&f, MSG_HELLO);
  assert_int_equal(kill(f.pid, SIGUSR1), 0);
  kill_all(&f);
  close_agent(&f);
}

static void reset_hangup(void) {
  signal(SIGHUP, SIG_DFL);
}

static void test_agent_hangup_asks_to_leave(void **state) {
  (void)state;
  Fixture f;
  start_agent(&f, reset_hangup);
  expect_only(&f, MSG_HELLO);
  assert_int_equal(kill(f.pid, SIGHUP), 0);
  json_t *body = expect(&f, MSG_LEAVE);
  assert_string_equal(protocol_text(body, "reason"), "SIGHUP");
  json_decref(body);
  close_agent(&f);
}

static void ignore_hangup(void) {
  signal(SIGHUP, SIG_IGN);
}

static void test_agent_ignored_hangup_stays_ignored(void **state) {
  (void)state;
  Fixture f;
  start_agent(&f, ignore_hangup);
  expect_only(&f, MSG_HELLO);
  assert_int_equal(kill(f.pid, SIGHUP), 0);
  kill_all(&f);
  close_agent(&f);
}

static void hang_up_with_children(void) {
  reset_hangup();
  start_sleeper();
}

static void test_agent_below_a_parent_gets_its_signals(void **state) {
  (void)state;
  Fixture f;
  open_life();
  start_agent(&f, hang_up_with_children);
  keep_life();
  expect_only(&f, MSG_HELLO);
  assert_int_equal(kill(f.pid, SIGUSR1), 0);
  assert_int_equal(kill(f.pid, SIGTERM), 0);
  json_t *body = expect(&f, MSG_LEAVE);
  assert_string_equal(protocol_text(body, "reason"), "SIGTERM");
  json_decref(body);
  close_agent(&f);
  close_life();
}

/* Uses up the limit of open files. */
static void use_up_descriptors(void) {
  struct rlimit limit;
  int lowest = dup(STDIN_FILENO);
  close(lowest);
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = (rlim_t)lowest;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static void test_agent_that_cannot_start_leaves_standard_input_open(void **state) {
  skip_if_emulated();
  (void)state;
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    int ends[2];
    Channel *head;
    if (open("/dev/null", O_RDONLY) < 0) _exit(90);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) _exit(91);
    if (channel_open(&head, ends[1], ends[1], "the head")) _exit(92);
    use_up_descriptors();
    Err err = agent_run(head, "host", AGENT_OF_HEAD);
    _exit(err != ERR_WORK                      ? 93
          : fcntl(STDIN_FILENO, F_GETFD) < 0   ? 94
          : fcntl(ends[1], F_GETFD) >= 0       ? 95
          : !strstr(err_message(), "signalfd") ? 96
                                               : 0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

/* Nobody reads the standard error of an agent that srun has started. */
static void test_agent_of_srun_that_cannot_start_tells_the_head_why(void **state) {
  (void)state;
  Fixture f;
  int status;
  start_agent_as(&f, use_up_descriptors, AGENT_OF_SRUN);
  json_t *body = expect(&f, MSG_WARNING);
  assert_non_null(strstr(protocol_text(body, "text"), "signalfd: "));
  json_decref(body);
  channel_close(f.channel);
  assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), ERR_WORK);
}

static void log_to_file(void) {
  int fd = open(at("stderr"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) _exit(98);
  close(fd);
}

static void test_agent_of_a_user_says_that_it_leaves_and_has_left(void **state) {
  (void)state;
  Fixture f;
  Str text = {0};
  start_agent_as(&f, log_to_file, AGENT_OF_USER);
  expect_only(&f, MSG_HELLO);
  assert_int_equal(kill(f.pid, SIGINT), 0);
  expect_only(&f, MSG_LEAVE);
  close_agent(&f);
  OK(file_read(at("stderr"), 4096, &text));
  assert_string_equal(
      str_text(&text),
      "SIGINT: this machine leaves the run after a checkpoint; a second signal ends its ranks "
      "at "
      "once\nthis machine has left the run; the same command lets it join again\n");
  str_free(&text);
}

/* A batch system sends SIGTERM and SIGUSR1 to all processes; the head decides what follows. */
static void test_agent_daemons_outlive_the_signals_of_a_batch_system(void **state) {
  (void)state;
  Fixture f;
  start_agent(&f, NULL);
  expect_only(&f, MSG_HELLO);
  start_command(&f, 7, "/bin/sh", "-c", "kill -TERM $$; kill -USR1 $$; exit 5");
  json_t *body = expect(&f, MSG_PROCESS_ENDED);
  assert_int_equal(protocol_int(body, "status", -1), 5);
  json_decref(body);
  close_agent(&f);
}

static void connect_stub(const char *path, int *fd) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(*fd >= 0);
  assert_int_equal(connect(*fd, (struct sockaddr *)&address, sizeof address), 0);
}

static void test_agent_without_descriptors_pauses_and_accepts_later(void **state) {
  (void)state;
  Agent a = {.listener = -1, .host = "host"};
  struct rlimit limit;
  int stub;
  snprintf(a.dir.path, sizeof a.dir.path, "%s", scratch);
  OK(agent_listen(&a));
  connect_stub(at("agent"), &stub);
  getrlimit(RLIMIT_NOFILE, &limit);
  use_up_descriptors();
  Err err = agent_serve_stubs(&a, 100);
  setrlimit(RLIMIT_NOFILE, &limit);
  OK(err);
  assert_int_equal(a.stubs, 0);
  assert_true(a.accept_at > 100); /* during the pause the loop does not poll the socket */
  OK(agent_serve_stubs(&a, 100));
  assert_int_equal(a.stubs, 0);
  OK(agent_serve_stubs(&a, a.accept_at));
  assert_int_equal(a.stubs, 1);
  agent_close_stubs(&a);
  mem_free(a.stub);
  close(a.listener);
  close(stub);
  unlink(at("agent"));
}

/* Counts the entries of /dev/shm. */
static int count_entries(void) {
  int count = -2; /* does not count "." and ".." */
  DIR *dir = opendir("/dev/shm");
  while (dir && readdir(dir)) count++;
  closedir(dir);
  return count;
}

static void test_agent_dir_without_room_names_the_reason_and_leaves_nothing(void **state) {
  (void)state;
  int status;
  if (!may_make_namespaces()) skip();
  pid_t pid = fork();
  if (pid == 0) {
    AgentDir d;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, "nr_inodes=2") != 0)
      _exit(90);
    Err err = agent_dir_make(&d); /* the directory can be created, but not its lock file */
    bool is_named = strstr(err_message(), "No space left on device") != NULL;
    agent_dir_remove(&d);
    _exit(err == ERR_OK ? 91 : !is_named ? 92 : count_entries() != 0 ? 93 : 0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

static int listen_as_agent(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(fd, 4), 0);
  setenv("TRIREME_AGENT", path, 1);
  return fd;
}

static void test_stub_adopted_by_the_agent_starts_no_rank(void **state) {
  (void)state;
  int status;
  int listener = listen_as_agent(at("adopted"));
  pid_t pid = fork();
  if (pid == 0) { /* a child of the listening process, as if mpirun had ended */
    alarm((unsigned)LIMIT);
    Err err = stub_run_worker();
    _exit(err && strstr(err_message(), "mpirun has ended") ? 0 : 91);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  close(listener);
}

static void test_stub_of_a_running_mpirun_ignores_announcements(void **state) {
  (void)state;
  int status;
  int listener = listen_as_agent(at("running"));
  pid_t pid = fork();
  if (pid == 0) { /* this process stands for mpirun */
    alarm((unsigned)LIMIT);
    pid_t stub = fork();
    if (stub == 0) _exit((int)stub_run_worker());
    waitpid(stub, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 90);
  }
  Channel *c;
  Frame frame;
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  assert_true(fd >= 0);
  struct ucred stub;
  socklen_t len = sizeof stub;
  assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &stub, &len), 0);
  OK(channel_open(&c, fd, fd, "the stub"));
  do {
    struct pollfd ready = {fd, POLLIN, 0};
    assert_int_equal(poll(&ready, 1, (int)(LIMIT * 1000)), 1);
    OK(channel_advance(c));
  } while (!channel_next(c, &frame));
  assert_int_equal(frame.type, STUB_WORKER);
  assert_int_equal(kill(stub.pid, SIGUSR1), 0);
  assert_int_equal(kill(stub.pid, SIGHUP), 0);
  assert_int_equal(kill(stub.pid, SIGTERM), 0); /* not from its parent */
  OK(protocol_send(c, STUB_END, json_pack("{s:i}", "status", 0)));
  OK(channel_advance(c));
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  channel_close(c);
  close(listener);
}

static void test_text_that_is_not_utf8_can_be_sent(void **state) {
  (void)state;
  json_t *text = protocol_make_text("cannot open caf\xc3");
  assert_string_equal(json_string_value(text), "cannot open caf\\xc3");
  json_decref(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_agent_that_joined_ends_with_the_status_of_the_launch),
      cmocka_unit_test(test_agent_reports_the_end_of_a_process_whose_orphan_prints_without_end),
      cmocka_unit_test(test_agent_of_the_head_leaves_the_status_to_the_head),
      cmocka_unit_test(test_agent_kills_what_its_processes_left_behind),
      cmocka_unit_test(test_agent_spares_children_that_it_did_not_start),
      cmocka_unit_test(test_agent_as_process_1_spares_orphans_of_others),
      cmocka_unit_test(test_agent_missing_program_is_reported_once),
      cmocka_unit_test(test_agent_serves_while_a_program_is_not_loaded),
      cmocka_unit_test(test_agent_worker_without_mpirun_is_killed_unless_it_saves),
      cmocka_unit_test(test_agent_process_that_cannot_be_killed_is_reported_once),
      cmocka_unit_test(test_agent_user_signal_is_ignored),
      cmocka_unit_test(test_text_that_is_not_utf8_can_be_sent),
      cmocka_unit_test(test_agent_hangup_asks_to_leave),
      cmocka_unit_test(test_agent_ignored_hangup_stays_ignored),
      cmocka_unit_test(test_agent_below_a_parent_gets_its_signals),
      cmocka_unit_test(test_agent_that_cannot_start_leaves_standard_input_open),
      cmocka_unit_test(test_agent_of_srun_that_cannot_start_tells_the_head_why),
      cmocka_unit_test(test_agent_of_a_user_says_that_it_leaves_and_has_left),
      cmocka_unit_test(test_agent_daemons_outlive_the_signals_of_a_batch_system),
      cmocka_unit_test(test_agent_without_descriptors_pauses_and_accepts_later),
      cmocka_unit_test(test_agent_dir_without_room_names_the_reason_and_leaves_nothing),
      cmocka_unit_test(test_stub_adopted_by_the_agent_starts_no_rank),
      cmocka_unit_test(test_stub_of_a_running_mpirun_ignores_announcements),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
