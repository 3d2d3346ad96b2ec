/* Opens log files and closes those that were not used for the longest time. Depends on base/file,
 * base/lines. */
#include "launch/console_files.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOCK "lock"

Err log_files_init(LogFiles *l, const char *dir) {
  l->lock = -1;
  return file_join(l->dir, dir, "");
}

static Err refuse_dir(const char *dir) {
  return err_set(ERR_WORK,
                 "another launch is writing its log files to %s; wait for its end, or choose "
                 "another --run or --log-dir",
                 dir);
}

Err log_files_check(const char *dir) {
  char path[FILE_PATH_MAX];
  int lock;
  bool is_busy;
  TRY(file_join(path, dir, LOCK));
  if (!file_exists(path)) return ERR_OK;
  TRY(file_lock_soon(path, &lock, &is_busy));
  if (is_busy) return refuse_dir(dir);
  close(lock);
  return ERR_OK;
}

Err log_files_claim(LogFiles *l) {
  char path[FILE_PATH_MAX];
  bool is_busy;
  if (l->lock >= 0) return ERR_OK;
  TRY(file_mkdirs(l->dir));
  TRY(file_join(path, l->dir, LOCK));
  if (l->was_refused) /* it is in use, not only for an instant */
    TRY(file_lock(path, &l->lock, &is_busy));
  else
    TRY(file_lock_soon(path, &l->lock, &is_busy));
  l->was_refused = is_busy;
  return is_busy ? refuse_dir(l->dir) : ERR_OK;
}

/* Returns the file with this name, which may not be open yet. If all are in use, the one that was
 * not used for the longest time is closed. */
static LogFile *find_file(LogFiles *l, const char *name) {
  LogFile *oldest = &l->file[0];
  for (size_t i = 0; i < LOG_FILES_OPEN; i++) {
    LogFile *f = &l->file[i];
    if (f->file.is_open && strcmp(f->name, name) == 0) return f;
    if (f->used < oldest->used) oldest = f;
  }
  lines_close(&oldest->file);
  snprintf(oldest->name, sizeof oldest->name, "%s", name);
  return oldest;
}

Err log_files_add(LogFiles *l, const char *name, const char *line, size_t len) {
  char path[FILE_PATH_MAX];
  LogFile *f = find_file(l, name);
  if (!f->file.is_open) {
    TRY(file_join(path, l->dir, name));
    TRY(lines_open(&f->file, path));
  }
  f->used = ++l->uses;
  return lines_add(&f->file, line, len);
}

void log_files_close(LogFiles *l) {
  for (size_t i = 0; i < LOG_FILES_OPEN; i++) lines_close(&l->file[i].file);
  if (l->lock >= 0) close(l->lock);
  l->lock = -1;
}
