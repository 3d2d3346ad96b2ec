/* Splits output into lines, keeps the last ones of each rank, and queues them for the threads
 * of console_screen.c and console_writer.c. Depends on both, and protocol. */
#include "launch/console.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "launch/console_screen.h"
#include "launch/console_writer.h"
#include "launch/protocol.h"

#define LINE_MAX_BYTES 65536 /* bytes; longer lines are truncated */
#define TAIL_LINES     12
#define TAIL_BYTES     2048

/* An output stream of a rank. */
typedef struct {
  Str line;     /* the last line of output, which is not complete yet */
  uint8_t kind; /* stream number of protocol.h, such as OUTPUT_STDOUT */
} Stream;

typedef struct {
  Stream stream[2]; /* [0]: standard output; [1]: standard error or the terminal */
  Str tail;         /* last bytes of standard error, at most TAIL_BYTES */
} RankOutput;

struct Console {
  Writer *writer; /* writes log files */
  Screen *screen;
  char log_dir[FILE_PATH_MAX];
  bool all_output, is_quiet;
  bool has_live_line; /* the terminal's cursor is at the end of rank 0's status line */
  bool has_lost_logs; /* a warning has reported it */
  RankOutput *rank;   /* entry 0 is mpirun, entry r + 1 is rank r */
  size_t ranks, capacity;
};

/* Returns the output of a rank; NULL: out of memory, and its output is dropped. */
static RankOutput *get_source(Console *c, uint32_t rank) {
  size_t i = rank == OUTPUT_OF_MPIRUN ? 0 : (size_t)rank + 1;
  if (i >= c->ranks) {
    if (mem_grow(&c->rank, &c->capacity, i + 1, sizeof *c->rank)) return NULL;
    memset(c->rank + c->ranks, 0, (i + 1 - c->ranks) * sizeof *c->rank);
    c->ranks = i + 1;
  }
  return &c->rank[i];
}

static void name_file(char name[64], uint32_t rank) {
  if (rank == OUTPUT_OF_MPIRUN)
    snprintf(name, 64, "mpirun.log");
  else
    snprintf(name, 64, "rank-%u.log", rank);
}

static void add_to_tail(RankOutput *s, const char *line, size_t len) {
  if (len > TAIL_BYTES) len = TAIL_BYTES;
  str_addn(&s->tail, line, len);
  if (s->tail.failed || s->tail.len <= TAIL_BYTES) return;
  const char *keep = s->tail.s + (s->tail.len - TAIL_BYTES);
  const char *start = strchr(keep, '\n');
  keep = start ? start + 1 : keep;
  size_t n = strlen(keep);
  memmove(s->tail.s, keep, n + 1);
  s->tail.len = n;
}

static bool is_printed(const Console *c, uint32_t rank) {
  return rank != OUTPUT_OF_MPIRUN && (c->all_output || rank == 0);
}

/* Ends rank 0's status line on the terminal before another line is printed. */
static void leave_live_line(Console *c) {
  if (c->has_live_line) screen_print(c->screen, SCREEN_STDERR, "\n", 1);
  c->has_live_line = false;
}

static void print_line(Console *c, uint32_t rank, uint8_t stream, const char *line,
                       size_t len) {
  char prefix[16] = "";
  Str text = {0};
  leave_live_line(c);
  if (c->all_output) snprintf(prefix, sizeof prefix, "[%u] ", rank);
  str_add(&text, prefix);
  str_addn(&text, line, len);
  screen_print(c->screen, stream == OUTPUT_STDOUT ? SCREEN_STDOUT : SCREEN_STDERR,
               str_text(&text), text.len);
  str_free(&text);
}

/* Returns the visible part of a line that a terminal has overwritten: the text after the last
 * carriage return and "erase line" sequence. */
