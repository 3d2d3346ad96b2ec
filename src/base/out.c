/* Standard output with write errors reported. Depends on err, utf8, POSIX. */
#include "base/out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"

/* Name of the output in error messages. */
static char out_name[FILE_PATH_MAX] = "standard output";

static char target[FILE_PATH_MAX];  /* the file that out_finish makes; "": none */
static char partial[FILE_PATH_MAX]; /* its name until then */
static int partial_lock = -1;       /* descriptor that locks it; -1: not locked */

/* Returns true if the open file `fd` is the one at `path`; "-": standard input. */
static bool is_at_path(int fd, const char *path) {
  struct stat own, other;
  int failed = strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &other) : stat(path, &other);
  return !failed && fstat(fd, &own) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

#define PARTIAL_TRIES 100 /* another process may rename the file between open and flock */

/* Opens and locks the partial file. Returns its descriptor; -1: it cannot be created. *is_busy:
 * another process writes it. A file system without locks is no error. */
static int open_partial(bool *is_busy) {
  int fd = -1;
  *is_busy = false;
  for (int i = 0; i < PARTIAL_TRIES && !*is_busy; i++) {
    fd = open(partial, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    *is_busy = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!*is_busy && is_at_path(fd, partial)) return fd;
    close(fd); /* locked; or renamed by the process that wrote it, before it was locked here */
  }
  *is_busy = true;
  return -1;
}

static void unlock_partial(void) {
  if (partial_lock >= 0) close(partial_lock);
  partial_lock = -1;
}

static void release_partial(void) {
  unlock_partial();
  target[0] = '\0';
}

/* Returns true if the disk is full or fails: then PATH must not be truncated. After another error, such
 * as in a directory that cannot be written, it is written directly. */
static bool is_disk_error(int error) {
  return error == ENOSPC || error == EDQUOT || error == EIO;
}

/* Sets `target` and `partial` if `path` is a regular file, maybe behind links, or does not exist, and
 * the file beside it can be created. Does not truncate that file, which may be the input. */
static Err choose_partial(const char *path, const char *input) {
  char real[PATH_MAX];
  struct stat st;
  bool is_there = realpath(path, real) != NULL, is_busy = false;
  if (is_there && (stat(real, &st) != 0 || !S_ISREG(st.st_mode))) return ERR_OK;
  if (!is_there && lstat(path, &st) == 0) return ERR_OK; /* a link to a missing file */
  int n = snprintf(target, sizeof target, "%s", is_there ? real : path);
  int m = snprintf(partial, sizeof partial, "%s.partial", is_there ? real : path);
  bool is_short = n < FILE_PATH_MAX && m < FILE_PATH_MAX;
  partial_lock = is_short ? open_partial(&is_busy) : -1;
  if (is_busy) {
    release_partial();
    return err_set(ERR_USAGE, "--output %s: another process is writing %s; pass another file",
                   path, partial);
  }
  if (is_short && partial_lock < 0 && is_disk_error(errno)) {
    Err err = err_errno("cannot create", partial);
    release_partial();
    return err;
  }
  if (partial_lock >= 0 && is_at_path(partial_lock, input)) {
    release_partial();
    return err_set(ERR_USAGE,
                   "--output %s is written as %s until it is complete, and that is the input; "
                   "pass another file",
                   path, partial);
  }
  if (partial_lock >= 0 && is_there) (void)!fchmod(partial_lock, st.st_mode & 07777);
  if (partial_lock < 0) target[0] = '\0';
  return ERR_OK;
}

static void remove_empty_partial(void) {
  struct stat st;
  if (!target[0] || stat(partial, &st) != 0 || st.st_size) return;
  unlink(partial);
  release_partial();
}

Err out_to(const char *path, const char *input) {
  TRY(choose_partial(path, input));
  if (!freopen(target[0] ? partial : path, "w", stdout)) {
    Err err = err_errno("cannot create", path);
    remove_empty_partial();
    release_partial();
    return err;
  }
  snprintf(out_name, sizeof out_name, "%s", path);
  return ERR_OK;
}

const char *out_partial(void) {
  return target[0] ? partial : NULL;
}

void out_give_up(void) {
  fflush(stdout);
  remove_empty_partial();
  unlock_partial();
}

Err out_finish(void) {
  if (!target[0]) return ERR_OK;
  TRY(out_flush());
  if (fsync(STDOUT_FILENO) != 0 && errno != EINVAL) return err_errno("cannot write", out_name);
  TRY(file_rename(partial, target));
  release_partial();
  return ERR_OK;
}

void out_reserve(void) {
  for (int fd = 0; fd < 3; fd++) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    /* open() returns the lowest free descriptor, which is `fd`. It is opened for reading instead
     * of writing, or the reverse, so that using it still fails. */
    if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

Err out_check(void) {
  return ferror(stdout) ? err_errno("cannot write", out_name) : ERR_OK;
}

Err out_print(const char *text) {
  fputs(text, stdout);
  return out_check();
}

void out_visible(const char *text) {
  char shown[256];
  while (*text) {
    text += utf8_visible(text, shown, sizeof shown);
    fputs(shown, stdout);
  }
}

Err out_flush(void) {
  bool failed_before = ferror(stdout) != 0;
  if (fflush(stdout) != 0) return err_errno("cannot write", out_name);
  /* An earlier write failed, and errno no longer contains its reason. */
  return failed_before
             ? err_set(
                   ERR_WORK,
                   "cannot write %s: an earlier write failed; check the free space of the disk",
                   out_name)
             : ERR_OK;
}

bool out_is_reader_gone(void) {
  struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
  return ferror(stdout) && poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}
