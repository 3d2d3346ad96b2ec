/* The watchdog (comm/watchdog.h) with a fake transport whose messages the test chooses. Its
 * errors end the process, so each case runs in a child.
 * run-tests: waits */
#include "comm/watchdog.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/progress.h"
#include "comm/message.h"
#include "support.h"

enum { ABORTED = 7 }; /* exit status after Transport.abort */

enum { RANKS = 6 };
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

/* What a case sets beyond the above; zero: nothing. */
typedef struct {
  bool from_all;     /* all other ranks send `mail`, every 0.1 s */
  bool has_ticks;    /* each heartbeat reports progress of the main thread */
  bool has_phases;   /* each heartbeat reports progress of its collective */
  bool is_waiting;   /* this rank waits for the others */
  double pause;      /* seconds for which this process does nothing after the first look */
  double seconds;    /* how long it looks; 0: 20 */
  const char *fails; /* "send", "receive", "test": this call of the transport fails */
  int fails_after;   /* number of calls that succeed before */
  void (*collective)(Messages *m); /* runs a collective; NULL: none */
  void (*record)(Sequence *s);     /* records the collectives of this rank; NULL: none */
} More;
static More more;
static int heartbeats_to[RANKS]; /* number of heartbeats that were sent to each rank */

static const char *fail_call(const char *call) {
  if (!more.fails || strcmp(call, more.fails) != 0) return NULL;
  return more.fails_after-- > 0 ? NULL : "the link is down";
}

static const char *fake_send(int to, int tag, const void *bytes, size_t n,
                             TransportRequest *q) {
  const Heartbeat *beat = bytes;
  (void)n;
  q->handle = &sending[to];
  if (tag != TAG_HEARTBEAT) return fail_call("send");
  heartbeats_to[to] += beat->kind == HEARTBEAT_ALIVE;
  if (has_trace && beat->kind == HEARTBEAT_FAILED)
    fprintf(stderr, "failure sent to rank %d\n", to);
  return NULL;
}

