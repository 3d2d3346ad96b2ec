/* Reports to the launcher. Depends on POSIX. */
#include "base/event.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE 1024 /* bytes of a report; below PIPE_BUF, so that reports of threads do not mix */
_Static_assert(LINE <= PIPE_BUF, "a report is written to the pipe as a whole");

static int get_pipe(void) {
  const char *text = getenv("TRIREME_EVENT_FD");
  char *end;
  long fd = text && *text ? strtol(text, &end, 10) : -1;
  return fd > 2 && fd <= INT_MAX && !*end ? (int)fd : -1;
}

static void write_report(const char *line, int len) {
  int fd = get_pipe();
  if (fd < 0 || len <= 0 || len >= LINE) return;
  ssize_t written = write(fd, line, (size_t)len);
  (void)written; /* the launcher is gone, and will have ended this process in a moment */
}

void event_step(uint64_t step) {
  char line[LINE];
  write_report(line, snprintf(line, sizeof line,
                              "{\"event\": \"step\", \"step\": %" PRIu64 "}\n", step));
}

/* Copies `text` as the inside of a JSON string. Bytes above 127 are kept: text is UTF-8. */
static void copy_plain(char *out, size_t room, const char *text) {
  size_t n = 0;
  for (; *text && n + 1 < room; text++) {
    unsigned char c = (unsigned char)*text;
    out[n++] = (char)(c < ' ' || c == '"' || c == '\\' || c == 127 ? ' ' : c);
  }
  while (n && ((unsigned char)out[n - 1] & 0xc0) == 0x80 && *text) n--; /* a cut character */
  out[n] = '\0';
}

void event_copy(uint64_t step, const char *dir) {
  char line[LINE], plain[LINE - 128];
  copy_plain(plain, sizeof plain, dir);
  write_report(line, snprintf(line, sizeof line,
                              "{\"event\": \"copy\", \"step\": %" PRIu64 ", \"dir\": \"%s\"}\n",
                              step, plain));
}

void event_lost(int rank, const char *text) {
  char line[LINE], plain[LINE - 128];
  copy_plain(plain, sizeof plain, text);
  write_report(
      line, snprintf(line, sizeof line,
                     "{\"event\": \"lost\", \"rank\": %d, \"text\": \"%s\"}\n", rank, plain));
}
