/* Handlers for the signals that request a stop. Depends on log. */
#include "base/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/log.h"

/* Number of stop signals received so far. Atomic: every thread may read it or be interrupted by a
 * signal. */
static atomic_int asked;
/* SIGUSR1 was the first signal, and neither SIGINT nor SIGTERM has followed. A batch system may send
 * both; they ask for the same. */
static atomic_bool is_announced;
/* The messages that are printed at the first and the second signal; or NULL. */
static const char *const *_Atomic answers;
static const char *const *usual; /* The messages set by stop_watch_twice. */
/* Set by stop_answer_nothing. Not a change of `answers`: the main thread may replace those later. */
static atomic_bool is_silent;

/* Handles the signals that request a stop. SIGINT, SIGTERM and SIGUSR1 are blocked during the
 * call. */
static void handle_signal(int signal_number) {
  int error = errno;
  const char *const *answer = is_silent ? NULL : answers;
  int most = answer ? 2 : 1;
  if (signal_number == SIGUSR1 && asked) return;
  if (signal_number != SIGUSR1 && is_announced) {
    is_announced = false;
    /* Whoever pressed Ctrl-C may not have seen the answer to SIGUSR1. */
    if (answer && signal_number == SIGINT) log_answer(answer[0]);
    errno = error;
    return;
  }
  is_announced = signal_number == SIGUSR1;
  if (asked >= most) {
    signal(signal_number, SIG_DFL);
    /* The signal is blocked now and ends the process when the handler returns. */
    raise(signal_number);
    return;
  }
  asked = asked + 1;
  if (answer) log_answer(answer[asked - 1]);
  errno = error;
}

static void set_handlers(void (*handler)(int)) {
  static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction action = {.sa_flags = SA_RESTART};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    sigaddset(&action.sa_mask, signals[i]);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    sigaction(signals[i], &action, NULL);
}

void stop_watch(void) {
  answers = NULL;
  set_handlers(handle_signal);
}

void stop_watch_twice(const char *const answer[2]) {
  usual = answer;
  answers = answer;
  set_handlers(handle_signal);
}

void stop_answer_with(const char *const answer[2]) {
  answers = answer ? answer : usual;
}

void stop_answer_nothing(void) {
  is_silent = true;
}

void stop_unwatch(void) {
  set_handlers(SIG_DFL);
}

bool stop_asked(void) {
  return asked != 0;
}

bool stop_hurried(void) {
  return asked > 1;
}
