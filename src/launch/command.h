/* Runs another program to its end and collects what it prints. Depends on base. */
#ifndef LAUNCH_COMMAND_H
#define LAUNCH_COMMAND_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

#define COMMAND_OUTPUT_MAX \
  ((size_t)1 << 20) /* bytes kept of each stream; the rest is dropped */

typedef struct {
  Str out, err;      /* of standard output and standard error */
  int status;        /* exit status; 128 + the signal that ended it; 127: not found */
  bool is_timed_out; /* it was killed at the limit */
} CommandResult;

/* Runs argv[0], found by PATH, with an empty standard input, in a process group of its own, which
 * is killed after `seconds` or when this process dies. Blocks. Returns an error only if no process
 * could be started; free the result in any case. */
NODISCARD Err command_run(const char *const *argv, double seconds, CommandResult *result);
void command_free(CommandResult *result);
/* The last line that is not empty, of standard error or else of standard output: usually the
 * reason of a failure. Cut to `size`. */
void command_last_line(const CommandResult *result, char *out, size_t size);

#endif
