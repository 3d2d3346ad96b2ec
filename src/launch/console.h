/* What the user sees of a launch: rank 0's output (or every rank's, with a prefix), the
 * supervisor's own lines, and a log file per rank.
 *
 * Files and terminals may block (Ctrl-S, a hung network drive), and the supervisor must not: its
 * heartbeats would stop and the agents would end the run. So lines are queued, and threads write
 * them: one to the terminal, one to the log files, which are complete whatever the terminal does.
 * Messages of base/log.h take the same way while a console is open.
 *
 * Threads: all functions are called by the supervisor's thread. Depends on base. */
#ifndef LAUNCH_CONSOLE_H
#define LAUNCH_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct Console Console;

typedef struct {
  const char *log_dir;
  /* If not NULL: the log directory is inside this run, which train must create itself. Lines are
   * kept in memory until RUN/config exists; if it never does, no file is written. */
  const char *run;
  bool has_results; /* see ScreenSpec */
  bool all_output;  /* print every rank, each line with the prefix "[N] " */
  bool is_quiet;    /* print none of the supervisor's lines but warnings and errors */
} ConsoleSpec;

NODISCARD Err console_open(Console **c, const ConsoleSpec *spec);
/* Writes what is queued. An error: lines of a log file, or results, were lost. Lines that a blocked
 * terminal did not take are none; if it still takes nothing, later messages of base/log.h are
 * muted. NULL is allowed. */
NODISCARD Err console_close(Console *c);

/* Output of a rank (or of mpirun) with the stream of protocol.h; cut into lines here. */
void console_add(Console *c, uint32_t rank, uint8_t stream, const uint8_t *bytes, size_t len);
/* Prints unfinished lines; call it when a generation has ended. */
void console_finish_lines(Console *c);
/* A line of the supervisor: on the console and, with the time, in launch.log. */
void console_say(Console *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The same, also if quiet. */
void console_warn(Console *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A line in the log file of each of `ranks` ranks and in launch.log: a new generation. */
void console_mark(Console *c, uint32_t ranks, const char *line);
/* The last lines that a rank (or mpirun: OUTPUT_OF_MPIRUN) wrote to standard error. */
void console_tail(Console *c, uint32_t rank, Str *out);

#endif
