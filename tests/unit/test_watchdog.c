/* The watchdog (comm/watchdog.h) with a fake transport whose messages the test chooses. Its
 * errors end the process, so each case runs in a child.
 * run-tests: waits */
#include "comm/watchdog.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/progress.h"
#include "support.h"

enum { ABORTED = 7 }; /* exit status after Transport.abort */

enum { RANKS = 3 };
static int ranks = 2; /* number of ranks of the run; at most RANKS */
static int own_rank;  /* rank of the watchdog under test */

/* The heartbeat that a rank has sent, and the number of calls of Transport.test after which it
 * is delivered. */
static struct {
  int from;
  Heartbeat beat;
  int calls_left; /* negative: no heartbeat */
} mail = {.from = 1};
static void *buffer_of[RANKS]; /* buffers that receive each rank's heartbeat */
/* If not 0: the rank sends heartbeats every 0.1 s, and HEARTBEAT_FAILED after this time in
 * seconds. */
static double mail_fails_at;

/* The sends to a rank. */
static struct {
  int calls_left; /* calls of Transport.test until the pending send is complete */
  int calls;      /* calls of Transport.test so far */
} sending[RANKS];
static double
    sends_end_at; /* the time by progress_clock() until which sends to rank 2 are pending */
static double test_takes; /* seconds that Transport.test of a send takes */
static bool has_trace; /* the fake transport prints what becomes of the reports of a failure */

static const char *fake_send(int to, int tag, const void *bytes, size_t n,
                             TransportRequest *q) {
  const Heartbeat *beat = bytes;
  (void)tag, (void)n;
  q->handle = &sending[to];
  if (has_trace && beat->kind == HEARTBEAT_FAILED)
    fprintf(stderr, "failure sent to rank %d\n", to);
  return NULL;
}

static const char *fake_receive(int from, int tag, void *bytes, size_t n, TransportRequest *q) {
  (void)tag, (void)n;
  q->handle = bytes;
  buffer_of[from] = bytes;
  return NULL;
}

static void send_repeated_mail(void) {
  static double last;
  double now = progress_clock();
  if (now - last < 0.1) return;
  last = now;
  if (now > mail_fails_at) mail.beat.kind = HEARTBEAT_FAILED;
  mail.calls_left = 0;
}

/* Returns false if the request is not a send. */
static bool test_send(const TransportRequest *q, bool *done) {
  for (int r = 0; r < RANKS; r++) {
    if (q->handle != &sending[r]) continue;
    sending[r].calls++;
    sleep_seconds(test_takes);
    *done = sending[r].calls_left == 0 && (r != 2 || progress_clock() >= sends_end_at);
    if (sending[r].calls_left > 0) sending[r].calls_left--;
    return true;
  }
  return false;
}

static const char *fake_test(TransportRequest *q, bool *done) {
  if (test_send(q, done)) return NULL;
  bool is_mail = q->handle == buffer_of[mail.from];
  if (is_mail && mail_fails_at > 0) send_repeated_mail();
  *done = is_mail && mail.calls_left >= 0 && mail.calls_left-- == 0;
  if (*done) memcpy(q->handle, &mail.beat, sizeof mail.beat);
  return NULL;
}

static void fake_abort(int status) {
  (void)status;
  if (has_trace) fprintf(stderr, "sends to rank 1 tested %d times\n", sending[1].calls);
  _exit(ABORTED);
}

static const Transport fake = {
    .send = fake_send, .recv = fake_receive, .test = fake_test, .abort = fake_abort};

/* Returns the pid of a process that has ended. */
static pid_t make_dead_pid(void) {
  pid_t pid = fork();
  if (pid == 0) _exit(0);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  return pid;
}

/* Runs the watchdog of own_rank until it ends the process, for at most 20 seconds. */
static void look(pid_t pid_of_rank1, double rank_timeout) {
  Identity identity[RANKS] = {0};
  Group group = {.size = ranks, .rank = own_rank, .transport = &fake, .identity = identity};
  Sequence sequence;
  Heartbeats heartbeats;
  Watchdog watchdog;
  identity_read(&identity[0]);
  for (int r = 1; r < ranks; r++) identity[r] = identity[0];
  identity[1].pid = (int32_t)pid_of_rank1;
  heartbeat_init(&heartbeats, rank_timeout, "start it again");
  if (sequence_init(&sequence, ranks, 32767) || heartbeat_begin(&heartbeats, &group, &sequence))
    _exit(3);
  watchdog_begin(&watchdog, &heartbeats);
  for (double end = progress_clock() + 20; progress_clock() < end;) {
    watchdog_look(&watchdog);
    sleep_seconds(0.01);
  }
  _exit(0);
}

/* Runs `look` in a child. Returns its exit status; `text` (size bytes) receives its standard
 * error. */
