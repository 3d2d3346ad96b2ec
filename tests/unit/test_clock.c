/* Timed waits and elapsed times must not depend on the system clock, which may be set while a
 * program runs. The test replaces clock_gettime by a version whose CLOCK_REALTIME is wrong.
 * run-tests: own program */
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/lease.h"
#include "base/progress.h"
#include "base/thread.h"
#include "support.h"

/* seconds by which the fake CLOCK_REALTIME is ahead of the kernel's */
static long set_forward;

int clock_gettime(clockid_t id, struct timespec *t) {
  long code = syscall(SYS_clock_gettime, id, t);
  if (id == CLOCK_REALTIME) t->tv_sec += set_forward;
  return (int)code;
}

/* Code that computes a deadline with the wrong clock would wait an hour; SIGALRM ends the test
 * earlier. */
static int begin(void **state) {
  (void)state;
  set_forward = 3600;
  alarm(120);
  return 0;
}

static int end(void **state) {
  (void)state;
  alarm(0);
  return 0;
}

static double seconds_passed(void) {
  struct timespec t;
  assert_int_equal(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t), 0);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_progress_clock_system_clock_set_does_not_jump(void **state) {
  (void)state;
  double first = progress_clock();
  set_forward = -3600;
  double second = progress_clock();
  set_forward = 7200;
  double third = progress_clock();
  assert_true(first <= second && second <= third && third < first + 1000);
}

static void test_cond_wait_for_system_clock_set_takes_its_time(void **state) {
  (void)state;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t cond;
  thread_cond_init(&cond);
  pthread_mutex_lock(&lock);
  double start = seconds_passed();
  thread_cond_wait_for(&cond, &lock, 0.2);
  assert_true(seconds_passed() - start >= 0.2);
  pthread_mutex_unlock(&lock);
  pthread_cond_destroy(&cond);
}

static void test_lease_end_system_clock_set_takes_its_time(void **state) {
  (void)state;
  Lease l;
  lease_open(&l);
  assert_true(lease_take(&l));
  double start = seconds_passed();
  assert_false(lease_end(&l, 0.2));
  assert_true(seconds_passed() - start >= 0.2);
  assert_true(lease_return(&l));
  lease_close(&l);
}

/* If standard error is a pipe, a line is printed every five seconds: not none and not
 * thousands. */
static void test_progress_wait_system_clock_set_prints_every_five_seconds(void **state) {
  (void)state;
  char text[512] = "";
  size_t n = 0;
  int ends[2], real = dup(STDERR_FILENO);
  ProgressWait wait;
  assert_int_equal(pipe(ends), 0);
  fflush(stderr);
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  double start = seconds_passed();
  progress_wait_begin(&wait, "learn");
  while (!strstr(text, "so far\n") && n < sizeof text - 1) {
    ssize_t got = read(ends[0], text + n, sizeof text - 1 - n);
    assert_true(got > 0);
    n += (size_t)got;
    text[n] = '\0';
  }
  double took = seconds_passed() - start;
  progress_wait_end(&wait);
  fflush(stderr);
  dup2(real, STDERR_FILENO);
  close(real);
  close(ends[0]);
  double said = 0;
  assert_int_equal(sscanf(text, "learn: %lf", &said), 1);
  assert_true(said >= 4.9 && took >= 5);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(test_progress_clock_system_clock_set_does_not_jump),
      TEST(test_cond_wait_for_system_clock_set_takes_its_time),
      TEST(test_lease_end_system_clock_set_takes_its_time),
      TEST(test_progress_wait_system_clock_set_prints_every_five_seconds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
