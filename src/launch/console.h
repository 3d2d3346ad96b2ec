/* Output of a launch: rank 0's output (or that of every rank, with a prefix), the supervisor's
 * own lines, and a log file per rank.
 *
 * Files and terminals may block (Ctrl-S, a hung network drive), but the supervisor must not:
 * without its heartbeats the agents would end the run. Lines are therefore queued, and threads
 * write them: one to the terminal, one to the log files, which are complete even if the
 * terminal blocks. While a console is open, messages of base/log.h are queued too.
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
  /* If not NULL: the log directory is inside this run directory, which train must create. If it is
   * no run yet, lines are stored in memory until console_own_run was called and RUN/config exists;
   * otherwise no log file is written. */
  const char *run;
  bool has_results; /* standard output is the result of the command (ScreenSpec.has_results) */
  bool all_output;  /* print the output of every rank, each line with the prefix "[N] " */
  bool is_quiet;    /* print only warnings and errors of the supervisor */
} ConsoleSpec;

/* Fails if another launch writes its log files to the directory. */
NODISCARD Err console_open(Console **c, const ConsoleSpec *spec);
/* Writes the queued lines and frees the console; accepts NULL. Fails if lines of a log file, or
 * of standard output as a result, were lost; lines that a blocked terminal did not show are not
 * an error. If the terminal still blocks, later messages of base/log.h are muted. */
NODISCARD Err console_close(Console *c);

/* Called when the ranks of this launch have created or locked the run. Before that a run may
 * belong to another launch. */
void console_own_run(Console *c);
/* Returns true if there are log files: the log directory exists, and belongs to this launch. */
bool console_has_logs(const Console *c);
/* Prints one warning if lines of log files could not be written. Call it regularly. */
void console_report_losses(Console *c);
/* Returns true if console_report_losses has printed its warning. */
bool console_has_lost_logs(const Console *c);
/* Adds output of a rank or of mpirun; `stream` is defined in protocol.h. Splits it into
 * lines. */
void console_add(Console *c, uint32_t rank, uint8_t stream, const uint8_t *bytes, size_t len);
/* Prints incomplete lines. Call it when a generation has ended. */
void console_finish_lines(Console *c);
/* Prints a line of the supervisor and appends it, with the time, to launch.log. Not printed if
 * quiet. */
void console_say(Console *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Writes the error that ends the launch to launch.log; the program prints it. */
void console_log_error(Console *c, const char *message);
/* Appends a line, with the time, to launch.log. */
void console_log(Console *c, const char *line);
/* Like console_say, but printed even if quiet. */
void console_warn(Console *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Prints a line of any length to standard output and appends it, with the time, to launch.log. */
void console_print(Console *c, const char *line);
/* Appends a line that marks a new generation to the log files of all `ranks` ranks. */
void console_mark(Console *c, uint32_t ranks, const char *line);
/* Appends the last lines that a rank (OUTPUT_OF_MPIRUN: mpirun) wrote to standard error. */
void console_tail(Console *c, uint32_t rank, Str *out);

#endif
