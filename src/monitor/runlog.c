/* Reads the files of a run incrementally, line by line. What a line means is in runlog_metrics.c and
 * runlog_system.c. Depends on base, scan. */
#include "monitor/runlog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "monitor/runlog_internal.h"

#define BUFFER_BYTES (4 * RUNLOG_LINE) /* read at once; holds a line of any length */

typedef LineResult TakeLine(RunLog *log, Scan *scan);

Err runlog_open(RunLog *log, const char *dir) {
  char path[FILE_PATH_MAX];
  *log = (RunLog){0};
  if (!file_is_dir(dir))
    return err_set(ERR_WORK, "%s is not a directory; give the directory of a run (train --run)",
                   dir);
  Err err = ERR_OK;
  TRY_DONE(mem_dup(&log->dir, dir, strlen(dir)));
  TRY_DONE(file_join(path, dir, "metrics.jsonl"));
  TRY_DONE(mem_dup(&log->metrics.path, path, strlen(path)));
  TRY_DONE(file_join(path, dir, "system.jsonl"));
  TRY_DONE(mem_dup(&log->system.path, path, strlen(path)));
  TRY_DONE(mem_alloc(&log->buffer, BUFFER_BYTES, 1));
done:
  if (err) runlog_close(log);
  return err;
}

void runlog_close(RunLog *log) {
  runlog_drop_metrics(log);
  runlog_drop_hosts(log);
  mem_free(log->columns);
  mem_free(log->events);
  mem_free(log->hosts);
  mem_free(log->step);
  mem_free(log->seconds);
  mem_free(log->dir);
  mem_free(log->metrics.path);
  mem_free(log->system.path);
  mem_free(log->buffer);
  mem_free(log->readings);
  *log = (RunLog){0};
}

bool runlog_left_out(const RunLog *log, char *out, size_t room) {
  char names[RUNLOG_NAME + 128] = "", hosts[sizeof log->left_out_host + 128] = "", count[32];
  char series[RUNLOG_NAME + sizeof log->left_out_series_host + 128] = "";
  if (log->left_out_name[0])
    snprintf(
        names, sizeof names,
        "metrics.jsonl has values of more than %d names; those after the first %d are left "
        "out, such as %s.",
        RUNLOG_COLUMNS, RUNLOG_COLUMNS, log->left_out_name);
  if (log->left_out_host[0])
    snprintf(hosts, sizeof hosts,
             "system.jsonl has samples of more than %s hosts; those after them are left out, "
             "such as %s.",
             str_of_count(count, RUNLOG_HOSTS), log->left_out_host);
  if (log->left_out_series[0])
    snprintf(
        series, sizeof series,
        "system.jsonl has more than %d values of a host; those after the first %d are left "
        "out, such as %s of %s.",
        RUNLOG_COLUMNS, RUNLOG_COLUMNS, log->left_out_series, log->left_out_series_host);
  snprintf(out, room, "%s%s%s%s%s", names, *names && *hosts ? " " : "", hosts,
           (*names || *hosts) && *series ? " " : "", series);
  return *names || *hosts || *series;
}

static void note_damage(RunLog *log, const RunFile *f, uint64_t offset, const char *why) {
  if (log->damaged_lines++ == 0)
    snprintf(log->damage, sizeof log->damage, "%s: line %" PRIu64 ", byte %" PRIu64 ": %s",
             f->path, f->lines + 1, offset, why);
}

/* Processes the line of `len` bytes at the file's offset. */
static Err process_line(RunLog *log, RunFile *f, TakeLine *take, const char *line, size_t len) {
  if (f->is_skipping || len > RUNLOG_LINE) {
    if (!f->is_skipping) note_damage(log, f, f->offset, "the line is too long");
    f->is_skipping = false;
    return ERR_OK;
  }
  if (len == 0) return ERR_OK;
  Scan scan = scan_begin(line, len);
  switch (take(log, &scan)) {
    case LINE_FAILED:
      return err_context("%s: line %" PRIu64 ", byte %" PRIu64, f->path, f->lines + 1,
                         f->offset);
    case LINE_DAMAGED:
      note_damage(log, f, f->offset + (uint64_t)(scan.at - scan.begin), scan.why);
      return ERR_OK;
    case LINE_TAKEN:
      return ERR_OK;
  }
  return ERR_OK;
}

