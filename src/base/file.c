/* Files and directories; errors name the path and a remedy. Depends on err, mem, sha256, crc,
 * fault. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/fault.h"
#include "base/mem.h"

#define WRITE_BUFFER ((size_t)1 << 18)

bool file_exists(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0;
}

bool file_is_dir(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

Err file_size(const char *path, uint64_t *bytes) {
  struct stat st;
  if (stat(path, &st) != 0) return err_errno("cannot read", path);
  *bytes = (uint64_t)st.st_size;
  return ERR_OK;
}

Err file_join(char *out, const char *dir, const char *name) {
  size_t n = strlen(dir);
  const char *slash = n && dir[n - 1] != '/' ? "/" : "";
  int len = snprintf(out, FILE_PATH_MAX, "%s%s%s", dir, slash, name);
  if (len < 0 || len >= FILE_PATH_MAX)
    return err_set(ERR_WORK, "this path is too long; choose a shorter one: %s/%s", dir, name);
  return ERR_OK;
}

Err file_program(char *out) {
  ssize_t n = readlink("/proc/self/exe", out, FILE_PATH_MAX - 1);
  if (n < 0) return err_errno("cannot read", "/proc/self/exe");
  out[n] = '\0';
  return ERR_OK;
}

Err file_program_dir(char *out) {
  TRY(file_program(out));
  size_t n = strlen(out);
  while (n > 1 && out[n - 1] != '/') n--;
  out[n > 1 ? n - 1 : n] = '\0';
  return ERR_OK;
}

Err file_mkdirs(const char *path) {
  char part[FILE_PATH_MAX];
  if (!*path)
    return err_set(ERR_WORK, "cannot create a directory: its name is empty; give a path");
  TRY(file_join(part, path, ""));
  for (char *at = part + 1; *at; at++) {
    if (*at != '/') continue;
    *at = '\0';
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
      return err_errno("cannot create the directory", part);
    *at = '/';
  }
  if (!file_is_dir(path))
    return err_set(ERR_WORK,
                   "%s exists and is not a directory; remove it or choose another path", path);
  return ERR_OK;
}

Err file_remove_inside(const char *path) {
  DIR *dir = opendir(path);
  if (!dir) return err_errno("cannot read the directory", path);
  Err err = ERR_OK;
  for (struct dirent *entry; !err && (entry = readdir(dir));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    char inner[FILE_PATH_MAX];
    err = file_join(inner, path, entry->d_name);
    if (!err) err = file_remove_all(inner);
  }
  closedir(dir);
  return err;
}

Err file_remove_all(const char *path) {
  struct stat st;
  if (lstat(path, &st) != 0) return errno == ENOENT ? ERR_OK : err_errno("cannot remove", path);
  fault_point("file");
  if (!S_ISDIR(st.st_mode))
    return unlink(path) == 0 ? ERR_OK : err_errno("cannot remove", path);
  TRY(file_remove_inside(path));
  return rmdir(path) == 0 ? ERR_OK : err_errno("cannot remove", path);
}

Err file_sync_dir(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return err_errno("cannot open the directory", path);
  /* Some file systems cannot sync directories; fsync then fails with EINVAL. */
  int failed = fsync(fd) != 0 && errno != EINVAL;
  Err err = failed ? err_errno("cannot sync", path) : ERR_OK;
  close(fd);
  return err;
}

Err file_rename(const char *from, const char *to) {
  fault_point("file");
  if (rename(from, to) != 0) return err_errno("cannot rename to", to);
  char parent[FILE_PATH_MAX];
  TRY(file_join(parent, to, ""));
  size_t n = strlen(parent);
  while (n && parent[n - 1] == '/') n--;
  while (n && parent[n - 1] != '/') n--;
  if (n == 0) return file_sync_dir(".");
  parent[n] = '\0';
  return file_sync_dir(parent);
}

Err file_open(const char *path, int *fd, uint64_t *bytes) {
  struct stat st;
  *bytes = 0;
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0) return err_errno("cannot open", path);
  Err err = ERR_OK;
  if (fstat(*fd, &st) != 0)
    err = err_errno("cannot read", path);
  else if (S_ISDIR(st.st_mode))
    err = err_set(ERR_WORK, "%s is a directory, not a regular file; give the path of a file",
                  path);
  else if (!S_ISREG(st.st_mode))
    err = err_set(ERR_WORK,
                  "%s is not a regular file but a pipe or a device; save its contents to a "
                  "file and name that",
                  path);
  if (err) {
    close(*fd);
    *fd = -1;
    return err;
  }
  *bytes = (uint64_t)st.st_size;
  return ERR_OK;
}

Err file_read(const char *path, size_t limit, Str *into) {
  int fd;
  uint64_t size;
  TRY(file_open(path, &fd, &size));
  char block[16384];
  Err err = ERR_OK;
  for (;;) {
    ssize_t n = read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) err = err_errno("cannot read", path);
    if (n <= 0) break;
    if (into->len + (size_t)n > limit) {
      err = err_set(ERR_WORK,
                    "%s is larger than the %zu bytes allowed for such a file; check that it is "
                    "the right file",
                    path, limit);
      break;
    }
    str_addn(into, block, (size_t)n);
  }
  close(fd);
  return err ? err : str_check(into);
}

