/* Runs a command (ssh), writes its standard input and reads its output until it ends. The kernel
 * kills the command if this process ends. Blocks; several threads may run sessions in parallel.
 * Depends on base, process. */
#ifndef LAUNCH_SESSION_H
#define LAUNCH_SESSION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

#define SESSION_OUTPUT_MAX ((size_t)1 << 20) /* bytes of output that are stored per stream */

typedef struct {
  const char *const *argv; /* ends with NULL; argv[0] is searched in PATH */
  const char *input;
  size_t input_len;
  /* Keeps standard input open until the command ends, so that the command can detect the end of
   * this program. */
  bool has_open_input;
  /* Time limit in seconds; 0: none. It applies from the start to the line `begin` of standard
   * output, and then to every pause in which no byte is sent or received. The line `begin` is not
   * passed to on_line. Without `begin` or on_line, the command has begun with its first byte. */
  double limit;
  const char *begin;
  bool may_pause; /* no time limit after the beginning */
  /* Largest number of bytes that the command may print in all; 0: no limit. */
  size_t output_limit;
  /* Called for each line of output, without its line break (LF or CR LF); stream is 1 or 2. NULL: output is
   * stored in SessionEnd. */
  void (*on_line)(void *argument, int stream, const char *line);
  void *argument;
} Session;

typedef struct {
  int status;        /* exit status; 128 + n after signal n */
  Str out, err;      /* stored output; empty if on_line is set */
  bool has_begun;    /* the line `begin`, or the first byte, was read */
  bool is_timed_out; /* the command was killed because the time limit was reached */
  bool is_too_long;  /* the command was killed because it printed more than the output limit */
} SessionEnd;

/* Runs the session. Fails only if the command cannot be started or, with ERR_STOPPED, after
 * stop_asked(): the command then receives SIGTERM, and 2 s later SIGKILL. An exit status other
 * than 0 is not an error. Call session_free in any case. */
NODISCARD Err session_run(const Session *s, SessionEnd *end);
void session_free(SessionEnd *end);

#endif