static int run_watchdog(pid_t pid_of_rank1, double rank_timeout, char *text, size_t size) {
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    look(pid_of_rank1, rank_timeout);
  }
  close(ends[1]);
  size_t len = 0;
  for (ssize_t n; len + 1 < size && (n = read(ends[0], text + len, size - len - 1)) > 0;)
    len += (size_t)n;
  text[len] = '\0';
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Name of this host in group_host. */
static const char *get_host_name(void) {
  static Identity identity;
  Group group = {.size = 1, .identity = &identity};
  identity_read(&identity);
  return group_host(&group, 0);
}

static void test_watchdog_dead_process_is_reported(void **state) {
  (void)state;
  char text[2048], wanted[64];
  pid_t dead = make_dead_pid();
  mail.calls_left = -1;
  assert_int_equal(run_watchdog(dead, 1000, text, sizeof text), ABORTED);
  snprintf(wanted, sizeof wanted, "process %d died; last reported: its start", (int)dead);
  assert_non_null(strstr(text, wanted));
  assert_non_null(strstr(text, "Run stopped; start it again"));
}

/* Rank 1 prints its error, sends HEARTBEAT_FAILED and exits before rank 0 receives it. */
static void test_watchdog_dead_process_that_reported_its_failure_is_not_reported_again(
    void **state) {
  (void)state;
  char text[2048];
  mail.beat = (Heartbeat){.kind = HEARTBEAT_FAILED};
  mail.calls_left = 3;
  assert_int_equal(run_watchdog(make_dead_pid(), 1000, text, sizeof text), ABORTED);
  assert_string_equal(text, "");
}

/* Rank 2 has reported that rank 1 hangs, and the launcher has already killed rank 1. */
static void test_watchdog_dead_process_that_another_rank_reported_is_not_reported_again(
    void **state) {
  (void)state;
  char text[2048];
  ranks = 3;
  mail.from = 2;
  mail.beat = (Heartbeat){.kind = HEARTBEAT_FAILED};
  mail.calls_left = 3;
  assert_int_equal(run_watchdog(make_dead_pid(), 1000, text, sizeof text), ABORTED);
  ranks = 2;
  mail.from = 1;
  assert_string_equal(text, "");
}

static void test_watchdog_last_heartbeat_of_dead_process_is_its_place(void **state) {
  (void)state;
  char text[2048];
  mail.beat = (Heartbeat){.kind = HEARTBEAT_ALIVE, .place = "step 840, backward"};
  mail.calls_left = 3;
  assert_int_equal(run_watchdog(make_dead_pid(), 1000, text, sizeof text), ABORTED);
  assert_non_null(strstr(text, "died; last reported: step 840, backward."));
}

static void test_watchdog_no_heartbeat_within_rank_timeout_is_reported(void **state) {
  (void)state;
  char text[2048];
  mail.calls_left = -1;
  assert_int_equal(run_watchdog(getpid(), 1, text, sizeof text), ABORTED);
  assert_non_null(strstr(text, "no heartbeat for "));
  assert_non_null(strstr(text, "(killed, stopped or network down); last reported: its start"));
}

static void test_watchdog_stall_prints_every_rank_before_the_error(void **state) {
  (void)state;
  char text[2048], place0[256], place1[256];
  const Op op = {.seq = 9, .bytes = 40, .kind = OP_SUM, .name = "losses"};
  mail.beat = (Heartbeat){.kind = HEARTBEAT_ALIVE, .ticks = 5, .place = "step 840, backward"};
  mail.beat.sequence.running = 9;
  mail.beat.sequence.op[9 % SEQUENCE_HISTORY] = op;
  mail.calls_left = 3;
  assert_int_equal(run_watchdog(getpid(), 2, text, sizeof text), ABORTED);
  const char *host = get_host_name();
  snprintf(place0, sizeof place0, "place    rank 0 on %s: its start, for ", host);
  snprintf(place1, sizeof place1,
           "\nplace    rank 1 on %s: step 840, backward, in 'losses' (sum, 40 B), for ", host);
  assert_ptr_equal(strstr(text, place0), text);
  const char *second = strstr(text, place1);
  const char *error = strstr(text, "\ntrireme: rank 1 on ");
  assert_non_null(second);
  assert_true(error > second);
  assert_non_null(strstr(second, " s, no heartbeat for "));
  assert_non_null(strstr(error, "last reported: step 840, backward, in 'losses' (sum, 40 B)."));
}

/* Rank 0 is alive but makes no progress, and sends HEARTBEAT_FAILED after `seconds`. */
static void run_as_rank1(double seconds, char *text, size_t size) {
  own_rank = 1;
  mail.from = 0;
  mail.beat = (Heartbeat){.kind = HEARTBEAT_ALIVE, .ticks = 5, .place = "step 840, backward"};
  mail_fails_at = progress_clock() + seconds;
  assert_int_equal(run_watchdog(getpid(), 1, text, size), ABORTED);
  own_rank = 0;
  mail.from = 1;
  mail_fails_at = 0;
}

