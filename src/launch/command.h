/* Runs another program until it ends and captures its output. Depends on base. */
#ifndef LAUNCH_COMMAND_H
#define LAUNCH_COMMAND_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

#define COMMAND_OUTPUT_MAX \
  ((size_t)1 << 20) /* bytes of each stream that are captured; the rest is dropped */

typedef struct {
  Str out, err;      /* captured standard output and standard error */
  int status;        /* exit status; 128 + n after signal n; 127: program not found */
  bool is_timed_out; /* the program was killed because the time limit was reached */
} CommandResult;

/* Runs argv[0], searched in PATH, with empty standard input and in its own process group, which
 * is killed after `seconds` or when this process dies. Blocks. Fails only if no process could
 * be started. Free the result in any case. */
NODISCARD Err command_run(const char *const *argv, double seconds, CommandResult *result);
void command_free(CommandResult *result);
/* Copies the last line that is not empty, of standard error or otherwise of standard output, to
 * `out`. It usually contains the reason of a failure. */
void command_last_line(const CommandResult *result, char *out, size_t size);

#endif
