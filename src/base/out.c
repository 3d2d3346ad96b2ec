/* Standard output with write errors reported. Depends on err, utf8, POSIX. */
#include "base/out.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"

/* Name of the output in error messages. */
static char out_name[FILE_PATH_MAX] = "standard output";

Err out_to(const char *path) {
  if (!freopen(path, "w", stdout)) return err_errno("cannot create", path);
  snprintf(out_name, sizeof out_name, "%s", path);
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
