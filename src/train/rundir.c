/* Checks, locks and creates the run directory. Depends on base, agree. */
#include "train/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/place.h"
#include "train/agree.h"

/* Returns true if `dir` is a run. A directory with checkpoints but without a config is a run
 * too: it can be resumed if the options are passed again. */
static bool is_run(const char *dir) {
  char path[FILE_PATH_MAX];
  if (!file_join(path, dir, "config") && file_exists(path)) return true;
  return !file_join(path, dir, "checkpoints") && file_is_dir(path);
}

/* Finds the run in the same directory whose name is most similar to that of `run`; at most a
 * third of the letters may differ. Sets `similar` to "" if there is none. */
static void find_similar(const char *run, char similar[FILE_PATH_MAX]) {
  char parent[FILE_PATH_MAX], path[FILE_PATH_MAX];
  similar[0] = '\0';
  if (file_join(parent, run, "")) return;
  size_t n = strlen(parent);
  while (n && parent[n - 1] == '/') parent[--n] = '\0';
  char *slash = strrchr(parent, '/');
  const char *name = slash ? slash + 1 : parent;
  size_t best = strlen(name) / 3 + 1;
  char typed[256];
  if (strlen(name) >= sizeof typed) return;
  snprintf(typed, sizeof typed, "%s", name);
  if (slash)
    slash[1] = '\0';
  else
    parent[0] = '\0';
  DIR *dir = opendir(*parent ? parent : ".");
  if (!dir) return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    size_t distance = str_distance(typed, entry->d_name);
    if (entry->d_name[0] == '.' || distance > best) continue;
    if (file_join(path, parent, entry->d_name) || !is_run(path)) continue;
    /* Among equally similar names take the first in alphabetical order, because readdir has no
     * fixed order. */
    if (distance == best && *similar && strcmp(path, similar) > 0) continue;
    best = distance;
    memcpy(similar, path, sizeof path);
  }
  closedir(dir);
}

static Err refuse_resume(const char *run) {
  char similar[FILE_PATH_MAX];
  find_similar(run, similar);
  return err_set(ERR_USAGE, "there is no run %s to resume%s%.*s%s", run,
                 *similar ? "; did you mean --run " : "", 512, similar,
                 *similar ? "?" : "; check --run, or leave --resume out to begin a new one");
}

/* Checks a directory that exists but has no config. Allowed entries are those that exist before
 * a run has begun: RUN/lock (left by a process that was killed early), RUN/launch* and
 * directories. */
static Err check_entry(void *context, const char *name) {
  const char *run = *(const char **)context;
  char path[FILE_PATH_MAX];
  TRY(file_join(path, run, name));
  if (strcmp(name, "lock") == 0 || str_starts(name, "launch") || file_is_dir(path))
    return ERR_OK;
  return err_set(
      ERR_USAGE,
      "%s is no run and holds other files (%s), so --auto-resume does not begin a run "
      "in it; choose another --run",
      run, name);
}

static Err check_unbegun(const char *run) {
  if (!file_is_dir(run))
    return err_set(ERR_USAGE, "%s is no directory; choose another --run", run);
  return place_list(run, check_entry, &run);
}

Err rundir_check(const char *run, RunStart start, bool *is_resumed) {
  *is_resumed = false;
  TRY(place_check(run));
  if (start == RUN_RESUME && !is_run(run)) return refuse_resume(run);
  if (start != RUN_RESUME && !file_exists(run)) return ERR_OK;
  if (start == RUN_NEW)
    return err_set(
        ERR_WORK, "%s exists already; continue it with --resume, or choose another --run", run);
  if (start == RUN_AUTO && !is_run(run)) TRY(check_unbegun(run));
  *is_resumed = true;
  return ERR_OK;
}

Err rundir_lock(const char *run, int *lock) {
  char path[FILE_PATH_MAX];
  bool busy;
  TRY(file_join(path, run, "lock"));
  TRY(file_lock_soon(path, lock, &busy));
  if (!busy) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s is in use by another trireme process; wait for its end or choose another --run", run);
}

Err rundir_is_used(const char *run, bool *is_used) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, run, "lock"));
  *is_used = file_is_locked(path);
  return ERR_OK;
}

Err rundir_enter(const char *run, bool is_resumed, const char *options,
                 const char *const *task_options) {
  char path[FILE_PATH_MAX];
  if (!is_resumed) return rundir_check(run, RUN_NEW, &is_resumed);
  TRY(file_join(path, run, "config"));
  return file_exists(path) ? agree_resume(path, options, task_options) : ERR_OK;
}

#define ID_LIMIT 4096 /* largest size of RUN/id in bytes, of a damaged one too */

Err rundir_read_id(const char *run, char id[RUN_ID_SIZE]) {
  char path[FILE_PATH_MAX];
  Str text = {0};
  id[0] = '\0';
  TRY(file_join(path, run, "id"));
  if (!file_exists(path)) return ERR_OK;
  Err err = file_read(path, ID_LIMIT, &text);
  if (!err && text.len == RUN_ID_SIZE && strspn(text.s, "0123456789abcdef") == RUN_ID_SIZE - 1)
    snprintf(id, RUN_ID_SIZE, "%.*s", RUN_ID_SIZE - 1, text.s);
  str_free(&text);
  return err;
}

static Err write_id(const char *run) {
  char path[FILE_PATH_MAX], id[RUN_ID_SIZE + 1];
  unsigned char bytes[RUN_ID_SIZE / 2];
  TRY(rundir_read_id(run, id));
  if (*id) return ERR_OK;
  TRY(file_join(path, run, "id"));
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
    return err_errno("cannot make", path);
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(id + 2 * i, 3, "%02x", bytes[i]);
  id[RUN_ID_SIZE - 1] = '\n';
  return file_write(path, id, RUN_ID_SIZE);
}

Err rundir_commit(const char *run, const char *options, int *lock) {
  char path[FILE_PATH_MAX];
  bool new_run = *lock < 0;
  TRY(file_join(path, run, "checkpoints"));
  TRY(file_mkdirs(path));
  if (new_run) TRY(rundir_lock(run, lock));
  TRY(file_join(path, run, "config"));
  if (new_run && file_exists(path)) /* another process has created it meanwhile */
    return err_set(ERR_WORK, "%s exists already; choose another --run", run);
  TRY(file_write(path, options, strlen(options)));
  return write_id(run);
}

Err rundir_check_place(const char *run, int lock) {
  char path[FILE_PATH_MAX];
  struct stat held, now;
  TRY(file_join(path, run, "lock"));
  if (fstat(lock, &held) != 0) return ERR_OK;
  bool is_there = stat(path, &now) == 0;
  if (!is_there && errno != ENOENT && errno != ENOTDIR) return ERR_OK;
  if (is_there && now.st_dev == held.st_dev && now.st_ino == held.st_ino) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s was moved or removed during training, so nothing more can be saved; continue "
      "with --resume from where its checkpoints are now",
      run);
}
