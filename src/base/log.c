/* Messages on standard error. Relies on the C library. */
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool quiet;

void log_quiet(bool on) {
  quiet = on;
}

bool log_is_quiet(void) {
  return quiet;
}

bool log_is_terminal(void) {
  return isatty(STDERR_FILENO) != 0;
}

bool log_has_color(void) {
  const char *no = getenv("NO_COLOR");
  const char *term = getenv("TERM");
  return log_is_terminal() && !(no && *no) && !(term && term[0] == 'd' && term[1] == 'u');
}

static void say(const char *label, const char *color, const char *fmt, va_list args) {
  bool paint = color && log_has_color();
  flockfile(stderr);
  if (label) fprintf(stderr, "%s%s%s", paint ? color : "", label, paint ? "\033[0m" : "");
  vfprintf(stderr, fmt, args);
  fputc('\n', stderr);
  funlockfile(stderr);
}

#define SAY(label, color)         \
  do {                            \
    va_list args;                 \
    va_start(args, fmt);          \
    say(label, color, fmt, args); \
    va_end(args);                 \
  } while (0)

void log_info(const char *fmt, ...) {
  if (!quiet) SAY(NULL, NULL);
}

void log_warn(const char *fmt, ...) {
  SAY("warning: ", "\033[33m");
}

void log_error(const char *fmt, ...) {
  SAY("trireme: ", "\033[31m");
}