/* Each of two ranks detects that the other makes no progress: only rank 0 prints the error. */
static void test_watchdog_rank_that_reports_this_one_is_not_reported(void **state) {
  (void)state;
  char text[2048];
  run_as_rank1(2.5, text, sizeof text);
  assert_string_equal(text, "");
}

static void test_watchdog_rank_0_without_progress_is_reported(void **state) {
  (void)state;
  char text[2048];
  run_as_rank1(1000, text, sizeof text);
  assert_non_null(strstr(text, "\ntrireme: rank 0 on "));
}

static void test_watchdog_dead_process_prints_no_places(void **state) {
  (void)state;
  char text[2048];
  mail.calls_left = -1;
  assert_int_equal(run_watchdog(make_dead_pid(), 1000, text, sizeof text), ABORTED);
  assert_null(strstr(text, "place "));
}

/* Rank 1 prints its error after its reports, which take up to 2 s: rank 0 must not abort it before
 * that. */
static void test_watchdog_failing_rank_has_time_to_print_its_error(void **state) {
  (void)state;
  char text[2048];
  double start = progress_clock();
  mail.beat = (Heartbeat){.kind = HEARTBEAT_FAILED};
  mail.calls_left = 0;
  assert_int_equal(run_watchdog(getpid(), 1000, text, sizeof text), ABORTED);
  assert_string_equal(text, "");
  assert_true(progress_clock() - start > 3);
}

/* Runs rank 0 of 3. Rank 1 has died. An earlier heartbeat to rank 1 is pending for so many calls of
 * Transport.test, that to rank 2 for so many seconds. */
static void run_with_pending_sends(int calls1, double seconds2, char *text, size_t size) {
  ranks = 3;
  has_trace = true;
  sending[1].calls_left = calls1;
  sends_end_at = progress_clock() + seconds2;
  mail.calls_left = -1;
  assert_int_equal(run_watchdog(make_dead_pid(), 1000, text, size), ABORTED);
  memset(sending, 0, sizeof sending);
  sends_end_at = 0;
  has_trace = false;
  ranks = 2;
}

/* If the report is not sent, rank 2 prints a second error. */
static void test_watchdog_failure_is_sent_after_a_heartbeat_that_is_pending(void **state) {
  (void)state;
  char text[2048];
  run_with_pending_sends(0, 0.5, text, sizeof text);
  assert_non_null(strstr(text, "failure sent to rank 2\n"));
}

/* Returns how often the sends to rank 1 were tested. */
static int count_tests(const char *text) {
  const char *line = strstr(text, "sends to rank 1 tested ");
  int calls = -1;
  assert_non_null(line);
  assert_int_equal(sscanf(line, "sends to rank 1 tested %d", &calls), 1);
  return calls;
}

static void test_watchdog_failure_does_not_wait_for_a_dead_rank(void **state) {
  (void)state;
  char text[2048];
  run_with_pending_sends(1000000, 0, text, sizeof text);
  assert_non_null(strstr(text, "failure sent to rank 2\n"));
  assert_in_range(count_tests(text), 0, 40);
}

/* On a loaded host a turn takes long: the report is limited by the clock, not by its turns. */
static void test_watchdog_failure_is_reported_for_a_limited_time(void **state) {
  (void)state;
  char text[2048];
  test_takes = 0.05;
  run_with_pending_sends(1000000, 1000, text, sizeof text);
  test_takes = 0;
  assert_null(strstr(text, "failure sent to rank 2\n"));
  assert_in_range(count_tests(text), 1, 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_watchdog_dead_process_is_reported),
      cmocka_unit_test(
          test_watchdog_dead_process_that_reported_its_failure_is_not_reported_again),
      cmocka_unit_test(
          test_watchdog_dead_process_that_another_rank_reported_is_not_reported_again),
      cmocka_unit_test(test_watchdog_last_heartbeat_of_dead_process_is_its_place),
      cmocka_unit_test(test_watchdog_no_heartbeat_within_rank_timeout_is_reported),
      cmocka_unit_test(test_watchdog_stall_prints_every_rank_before_the_error),
      cmocka_unit_test(test_watchdog_rank_that_reports_this_one_is_not_reported),
      cmocka_unit_test(test_watchdog_rank_0_without_progress_is_reported),
      cmocka_unit_test(test_watchdog_dead_process_prints_no_places),
      cmocka_unit_test(test_watchdog_failing_rank_has_time_to_print_its_error),
      cmocka_unit_test(test_watchdog_failure_is_sent_after_a_heartbeat_that_is_pending),
      cmocka_unit_test(test_watchdog_failure_does_not_wait_for_a_dead_rank),
      cmocka_unit_test(test_watchdog_failure_is_reported_for_a_limited_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