static Err write_in_place(const char *path, const char *bytes, size_t len) {
  FileWriter w;
  TRY(file_create(&w, path));
  Err err = file_put(&w, bytes, len);
  if (!err) err = file_finish(&w, NULL);
  file_abandon(&w);
  return err;
}

Err file_write(const char *path, const char *bytes, size_t len) {
  char beside[FILE_PATH_MAX];
  int n = snprintf(beside, sizeof beside, "%s.tmp.%ld", path, (long)getpid());
  if (n < 0 || n >= FILE_PATH_MAX)
    return err_set(ERR_WORK, "this path is too long; choose a shorter one: %s", path);
  Err err = write_in_place(beside, bytes, len);
  if (!err) err = file_rename(beside, path);
  if (err) unlink(beside);
  return err;
}

Err file_write_output(const char *path, const char *bytes, size_t len) {
  struct stat st;
  bool is_special = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
  return is_special ? write_in_place(path, bytes, len) : file_write(path, bytes, len);
}

Err file_lock(const char *path, int *fd, bool *busy) {
  *busy = false;
  *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (*fd < 0) return err_errno("cannot create", path);
  if (flock(*fd, LOCK_EX | LOCK_NB) == 0) return ERR_OK;
  *busy = errno == EWOULDBLOCK;
  Err err = *busy ? ERR_OK : err_errno("cannot lock", path);
  close(*fd);
  *fd = -1;
  return err;
}

bool file_is_locked(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool is_locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return is_locked;
}

#define LOCK_WAIT  1000 /* milliseconds for which file_lock_soon tries */
#define LOCK_PAUSE 10   /* milliseconds between two attempts */

Err file_lock_soon(const char *path, int *fd, bool *busy) {
  uint64_t limit = fault_number("lock-wait", LOCK_WAIT);
  for (uint64_t waited = 0;; waited += LOCK_PAUSE) {
    TRY(file_lock(path, fd, busy));
    if (!*busy || waited >= limit) return ERR_OK;
    poll(NULL, 0, LOCK_PAUSE);
  }
}

/* Bytes that file_check_memory leaves free: a sixteenth of the file system, RESERVE_MAX at most. */
#define RESERVE_MAX ((uint64_t)64 << 20)

Err file_check_memory(const char *dir, uint64_t bytes) {
  struct statvfs fs;
  char need[32];
  char available[32];
  char whole[32];
  char kept[32];
  if (statvfs(dir, &fs) != 0 || !fs.f_blocks) return ERR_OK;
  uint64_t total = (uint64_t)fs.f_blocks * fs.f_frsize;
  uint64_t unused = (uint64_t)fs.f_bavail * fs.f_frsize;
  uint64_t reserve = total / 16 < RESERVE_MAX ? total / 16 : RESERVE_MAX;
  if (unused >= reserve && unused - reserve >= bytes) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s do not fit into %s: %s of %s are free, and %s must stay free for MPI; "
                 "enlarge the file system (mount -o remount,size=SIZE /dev/shm; in a container "
                 "--shm-size SIZE)",
                 str_of_bytes(need, bytes), dir, str_of_bytes(available, unused),
                 str_of_bytes(whole, total), str_of_bytes(kept, reserve));
}

Err file_create(FileWriter *w, const char *path) {
  *w = (FileWriter){.fd = -1};
  sha256_begin(&w->sha);
  Err err = mem_dup(&w->path, path, strlen(path));
  if (!err) err = mem_alloc(&w->buffer, WRITE_BUFFER, 1);
  if (!err) {
    fault_point("file");
    w->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) err = err_errno("cannot create", path);
  }
  if (err) file_abandon(w);
  return err;
}

static Err write_all(FileWriter *w, const uint8_t *bytes, size_t len) {
  if (w->crc_only)
    w->crc = crc_add(w->crc, bytes, len);
  else
    sha256_add(&w->sha, bytes, len);
  while (len) {
    ssize_t n = write(w->fd, bytes, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return err_errno("cannot write", w->path);
    bytes += n;
    len -= (size_t)n;
  }
  return ERR_OK;
}

Err file_put(FileWriter *w, const void *bytes, size_t len) {
  w->bytes += len;
  if (w->used + len > WRITE_BUFFER) {
    TRY(write_all(w, w->buffer, w->used));
    w->used = 0;
    if (len > WRITE_BUFFER) return write_all(w, bytes, len);
  }
  if (len) memcpy(w->buffer + w->used, bytes, len);
  w->used += len;
  return ERR_OK;
}

Err file_finish(FileWriter *w, char hex[65]) {
  TRY(write_all(w, w->buffer, w->used));
  w->used = 0;
  fault_point("file");
  if (fsync(w->fd) != 0 && errno != EINVAL) return err_errno("cannot sync", w->path);
  int fd = w->fd;
  w->fd = -1;
  if (close(fd) != 0) return err_errno("cannot close", w->path);
  if (hex && w->crc_only)
    snprintf(hex, 65, "%08x", (unsigned)w->crc);
  else if (hex)
    sha256_end(&w->sha, hex);
  file_abandon(w);
  return ERR_OK;
}

void file_abandon(FileWriter *w) {
  if (w->fd >= 0) close(w->fd);
  mem_free(w->path);
  mem_free(w->buffer);
  *w = (FileWriter){.fd = -1};
}
