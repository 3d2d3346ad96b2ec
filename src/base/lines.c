/* Text files to which whole lines are appended. Depends on err, mem. */
#include "base/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* Opens the file without waiting for the reader of a FIFO. A FIFO is refused, as its reader
 * could block the program at any line; a device, such as /dev/null, is accepted. */
static Err open_to_append(const char *path, int *fd) {
  struct stat st = {0};
  *fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  bool is_fifo = *fd < 0 ? errno == ENXIO : fstat(*fd, &st) == 0 && S_ISFIFO(st.st_mode);
  if (!is_fifo && *fd >= 0 && fcntl(*fd, F_SETFL, O_APPEND) == 0) return ERR_OK;
  Err err = is_fifo ? err_set(ERR_WORK, "%s is a pipe, not a regular file; remove it", path)
                    : err_errno("cannot open", path);
  if (*fd >= 0) close(*fd);
  return err;
}

Err lines_open(LineFile *f, const char *path) {
  *f = (LineFile){.fd = -1};
  TRY(mem_dup(&f->path, path, strlen(path)));
  Err err = open_to_append(path, &f->fd);
  if (err) {
    mem_free(f->path);
    f->path = NULL;
    return err;
  }
  pthread_mutex_init(&f->lock, NULL);
  f->is_open = true;
  return ERR_OK;
}

/* Writes the line, normally with one write(), so that a process that dies leaves only whole
 * lines. On a full disk, or at the file size limit, write() may accept part of the line. The next
 * write() then fails with the reason, and the partial line is removed. */
static Err write_line(LineFile *f, const char *line, size_t len) {
  struct stat before;
  bool is_regular = fstat(f->fd, &before) == 0 && S_ISREG(before.st_mode);
  size_t written = 0;
  while (written < len) {
    ssize_t n = write(f->fd, line + written, len - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += (size_t)n;
  }
  if (written == len) return ERR_OK;
  Err err = err_errno("cannot write", f->path);
  if (written > 0 && is_regular && ftruncate(f->fd, before.st_size) != 0)
    err = err_context("an incomplete line remains in %s", f->path);
  return err;
}

Err lines_add(LineFile *f, const char *line, size_t len) {
  pthread_mutex_lock(&f->lock);
  Err err = write_line(f, line, len);
  if (err) f->lost++;
  pthread_mutex_unlock(&f->lock);
  return err;
}

Err lines_complete(LineFile *f) {
  struct stat st;
  char last = '\n';
  if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return ERR_OK;
  int fd = open(f->path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return err_errno("cannot read", f->path);
  ssize_t n = pread(fd, &last, 1, st.st_size - 1);
  Err err = n < 0 ? err_errno("cannot read", f->path) : ERR_OK;
  close(fd);
  if (!err && last != '\n') err = lines_add(f, "\n", 1);
  return err;
}

void lines_close(LineFile *f) {
  if (!f->is_open) return;
  f->is_open = false;
  close(f->fd);
  mem_free(f->path);
  f->path = NULL;
  pthread_mutex_destroy(&f->lock);
}
