/* A new directory that is complete or absent. Depends on out_dir.h. */
#include "model/out_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

Err out_dir_begin(const char *out, char path[FILE_PATH_MAX]) {
  int len = snprintf(path, FILE_PATH_MAX, "%s", out);
  if (len < 0 || len >= FILE_PATH_MAX)
    return err_set(ERR_USAGE, "--out %s: the path is too long", out);
  while (len > 1 && path[len - 1] == '/') path[--len] = '\0';
  if (file_exists(path))
    return err_set(ERR_USAGE, "--out %s exists; pass the path of a new directory", out);
  return ERR_OK;
}

/* Returns false if the directory was renamed or removed since `fd` was opened. */
static bool is_same_dir(int fd, const char *dir) {
  struct stat a, b;
  return fstat(fd, &a) == 0 && stat(dir, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

/* Opens and locks the directory; the lock ends when *fd is closed. */
static Err lock_dir(const char *dir, int *fd) {
  *fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (*fd < 0) return err_errno("cannot open", dir);
  bool is_locked = flock(*fd, LOCK_EX | LOCK_NB) == 0;
  if (is_locked && is_same_dir(*fd, dir)) return ERR_OK;
  bool is_busy = is_locked || errno == EWOULDBLOCK;
  Err err = is_busy ? ERR_OK : err_errno("cannot lock", dir);
  close(*fd);
  if (err) return err;
  return err_set(
      ERR_USAGE,
      "%s is in use by another trireme process; wait for its end or choose another --out", dir);
}

/* Writes into the locked directory and renames it. What a killed process left in it is removed first. */
static Err write_locked(const char *partial, const char *path,
                        Err (*write)(const void *self, const char *dir), const void *self) {
  TRY(file_remove_inside(partial));
  TRY(write(self, partial));
  if (file_exists(path))
    return err_set(ERR_WORK, "%s was created by another process; choose another --out", path);
  return file_rename(partial, path);
}

Err out_dir_write(const char *path, Err (*write)(const void *self, const char *dir),
                  const void *self) {
  char partial[FILE_PATH_MAX];
  int fd, len = snprintf(partial, sizeof partial, "%s.partial", path);
  if (len < 0 || (size_t)len >= sizeof partial)
    return err_set(ERR_USAGE, "--out %s: the path is too long", path);
  TRY(file_mkdirs(partial));
  TRY(lock_dir(partial, &fd));
  Err err = write_locked(partial, path, write, self);
  if (err) {
    ErrRecord fault = err_take(err);
    if (file_exists(partial)) (void)!file_remove_all(partial);
    err = err_give(&fault);
  }
  close(fd);
  return err;
}
