/* Messages on standard error. Depends on lines, str, utf8. */
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/lines.h"
#include "base/str.h"
#include "base/utf8.h"

#define LINE 8192 /* Maximum bytes of a message; a longer message is truncated. */

static bool quiet, mute;
static char speaker[96];
static LineFile file;
static bool holding;
static Str held; /* Log lines stored until the log file is open. */
static pthread_mutex_t hold_lock = PTHREAD_MUTEX_INITIALIZER;
/* True while the cursor is at the end of a status line. Signal handlers read it. */
static atomic_bool live;

static LogTaker taker;
static void *taker_context;

void log_divert(LogTaker take, void *context) {
  taker = take;
  taker_context = context;
}

void log_speaker(const char *name) {
  snprintf(speaker, sizeof speaker, "%s", name);
}

/* Appends a line, which ends with a line break, to the log file. The first line that cannot be
 * written is reported by a warning on standard error. */
static void add_to_file(const char *line, size_t len) {
  /* Writing a log line must not overwrite the error record that the caller may be reporting. */
  ErrRecord before = err_copy();
  if (lines_add(&file, line, len) && file.lost == 1 && !mute)
    fprintf(stderr, "%swarning: %s%s; lines of the log file are lost\n", live ? "\n" : "",
            speaker, err_message());
  err_give(&before);
}

Err log_to(const char *path) {
  lines_close(&file);
  TRY(lines_open(&file, path));
  pthread_mutex_lock(&hold_lock);
  const char *at = str_text(&held);
  for (size_t len; *at; at += len) {
    len = strcspn(at, "\n") + 1;
    add_to_file(at, len);
  }
  str_free(&held);
  holding = false;
  pthread_mutex_unlock(&hold_lock);
  return ERR_OK;
}

void log_hold(void) {
  holding = true;
}

uint64_t log_lost(void) {
  return file.lost;
}

void log_mute(void) {
  mute = true;
}

void log_to_end(void) {
  lines_close(&file);
  holding = false;
  str_free(&held);
}

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
  return log_is_live() && !(no && *no);
}

bool log_is_live(void) {
  const char *term = getenv("TERM");
  return log_is_terminal() && !(term && strcmp(term, "dumb") == 0);
}

int log_fit(const char *line) {
  struct winsize size = {0};
  int columns = 0, n = 0;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return (int)strlen(line);
  for (; line[n]; n++) {
    /* True at the first byte of a UTF-8 character (not a continuation byte). */
    bool begins = ((unsigned char)line[n] & 0xc0) != 0x80;
    if (begins && ++columns == size.ws_col) break;
  }
  return n;
}

static bool has_file(void) {
  return file.is_open || holding;
}

static void write_to_file(const char *label, const char *line) {
  char when[32], text[LINE + 128];
  struct tm now;
  time_t seconds = time(NULL);
  if (!gmtime_r(&seconds, &now)) return;
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &now);
  int n = snprintf(text, sizeof text, "%s  %s%s\n", when, label ? label : "", line);
  size_t len = n < 0 ? 0 : (size_t)n;
  if (len >= sizeof text) return; /* Cannot happen: a line is shorter than the buffer. */
  if (file.is_open) {
    add_to_file(text, len);
    return;
  }
  pthread_mutex_lock(&hold_lock);
  if (holding) str_addn(&held, text, len);
  pthread_mutex_unlock(&hold_lock);
}

/* Formats a message and escapes its control characters. Messages contain names from untrusted
 * archives and files, which must not send control sequences to the terminal. */
static void format_visible(char line[LINE], const char *fmt, va_list args) {
  char raw[LINE];
  vsnprintf(raw, sizeof raw, fmt, args);
  utf8_visible(raw, line, LINE);
}

/* Prints a whole line with one write(). mpirun merges the output of all ranks and could insert
 * another rank's text between two writes. */
static void print_line(const char *label, const char *color, const char *line) {
  char text[LINE + 256];
  if (taker) {
    taker(taker_context, label ? label : "", line);
    return;
  }
  const char *end = atomic_exchange(&live, false) ? "\n" : "";
  int n = label ? snprintf(text, sizeof text, "%s%s%s%s%s%s\n", end, color ? color : "", label,
                           color ? "\033[0m" : "", speaker, line)
                : snprintf(text, sizeof text, "%s%s\n", end, line);
  if (n > 0) fwrite(text, 1, (size_t)n, stderr);
}

static void print_message(const char *label, const char *color, const char *fmt, va_list args) {
  char line[LINE];
  if (mute) return;
  format_visible(line, fmt, args);
  if (label || !quiet) print_line(label, color && log_has_color() ? color : NULL, line);
  if (has_file()) write_to_file(label, line);
}

#define SAY(label, color)                   \
  do {                                      \
    va_list args;                           \
    va_start(args, fmt);                    \
    print_message(label, color, fmt, args); \
    va_end(args);                           \
  } while (0)

void log_info(const char *fmt, ...) {
  if (!quiet || has_file()) SAY(NULL, NULL);
}

void log_warn(const char *fmt, ...) {
  SAY("warning: ", "\033[33m");
}

void log_error(const char *fmt, ...) {
  SAY("trireme: ", "\033[31m");
}

void log_detail(const char *fmt, ...) {
  char line[LINE];
  va_list args;
  if (mute) return;
  va_start(args, fmt);
  format_visible(line, fmt, args);
  va_end(args);
  print_line(NULL, NULL, line);
  if (has_file()) write_to_file(NULL, line);
}

void log_record(const char *fmt, ...) {
  char line[LINE];
  va_list args;
  if (!has_file()) return;
  va_start(args, fmt);
  format_visible(line, fmt, args);
  va_end(args);
  write_to_file(NULL, line);
}

void log_live(const char *fmt, ...) {
  char line[LINE];
  va_list args;
  va_start(args, fmt);
  format_visible(line, fmt, args);
  va_end(args);
  if (!log_is_live() || quiet) {
    log_info("%s", line);
    return;
  }
  fprintf(stderr, "\r\033[K%.*s", log_fit(line), line);
  fflush(stderr);
  live = true;
  if (has_file()) write_to_file(NULL, line);
}

void log_answer(const char *line) {
  char text[256];
  size_t n = 0;
  if (quiet || mute) return;
  if (atomic_exchange(&live, false)) text[n++] = '\n';
  while (*line && n + 1 < sizeof text) text[n++] = *line++;
  text[n++] = '\n';
  ssize_t written = write(STDERR_FILENO, text, n);
  (void)written; /* A write error of standard error cannot be reported. */
}

void log_live_end(void) {
  if (atomic_exchange(&live, false)) fputc('\n', stderr);
}

/* Writes a line with one write(), like print_line. Async-signal-safe. */
static void write_line(int fd, const char *begin, const char *text) {
  const char *const part[] = {begin, "trireme: ", speaker, text, "\n"};
  char line[1024];
  size_t n = 0;
  for (size_t i = 0; i < sizeof part / sizeof *part; i++)
    for (const char *c = part[i]; *c && n < sizeof line; c++) line[n++] = *c;
  line[n - 1] = '\n'; /* Ends the line with a line break, also if the text was truncated. */
  ssize_t written = write(fd, line, n);
  (void)written; /* A write error of standard error cannot be reported. */
}

void log_from_signal(const char *text) {
  if (mute) return;
  write_line(STDERR_FILENO, live ? "\n" : "", text);
  if (file.is_open) write_line(file.fd, "", text);
}
