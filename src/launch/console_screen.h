/* Standard output and error of a launch, written by a thread of their own.
 *
 * A terminal (Ctrl-S) or a pager may take nothing for hours, or never again. Lines then wait in
 * memory, at most SCREEN_MAX bytes; further lines are dropped, and when the terminal continues a
 * line says how many. Log files have another thread (console_writer.h) and get every line.
 *
 * Threads: all functions are called by one thread. None but screen_close waits. Depends on base. */
#ifndef LAUNCH_CONSOLE_SCREEN_H
#define LAUNCH_CONSOLE_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct Screen Screen;
typedef enum { SCREEN_STDOUT, SCREEN_STDERR } ScreenStream;

typedef struct {
  const char *log_dir; /* named by the line about dropped lines */
  /* Standard output is the result of the command, as of translate: dropping a line of it is an
   * error, and the end waits for its reader without a limit. */
  bool has_results;
} ScreenSpec;

/* What was not printed. */
typedef struct {
  uint64_t lines;
  bool is_blocked; /* the terminal takes nothing, so whoever prints to it would wait */
} ScreenLoss;

NODISCARD Err screen_open(Screen **s, const ScreenSpec *spec);
/* Queues bytes; they are written by one call of write(). */
void screen_print(Screen *s, ScreenStream stream, const char *bytes, size_t len);
/* Writes what is queued and ends the thread. Gives up when the terminal has taken nothing for
 * SCREEN_WAIT seconds, or for one second if a signal to end is pending. An error: standard output
 * could not be written, or results were dropped. NULL is allowed. */
NODISCARD Err screen_close(Screen *s, ScreenLoss *loss);

#endif
