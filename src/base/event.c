/* Writes the events of a worker to the pipe of its launcher. Depends on utf8, progress, POSIX. */
#include "base/event.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/progress.h"
#include "base/utf8.h"

/* Maximum bytes of an event. At most PIPE_BUF, so the events of several threads do not
 * interleave. */
#define LINE 1024
_Static_assert(LINE <= PIPE_BUF, "a report is written to the pipe as a whole");

static int get_pipe(void) {
  const char *text = getenv("TRIREME_EVENT_FD");
  char *end;
  long fd = text && *text ? strtol(text, &end, 10) : -1;
  return fd > 2 && fd <= INT_MAX && !*end ? (int)fd : -1;
}

bool event_has_launcher(void) {
  return get_pipe() >= 0;
}

static void write_report(const char *line, int len) {
  int fd = get_pipe();
  if (fd < 0 || len <= 0 || len >= LINE) return;
  ssize_t written = write(fd, line, (size_t)len);
  /* The write fails only if the launcher has ended. Its end kills this process too
   * (PR_SET_PDEATHSIG). */
  (void)written;
}

void event_step(uint64_t step) {
  char line[LINE];
  write_report(line, snprintf(line, sizeof line,
                              "{\"event\": \"step\", \"step\": %" PRIu64 "}\n", step));
}

static void write_plain(const char *kind) {
  char line[LINE];
  write_report(line, snprintf(line, sizeof line, "{\"event\": \"%s\"}\n", kind));
}

void event_joined(void) {
  write_plain("joined");
}

void event_run(void) {
  write_plain("run");
}

#define ALIVE_PERIOD 10.0 /* seconds */

void event_alive(void) {
  static _Atomic double last;
  double now = progress_clock();
  if (now - last < ALIVE_PERIOD) return;
  last = now;
  write_plain("alive");
}

/* Copies `text` for use inside a JSON string; quotes, backslashes and control characters become
 * spaces. UTF-8 is copied unchanged. */
static void copy_plain(char *out, size_t room, const char *text) {
  size_t n = 0;
  for (; *text && n + 1 < room; text++) {
    unsigned char c = (unsigned char)*text;
    out[n++] = (char)(c < ' ' || c == '"' || c == '\\' || c == 127 ? ' ' : c);
  }
  /* JSON must be UTF-8: the text ends before a character that is cut off or invalid. */
  out[utf8_valid(out, n)] = '\0';
}

void event_copy(uint64_t step, const char *dir) {
  char line[LINE], plain[LINE - 128];
  copy_plain(plain, sizeof plain, dir);
  write_report(line, snprintf(line, sizeof line,
                              "{\"event\": \"copy\", \"step\": %" PRIu64 ", \"dir\": \"%s\"}\n",
                              step, plain));
}

void event_final(const char *text) {
  char line[LINE], plain[LINE - 128];
  copy_plain(plain, sizeof plain, text);
  write_report(
      line, snprintf(line, sizeof line, "{\"event\": \"final\", \"text\": \"%s\"}\n", plain));
}

void event_lost(int rank, const char *text) {
  char line[LINE], plain[LINE - 128];
  copy_plain(plain, sizeof plain, text);
  write_report(
      line, snprintf(line, sizeof line,
                     "{\"event\": \"lost\", \"rank\": %d, \"text\": \"%s\"}\n", rank, plain));
}