static const char *fake_receive(int from, int tag, void *bytes, size_t n, TransportRequest *q) {
  (void)tag, (void)n;
  q->handle = bytes;
  if (tag == TAG_HEARTBEAT) buffer_of[from] = bytes;
  return fail_call("receive");
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

/* Delivers the mail of every rank, each at most once in 0.1 s. */
static void test_receive_from_all(const TransportRequest *q, bool *done) {
  static double last[RANKS];
  double now = progress_clock();
  for (int r = 0; r < RANKS; r++) {
    if (q->handle != buffer_of[r] || now - last[r] < 0.1) continue;
    last[r] = now;
    mail.beat.ticks += more.has_ticks;
    mail.beat.sequence.progress += more.has_phases;
    memcpy(q->handle, &mail.beat, sizeof mail.beat);
    *done = true;
  }
}

static const char *fake_test(TransportRequest *q, bool *done) {
  const char *wrong = fail_call("test");
  if (wrong) return wrong;
  if (test_send(q, done)) return NULL;
  if (more.from_all) {
    test_receive_from_all(q, done);
    return NULL;
  }
  bool is_mail = q->handle == buffer_of[mail.from];
  if (is_mail && mail_fails_at > 0) send_repeated_mail();
  *done = is_mail && mail.calls_left >= 0 && mail.calls_left-- == 0;
  if (*done) memcpy(q->handle, &mail.beat, sizeof mail.beat);
  return NULL;
}

static void print_heartbeats(void) {
  fprintf(stderr, "sent heartbeats:");
  for (int r = 0; r < ranks; r++) fprintf(stderr, " %d", heartbeats_to[r]);
  fprintf(stderr, "\n");
}

static void fake_abort(int status) {
  (void)status;
  if (has_trace) print_heartbeats();
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

/* Runs the watchdog of own_rank until it ends the process, for at most 20 seconds. The pid is that of
 * rank 1 or, for rank 1, of rank 0. */
static void look(pid_t pid_of_other, double rank_timeout) {
  Identity identity[RANKS] = {0};
  Group group = {.size = ranks, .rank = own_rank, .transport = &fake, .identity = identity};
  Sequence sequence;
  Heartbeats heartbeats;
  Watchdog watchdog;
  identity_read(&identity[0]);
  for (int r = 1; r < ranks; r++) identity[r] = identity[0];
  identity[own_rank == 1 ? 0 : 1].pid = (int32_t)pid_of_other;
  heartbeat_init(&heartbeats, rank_timeout, "start it again");
  if (sequence_init(&sequence, ranks, 32767) || heartbeat_begin(&heartbeats, &group, &sequence))
    _exit(3);
  watchdog_begin(&watchdog, &heartbeats);
  if (more.record) more.record(&sequence);
  if (more.is_waiting) heartbeat_begin_wait(&heartbeats);
  if (more.collective) {
    Messages m;
    if (message_init(&m, &group, &sequence, &watchdog)) _exit(3);
    more.collective(&m);
  }
  sleep_seconds(more.pause);
  double seconds = more.seconds > 0 ? more.seconds : 20;
  for (double end = progress_clock() + seconds; progress_clock() < end;) {
    watchdog_look(&watchdog);
    sleep_seconds(0.01);
  }
  if (has_trace) print_heartbeats();
  _exit(0);
}

typedef struct {
  pid_t pid;
  int errors; /* reads its standard error */
} Child;

/* Starts `look` in a child, with the settings of this moment. */
static Child start_watchdog(pid_t pid_of_other, double rank_timeout) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  Child child = {fork(), ends[0]};
  if (child.pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    look(pid_of_other, rank_timeout);
  }
  close(ends[1]);
  return child;
}

/* Returns the exit status of the child; `text` (size bytes) receives its standard error. */
static int finish_watchdog(const Child *child, char *text, size_t size) {
  int status;
  size_t len = 0;
  for (ssize_t n; len + 1 < size && (n = read(child->errors, text + len, size - len - 1)) > 0;)
    len += (size_t)n;
  text[len] = '\0';
  close(child->errors);
  assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs `look` in a child. Returns its exit status; `text` (size bytes) receives its standard
 * error. */
static int run_watchdog(pid_t pid_of_other, double rank_timeout, char *text, size_t size) {
  Child child = start_watchdog(pid_of_other, rank_timeout);
  return finish_watchdog(&child, text, size);
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
  assert_null(strstr(text, "place "));
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
  assert_between(count_tests(text), 0, 40);
}

/* On a loaded host a turn takes long: the report is limited by the clock, not by its turns. */
static void test_watchdog_failure_is_reported_for_a_limited_time(void **state) {
  (void)state;
  char text[2048];
  test_takes = 0.05;
  run_with_pending_sends(1000000, 1000, text, sizeof text);
  test_takes = 0;
  assert_null(strstr(text, "failure sent to rank 2\n"));
  assert_between(count_tests(text), 1, 40);
}

/* ---- cases that run at the same time ---- */

static void record_losses(Sequence *s) {
  for (int i = 0; i < SEQUENCE_HISTORY; i++) sequence_begin(s, OP_SUM, "losses", 40, 1);
}

static void record_exchange(Sequence *s) {
  static const size_t sent[RANKS] = {24, 24}, received[RANKS] = {0};
  sequence_begin(s, OP_EXCHANGE, "pieces", 0, 0);
  sequence_set_sizes(s, sent, received);
}

static void broadcast_losses(Messages *m) {
  char bytes[8] = "";
  sequence_begin(m->sequence, OP_BROADCAST, "losses", sizeof bytes, 0);
  message_broadcast(m, bytes, sizeof bytes);
}

typedef struct {
  const char *name;
  int ranks, rank;
  double rank_timeout;
  bool is_dead;     /* rank 1, or rank 0 for rank 1, has died */
  More more;        /* what the fake transport does */
  Op theirs;        /* a collective of the other ranks; its hash differs from this rank's */
  bool is_running;  /* it is running */
  int waiting;      /* number of threads of the other ranks that wait */
  double limit;     /* seconds until the next progress of the other ranks is due */
  uint64_t expects; /* bytes that the other ranks expect in exchange 1 */
  int status;
  /* Number of heartbeats to another rank: one in 0.2 s, and 30 while this rank yields to a lower one;
   * 0: not checked. */
  int least, most;
  const char *says[4]; /* parts of the text; '@' is the name of the host */
} Case;

static Child start_case(const Case *c) {
  ranks = c->ranks;
  own_rank = c->rank;
  more = c->more;
  has_trace = true;
  mail.calls_left = -1;
  mail.beat = (Heartbeat){
      .kind = HEARTBEAT_ALIVE, .place = "the test", .waiting = c->waiting, .limit = c->limit};
  SequenceReport *report = &mail.beat.sequence;
  report->op[c->theirs.seq % SEQUENCE_HISTORY] = c->theirs;
  if (c->is_running) report->running = 9;
  if (c->expects) report->expect_seq = 1;
  report->expect_bytes = c->expects;
  Child child = start_watchdog(c->is_dead ? make_dead_pid() : getpid(), c->rank_timeout);
  memset(&more, 0, sizeof more);
  has_trace = false;
  own_rank = 0;
  ranks = 2;
  return child;
}

static bool contains(const char *text, const char *part) {
  char wanted[1024];
  size_t n = 0;
  for (; *part && n < sizeof wanted - HOST_MAX; part++)
    n += (size_t)snprintf(wanted + n, HOST_MAX, "%.*s", *part == '@' ? HOST_MAX : 1,
                          *part == '@' ? get_host_name() : part);
  return strstr(text, wanted) != NULL;
}

static void check_heartbeats(const Case *c, const char *text) {
  int n[RANKS] = {0};
  const char *line = strstr(text, "sent heartbeats: ");
  assert_non_null(line);
  assert_true(sscanf(line, "sent heartbeats: %d %d %d %d %d %d", n, n + 1, n + 2, n + 3, n + 4,
                     n + 5) >= 2);
  assert_int_equal(n[c->rank], 0);
  for (int r = 0; r < c->ranks; r++)
    if (r != c->rank && c->most && (n[r] < c->least || n[r] > c->most))
      fail_msg("%s: %d heartbeats to rank %d", c->name, n[r], r);
}

static void finish_case(const Case *c, const Child *child) {
  static char text[8192];
  int status = finish_watchdog(child, text, sizeof text);
  if (status != c->status) fail_msg("%s: status %d: %s", c->name, status, text);
  for (int i = 0; i < 4; i++)
    if (c->says[i] && !contains(text, c->says[i]))
      fail_msg("%s: \"%s\" lacks \"%s\"", c->name, text, c->says[i]);
  if (!c->status && strstr(text, "trireme")) fail_msg("%s: %s", c->name, text);
  for (const char *at = text; (at = strstr(at, " for ")); at++) {
    double seconds;
    if (sscanf(at, " for %lf s", &seconds) == 1) assert_true(seconds < 60);
  }
  check_heartbeats(c, text);
}

#define OP(number, what, n, as) \
  { .seq = number, .kind = what, .bytes = n, .name = as, .hash = 1 }
#define DISAGREE "ranks disagree on collective "
#define MINE     ": rank 0 on @ runs 'losses' (sum, 40 B), rank 1 on @ runs "
#define ADVICE   ". Start all ranks from the same build"
#define LAYOUT   ", with another layout (division among the ranks, round or dtype)"
#define DEADLOCK "deadlock: every rank has been waiting for the others for "
#define GPUS     ". Run stopped; start it again; if it happens again on GPUs"
#define BROKEN   ": the link is down. Run stopped; start it again"

static const Case cases[] = {
    /* Collectives that differ, in every entry of the history. */
    {"name", 2, 0, 1000, .more = {.from_all = true, .record = record_losses},
     .theirs = OP(8, OP_SUM, 40, "norms"), .status = ABORTED, .least = 1, .most = 5,
     .says = {DISAGREE "8" MINE "'norms' (sum, 40 B)" ADVICE}},
    {"kind", 2, 0, 1000, .more = {.from_all = true, .record = record_losses},
     .theirs = OP(1, OP_BROADCAST, 40, "losses"), .status = ABORTED,
     .says = {DISAGREE "1" MINE "'losses' (broadcast, 40 B)" ADVICE}},
    {"size", 2, 0, 1000, .more = {.from_all = true, .record = record_losses},
     .theirs = OP(7, OP_SUM, 48, "losses"), .status = ABORTED,
     .says = {DISAGREE "7" MINE "'losses' (sum, 48 B)" ADVICE}},
    {"layout", 2, 0, 1000, .more = {.from_all = true, .record = record_losses},
     .theirs = OP(2, OP_SUM, 40, "losses"), .status = ABORTED,
     .says = {DISAGREE "2" MINE "'losses' (sum, 40 B)" LAYOUT ADVICE}},
    {"exchange", 2, 0, 1000, .more = {.from_all = true, .record = record_exchange},
     .expects = 32, .status = ABORTED, .least = 1, .most = 5,
     .says = {DISAGREE
              "1, 'pieces' (exchange): rank 0 on @ sends 24 bytes to rank 1 on @, which "
              "expects 32" ADVICE}},
    /* A rank yields to a lower one, and sends heartbeats meanwhile. */
    {"name, of rank 1", 3, 1, 1000, .more = {.from_all = true, .record = record_losses},
     .theirs = OP(8, OP_SUM, 40, "norms"), .status = ABORTED, .least = 25, .most = 35,
     .says =
         {"8: rank 1 on @ runs 'losses' (sum, 40 B), rank 0 on @ runs 'norms' (sum, 40 B)"}},
    {"exchange, of rank 1", 2, 1, 1000, .more = {.from_all = true, .record = record_exchange},
     .expects = 32, .status = ABORTED, .least = 25, .most = 35,
     .says = {"rank 1 on @ sends 24 bytes to rank 0 on @, which expects 32"}},
    {"deadlock, of rank 1", 2, 1, 0.05, .more = {.from_all = true, .is_waiting = true},
     .waiting = 1, .status = ABORTED, .least = 28, .most = 45, .says = {DEADLOCK}},
    {"death of rank 1, of rank 2", 3, 2, 1000, .is_dead = true, .status = ABORTED, .least = 25,
     .most = 35, .says = {"rank 1 on @: process"}},
    {"death of rank 0, of rank 1", 3, 1, 1000, .is_dead = true, .status = ABORTED, .least = 1,
     .most = 5, .says = {"rank 0 on @: process"}},
    /* Deadlocks, and waits that are none. */
    {"deadlock of 2", 2, 0, 0.05, .more = {.from_all = true, .is_waiting = true},
     .theirs = OP(9, OP_SUM, 40, "losses"), .is_running = true, .waiting = 1, .status = ABORTED,
     .least = 2, .most = 15,
     .says = {DEADLOCK,
              "rank 0 last reported: its start; rank 0 at its start, rank 1 in 'losses' "
              "(sum, 40 B)" GPUS}},
    {"places of 2", 2, 0, 0.15, .more = {.from_all = true, .is_waiting = true},
     .theirs = OP(9, OP_SUM, 40, "losses"), .is_running = true, .waiting = 1, .status = ABORTED,
     .says =
         {"place    rank 0 on @: its start, for ",
          ", waiting for other ranks\nplace    rank 1 on @: the test, in 'losses' (sum, 40 B), "
          "for "}},
    {"collective not stored", 2, 0, 0.05, .more = {.from_all = true, .is_waiting = true},
     .theirs = OP(1, OP_SUM, 40, "losses"), .is_running = true, .waiting = 1, .status = ABORTED,
     .says = {"rank 0 at its start, rank 1 at the test" GPUS, "rank 1 on @: the test, for "}},
    {"deadlock of 4", 4, 0, 0.05, .more = {.from_all = true, .is_waiting = true}, .waiting = 1,
     .status = ABORTED, .says = {"rank 2 at the test, rank 3 at the test" GPUS}},
    {"deadlock of 5", 5, 0, 0.05, .more = {.from_all = true, .is_waiting = true}, .waiting = 1,
     .status = ABORTED, .says = {"rank 2 at the test, rank 3 at the test, and 1 more" GPUS}},
    {"others work", 2, 0, 0.05,
     .more = {.from_all = true, .is_waiting = true, .has_ticks = true, .seconds = 1.5},
     .least = 1, .most = 8},
    {"this rank works", 2, 0, 0.05, .more = {.from_all = true, .seconds = 1.5}, .waiting = 1,
     .least = 1, .most = 8},
    {"collective goes on", 3, 0, 0.05,
     .more = {.from_all = true, .is_waiting = true, .has_phases = true, .seconds = 1.5},
     .waiting = 1, .least = 1, .most = 8},
    {"waits end", 3, 0, 0.05,
     .more = {.from_all = true, .is_waiting = true, .has_ticks = true, .seconds = 1.5},
     .waiting = 1, .least = 1, .most = 8},
    {"collective and waits go on", 3, 0, 0.05,
     .more = {.from_all = true,
              .is_waiting = true,
              .has_ticks = true,
              .has_phases = true,
              .seconds = 1.5},
     .waiting = 1},
    {"rank 0 works", 2, 1, 0.05,
     .more = {.from_all = true, .is_waiting = true, .has_ticks = true, .seconds = 1.5}},
    /* Ranks without progress or without heartbeats. */
    {"stall", 2, 0, 0.3, .more = {.from_all = true}, .limit = 0.2, .status = ABORTED,
     .least = 1, .most = 5,
     .says = {"trireme: rank 1 on @: alive, but no progress for ",
              " s (limit 0 s); last reported: the test.",
              "place    rank 1 on @: the test, for ", " s, working\n"}},
    {"stall, of rank 1", 2, 1, 0.3, .more = {.from_all = true}, .status = ABORTED, .least = 29,
     .most = 45, .says = {"trireme: rank 0 on @: alive, but no progress for "}},
    {"limit of a long operation", 2, 0, 0.05,
     .more = {.from_all = true, .is_waiting = true, .seconds = 1.5}, .limit = 60, .least = 1,
     .most = 8},
    {"no heartbeat", 2, 0, 0.3, .status = ABORTED, .least = 1, .most = 5,
     .says = {"trireme: rank 1 on @: no heartbeat for ",
              " s (killed, stopped or network down); last reported: its start."}},
    {"no heartbeat yet", 2, 0, 1000, .more = {.seconds = 1.7}},
    /* After a pause of this process the others have the whole rank timeout again. */
    {"pause", 2, 0, 2.15, .more = {.pause = 2.2, .seconds = 0.3}, .least = 1, .most = 3},
    /* MPI fails. */
    {"receive", 2, 0, 1000, .more = {.fails = "receive"}, .status = ABORTED,
     .says = {"MPI cannot receive heartbeats from rank 1 on @" BROKEN}},
    {"second receive", 2, 0, 1000,
     .more = {.from_all = true, .fails = "receive", .fails_after = 1}, .status = ABORTED,
     .says = {"MPI cannot receive heartbeats from rank 1 on @" BROKEN}},
    {"send of a collective", 2, 0, 1000,
     .more = {.fails = "send", .collective = broadcast_losses}, .status = ABORTED,
     .says = {"MPI failed in collective 'losses'" BROKEN}},
    {"receive of a collective", 2, 1, 1000,
     .more = {.fails = "receive", .fails_after = 1, .collective = broadcast_losses},
     .status = ABORTED, .says = {"MPI failed in collective 'losses'" BROKEN}},
    {"test of a collective", 2, 0, 1000,
     .more = {.fails = "test", .collective = broadcast_losses}, .status = ABORTED,
     .says = {"MPI failed in collective 'losses'" BROKEN}},
};
enum { CASES = sizeof cases / sizeof *cases };

static void test_watchdog_says_what_differs_waits_or_fails(void **state) {
  (void)state;
  Child child[CASES];
  for (size_t i = 0; i < CASES; i++) child[i] = start_case(&cases[i]);
  for (size_t i = 0; i < CASES; i++) finish_case(&cases[i], &child[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_watchdog_says_what_differs_waits_or_fails),
      cmocka_unit_test(test_watchdog_dead_process_is_reported),
      cmocka_unit_test(
          test_watchdog_dead_process_that_reported_its_failure_is_not_reported_again),
      cmocka_unit_test(
          test_watchdog_dead_process_that_another_rank_reported_is_not_reported_again),
      cmocka_unit_test(test_watchdog_last_heartbeat_of_dead_process_is_its_place),
      cmocka_unit_test(test_watchdog_stall_prints_every_rank_before_the_error),
      cmocka_unit_test(test_watchdog_rank_that_reports_this_one_is_not_reported),
      cmocka_unit_test(test_watchdog_failing_rank_has_time_to_print_its_error),
      cmocka_unit_test(test_watchdog_failure_is_sent_after_a_heartbeat_that_is_pending),
      cmocka_unit_test(test_watchdog_failure_does_not_wait_for_a_dead_rank),
      cmocka_unit_test(test_watchdog_failure_is_reported_for_a_limited_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
