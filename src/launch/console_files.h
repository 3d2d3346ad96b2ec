/* The log files of a launch, in a directory that only one launch may use at a time. Few files are
 * open at once, so that thousands of ranks need no higher limit of open files. Threads: one.
 * Depends on base. */
#ifndef LAUNCH_CONSOLE_FILES_H
#define LAUNCH_CONSOLE_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "base/lines.h"

enum { LOG_FILES_OPEN = 32 }; /* largest number of files that are open at the same time */

typedef struct {
  char name[64];
  LineFile file;
  uint64_t used; /* value of LogFiles.uses at its last use */
} LogFile;

typedef struct {
  char dir[FILE_PATH_MAX];
  int lock;         /* descriptor of DIR/lock; -1: the directory was not claimed */
  bool was_refused; /* the last claim was refused: another launch uses the directory */
  LogFile file[LOG_FILES_OPEN];
  uint64_t uses;
} LogFiles;

NODISCARD Err log_files_init(LogFiles *l, const char *dir);
/* Fails if another launch uses the directory. Changes nothing. */
NODISCARD Err log_files_check(const char *dir);
/* Makes the directory and locks it until log_files_close; fails if another launch uses it. */
NODISCARD Err log_files_claim(LogFiles *l);
/* Appends a line, with its line break, to DIR/name. The directory must have been claimed. */
NODISCARD Err log_files_add(LogFiles *l, const char *name, const char *line, size_t len);
void log_files_close(LogFiles *l);

#endif
