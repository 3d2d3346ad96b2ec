/* A session with one machine: starts a command (ssh), writes its standard input, reads its output
 * until it ends. Blocks; each thread may have one of its own. Depends on base. */
#ifndef LAUNCH_SESSION_H
#define LAUNCH_SESSION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

#define SESSION_OUTPUT_MAX ((size_t)1 << 20) /* bytes of output that are kept of each stream */

typedef struct {
  const char *const *argv; /* ends with NULL; argv[0] is searched on PATH */
  const char *input;
  size_t input_len;
  /* Leaves standard input open until the command ends, so that it can notice the end of this
   * program. */
  bool has_open_input;
  /* Receives each line of output without its line break as it arrives; stream is 1 or 2. NULL:
   * output is kept in SessionEnd. */
  void (*on_line)(void *argument, int stream, const char *line);
  void *argument;
} Session;

typedef struct {
  int status;   /* exit status; 128 + n after signal n */
  Str out, err; /* what it printed; empty with on_line */
} SessionEnd;

/* Fails only if the command cannot be started, or with ERR_STOPPED if stop_asked(): it is then sent
 * SIGTERM. An exit status other than 0 is no error. Call session_free in any case. */
NODISCARD Err session_run(const Session *s, SessionEnd *end);
void session_free(SessionEnd *end);

#endif