/* Processes the whole lines of a block. *used: their bytes. */
static Err process_block(RunLog *log, RunFile *f, TakeLine *take, const char *block, size_t len,
                         size_t *used) {
  *used = 0;
  for (;;) {
    const char *line = block + *used, *end = memchr(line, '\n', len - *used);
    if (!end) return ERR_OK;
    size_t bytes = (size_t)(end - line) + 1;
    TRY(process_line(log, f, take, line, bytes - 1));
    f->offset += bytes;
    f->lines++;
    *used += bytes;
  }
}

static Err read_block(int fd, const char *path, char *block, size_t room, uint64_t offset,
                      size_t *len) {
  *len = 0;
  while (*len < room) {
    ssize_t n = pread(fd, block + *len, room - *len, (off_t)(offset + *len));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return err_errno("cannot read", path);
    if (n == 0) break;
    *len += (size_t)n;
  }
  return ERR_OK;
}

/* Reads from the offset to the end of the file; a last line without its end stays. */
static Err read_lines(RunLog *log, RunFile *f, TakeLine *take, int fd) {
  for (;;) {
    size_t len, used;
    TRY(read_block(fd, f->path, log->buffer, BUFFER_BYTES, f->offset, &len));
    TRY(process_block(log, f, take, log->buffer, len, &used));
    bool is_too_long = used == 0 && len > RUNLOG_LINE;
    if (is_too_long) {
      if (!f->is_skipping) note_damage(log, f, f->offset, "the line is too long");
      f->is_skipping = true;
      f->offset += len;
      used = len;
    }
    if (used > 0) {
      f->tail_len = used < sizeof f->tail ? used : sizeof f->tail;
      memcpy(f->tail, log->buffer + used - f->tail_len, f->tail_len);
    }
    if (len < BUFFER_BYTES) return ERR_OK;
  }
}

/* Returns true if the file is the one that was read before: the same inode, not shorter, and the same
 * bytes before the offset. */
static bool is_same_file(const RunFile *f, int fd, const struct stat *st) {
  char tail[sizeof f->tail];
  size_t len;
  if (f->offset == 0) return true;
  if (st->st_dev != f->device || st->st_ino != f->inode || (uint64_t)st->st_size < f->offset)
    return false;
  Err err = read_block(fd, f->path, tail, f->tail_len, f->offset - f->tail_len, &len);
  return !err && len == f->tail_len && memcmp(tail, f->tail, len) == 0;
}

static void forget_file(RunLog *log, RunFile *f) {
  if (f == &log->metrics)
    runlog_drop_metrics(log);
  else
    runlog_drop_hosts(log);
  *f = (RunFile){.path = f->path};
  log->revision++;
}

/* Reads what was added to a file. If that fails, all of the file is forgotten, so that the next call
 * does not count lines twice. */
static Err read_file(RunLog *log, RunFile *f, TakeLine *take, bool *exists) {
  struct stat st;
  int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  *exists = fd >= 0;
  if (fd < 0) {
    if (errno != ENOENT) return err_errno("cannot read", f->path);
    if (f->offset) forget_file(log, f);
    return ERR_OK;
  }
  Err err = fstat(fd, &st) ? err_errno("cannot read", f->path) : ERR_OK;
  if (!err && !S_ISREG(st.st_mode))
    err = err_set(ERR_WORK, "cannot read %s: it is not a regular file", f->path);
  if (!err) {
    if (!is_same_file(f, fd, &st)) forget_file(log, f);
    f->device = st.st_dev;
    f->inode = st.st_ino;
    err = read_lines(log, f, take, fd);
    if (err) forget_file(log, f);
  }
  close(fd);
  return err;
}

Err runlog_read(RunLog *log) {
  if (!file_is_dir(log->dir))
    return err_set(ERR_WORK, "%s is no longer a directory: the run was removed", log->dir);
  TRY(read_file(log, &log->metrics, runlog_take_metrics, &log->has_metrics));
  return read_file(log, &log->system, runlog_take_sample, &log->has_system);
}