static const char *skip_overwritten(const char *line, size_t *len) {
  size_t from = 0;
  for (size_t i = 0; i + 1 < *len; i++)
    if (line[i] == '\r' && line[i + 1] != '\n') from = i + 1;
  if (*len - from >= 3 && memcmp(line + from, "\033[K", 3) == 0) from += 3;
  *len -= from;
  return line + from;
}

/* Handles a complete line, with its line break. */
static void finish_line(Console *c, RankOutput *s, uint32_t rank, uint8_t stream,
                        const char *line, size_t len) {
  char name[64];
  name_file(name, rank);
  if (is_printed(c, rank) && stream != OUTPUT_TERMINAL) print_line(c, rank, stream, line, len);
  if (stream == OUTPUT_TERMINAL) line = skip_overwritten(line, &len);
  if (len <= 1) return;
  writer_log(c->writer, name, line, len);
  if (stream != OUTPUT_STDOUT) add_to_tail(s, line, len);
}

void console_add(Console *c, uint32_t rank, uint8_t stream, const uint8_t *bytes, size_t len) {
  RankOutput *s = get_source(c, rank);
  if (!s || !len) return;
  const char *at = (const char *)bytes, *end = at + len;
  Str *line = &s->stream[stream != OUTPUT_STDOUT].line;
  s->stream[stream != OUTPUT_STDOUT].kind = stream;
  if (stream == OUTPUT_TERMINAL) {
    screen_print(c->screen, SCREEN_STDERR, at, len);
    c->has_live_line = end[-1] != '\n';
  }
  while (at < end) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t n = stop ? (size_t)(stop + 1 - at) : (size_t)(end - at);
    str_addn(line, at, n);
    at += n;
    if (!stop && line->len >= LINE_MAX_BYTES) str_addc(line, '\n');
    if (!line->len || line->s[line->len - 1] != '\n') continue;
    finish_line(c, s, rank, stream, line->s, line->len);
    str_clear(line);
  }
}

void console_finish_lines(Console *c) {
  for (size_t i = 0; i < c->ranks; i++) {
    for (int k = 0; k < 2; k++) {
      Str *line = &c->rank[i].stream[k].line;
      if (!line->len) continue;
      str_addc(line, '\n');
      finish_line(c, &c->rank[i], i ? (uint32_t)(i - 1) : OUTPUT_OF_MPIRUN,
                  c->rank[i].stream[k].kind, line->s, line->len);
      str_clear(line);
    }
  }
}

#define MESSAGE_MAX 8192 /* bytes; longer messages are truncated */

/* Prints a line and appends it to launch.log. */
static void add_message(Console *c, bool is_shown, const char *label, const char *line) {
  char text[MESSAGE_MAX + 100];
  int n = snprintf(text, sizeof text, "%s%.*s\n", label, MESSAGE_MAX, line);
  if (is_shown) {
    leave_live_line(c);
    screen_print(c->screen, SCREEN_STDERR, text, (size_t)n);
  }
  writer_log_with_time(c->writer, "launch.log", text, (size_t)n);
}

/* Queues the messages of base/log.h, as console_say does with its own, so that the code that
 * logs them never waits for the terminal. */
static void take_message(void *console, const char *label, const char *line) {
  add_message(console, true, label, line);
}

static void print_labeled(Console *c, bool is_shown, const char *label, const char *fmt,
                          va_list args) {
  char raw[MESSAGE_MAX], visible[MESSAGE_MAX];
  vsnprintf(raw, sizeof raw, fmt, args);
  utf8_visible(raw, visible, sizeof visible);
  add_message(c, is_shown, label, visible);
}

void console_say(Console *c, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  print_labeled(c, !c->is_quiet, "launch   ", fmt, args);
  va_end(args);
}

void console_warn(Console *c, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  print_labeled(c, true, "warning: ", fmt, args);
  va_end(args);
}

void console_log_error(Console *c, const char *message) {
  add_message(c, false, "error: ", message);
}

void console_log(Console *c, const char *line) {
  add_message(c, false, "launch   ", line);
}

