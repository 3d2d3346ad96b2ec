/* Creates and removes the private directory of an agent. Depends on base/file. */
#include "launch/agent_dir.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static const char *choose_base(void) {
  const char *tmp = getenv("TMPDIR");
  if (access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  return tmp && *tmp ? tmp : "/tmp";
}

static void name_prefix(char prefix[32]) {
  snprintf(prefix, 32, "trireme-%u-", (unsigned)geteuid());
}

/* Removes a directory if its lock is free, which means that the agent that created it has
 * ended. A directory without a lock file is just being created. */
static void remove_if_stale(const char *path) {
  char lock[FILE_PATH_MAX];
  struct stat about;
  int fd;
  bool busy;
  if (lstat(path, &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != geteuid()) return;
  if (file_join(lock, path, "lock") || !file_exists(lock)) return;
  if (file_lock(lock, &fd, &busy) || busy) return;
  if (file_remove_all(path)) log_warn("%s", err_message());
  close(fd);
}

static void remove_stale(const char *base) {
  char prefix[32], path[FILE_PATH_MAX];
  name_prefix(prefix);
  DIR *dir = opendir(base);
  if (!dir) return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (!str_starts(entry->d_name, prefix)) continue;
    if (!file_join(path, base, entry->d_name)) remove_if_stale(path);
  }
  closedir(dir);
}

/* Locks the new directory. *is_lost: another agent has removed it, because it was not locked
 * yet. */
static Err lock_dir(AgentDir *d, bool *is_lost) {
  char lock[FILE_PATH_MAX];
  bool is_busy = false;
  *is_lost = false;
  TRY(file_join(lock, d->path, "lock"));
  Err err = file_lock(lock, &d->lock, &is_busy);
  *is_lost = is_busy || !file_exists(err ? d->path : lock);
  if (*is_lost && d->lock >= 0) {
    close(d->lock);
    d->lock = -1;
  }
  return *is_lost ? ERR_OK : err;
}

#define ATTEMPTS 10

Err agent_dir_make(AgentDir *d) {
  char prefix[32];
  const char *base = choose_base();
  *d = (AgentDir){.lock = -1};
  remove_stale(base);
  name_prefix(prefix);
  for (int i = 0; i < ATTEMPTS; i++) {
    bool is_lost;
    snprintf(d->path, sizeof d->path, "%.*s/%sXXXXXX", FILE_PATH_MAX - 64, base, prefix);
    if (!mkdtemp(d->path)) {
      Err err = err_errno("cannot make a directory", d->path);
      d->path[0] = '\0';
      return err;
    }
    Err err = lock_dir(d, &is_lost);
    if (!err && !is_lost) return ERR_OK;
    rmdir(d->path); /* the directory is empty, or another agent has removed it */
    d->path[0] = '\0';
    TRY(err);
  }
  return err_set(ERR_WORK, "cannot lock a directory in %s; check its permissions", base);
}

Err agent_dir_renew(const AgentDir *d, const char *name) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, d->path, name));
  if (file_exists(path)) TRY(file_remove_all(path));
  if (mkdir(path, 0700) != 0) return err_errno("cannot make", path);
  return ERR_OK;
}

void agent_dir_remove(AgentDir *d) {
  if (d->path[0] && file_remove_all(d->path)) log_warn("%s", err_message());
  d->path[0] = '\0';
  if (d->lock >= 0) close(d->lock);
  d->lock = -1;
}
