/* Prints standard output and standard error of a launch, with a thread of its own.
 *
 * A terminal (Ctrl-S) or a pager may accept no output for hours, or never again. Lines then
 * wait in memory, at most SCREEN_MAX bytes. Further lines are dropped; when the terminal
 * continues, a notice shows their number. Log files have another thread (console_writer.h)
 * and receive every line.
 *
 * Threads: all functions are called by one thread. Only screen_close blocks. Depends on
 * base. */
#ifndef LAUNCH_CONSOLE_SCREEN_H
#define LAUNCH_CONSOLE_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct Screen Screen;
typedef enum { SCREEN_STDOUT, SCREEN_STDERR } ScreenStream;

typedef struct {
  const char *log_dir; /* directory that the notice about dropped lines names */
  /* Standard output is the result of the command, as with translate: dropping a line is an
   * error, and screen_close waits for its reader without a time limit. */
  bool has_results;
} ScreenSpec;

/* Output that was not printed. */
typedef struct {
  uint64_t lines;
  bool is_blocked; /* the terminal accepts no output, so further messages would block */
} ScreenLoss;

NODISCARD Err screen_open(Screen **s, const ScreenSpec *spec);
/* Queues bytes, which are written with one call of write() if possible. */
void screen_print(Screen *s, ScreenStream stream, const char *bytes, size_t len);
/* Writes the queue and ends the thread; accepts NULL. Gives up if the terminal accepts nothing
 * for SCREEN_WAIT seconds, or for one second if a signal to end is pending. Fails if standard
 * output could not be written or results were dropped. */
NODISCARD Err screen_close(Screen *s, ScreenLoss *loss);

#endif