void console_print(Console *c, const char *line) {
  char shown[256];
  Str text = {0};
  while (*line) {
    line += utf8_visible(line, shown, sizeof shown);
    str_add(&text, shown);
  }
  str_addc(&text, '\n');
  leave_live_line(c);
  screen_print(c->screen, SCREEN_STDOUT, str_text(&text), text.len);
  writer_log_with_time(c->writer, "launch.log", str_text(&text), text.len);
  str_free(&text);
}

void console_mark(Console *c, uint32_t ranks, const char *line) {
  char visible[1000], text[1100], name[64];
  utf8_visible(line, visible, sizeof visible);
  int n = snprintf(text, sizeof text, "== %s\n", visible);
  for (uint32_t r = 0; r < ranks; r++) {
    name_file(name, r);
    writer_log(c->writer, name, text, (size_t)n);
  }
}

void console_tail(Console *c, uint32_t rank, Str *out) {
  RankOutput *s = get_source(c, rank);
  if (!s || !s->tail.len) return;
  const char *at = s->tail.s + s->tail.len - 1;
  for (int lines = 0; at > s->tail.s; at--)
    if (at[-1] == '\n' && ++lines == TAIL_LINES) break;
  str_add(out, at);
}

void console_own_run(Console *c) {
  writer_own_run(c->writer);
}

void console_report_losses(Console *c) {
  const char *error = c->has_lost_logs ? NULL : writer_error(c->writer);
  if (!error) return;
  c->has_lost_logs = true;
  console_warn(c, "lines of log files are lost: %s", error);
}

bool console_has_lost_logs(const Console *c) {
  return c->has_lost_logs;
}

bool console_has_logs(const Console *c) {
  return writer_has_dir(c->writer);
}

Err console_open(Console **out, const ConsoleSpec *spec) {
  Console *c;
  *out = NULL;
  TRY(mem_alloc(&c, 1, sizeof *c));
  c->all_output = spec->all_output;
  c->is_quiet = spec->is_quiet;
  snprintf(c->log_dir, sizeof c->log_dir, "%s", spec->log_dir);
  ScreenSpec screen = {.log_dir = spec->log_dir, .has_results = spec->has_results};
  Err err = screen_open(&c->screen, &screen);
  if (!err) err = writer_open(&c->writer, spec->log_dir, spec->run);
  if (err) {
    ErrRecord why = err_copy();
    ScreenLoss ignored;
    Err closed = screen_close(c->screen, &ignored);
    (void)closed; /* errors of closing do not matter, because nothing has been printed */
    mem_free(c);
    return err_give(&why);
  }
  log_divert(take_message, c);
  *out = c;
  return ERR_OK;
}

/* Ends the screen's thread first, because launch.log then gets the number of lines that were
 * not shown. */
static Err close_threads(Console *c) {
  char text[FILE_PATH_MAX + 200];
  ScreenLoss loss;
  Err err = screen_close(c->screen, &loss);
  ErrRecord why = err_copy();
  snprintf(text, sizeof text,
           "warning: %" PRIu64
           " lines were not shown, as the terminal took none for a while; "
           "the log files in %s have them\n",
           loss.lines, c->log_dir);
  if (loss.lines) writer_log_with_time(c->writer, "launch.log", text, strlen(text));
  if (loss.is_blocked) log_mute(); /* a last message would block on the terminal */
  Err lost = writer_close(c->writer);
  return err ? err_give(&why) : lost;
}

Err console_close(Console *c) {
  if (!c) return ERR_OK;
  console_finish_lines(c);
  leave_live_line(c);
  for (size_t i = 0; i < c->ranks; i++) {
    str_free(&c->rank[i].stream[0].line);
    str_free(&c->rank[i].stream[1].line);
    str_free(&c->rank[i].tail);
  }
  mem_free(c->rank);
  log_divert(NULL, NULL);
  Err err = close_threads(c);
  mem_free(c);
  return err;
}
