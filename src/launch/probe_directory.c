/* Examines a directory: file system, free space, speed, locks. Also hashes files. Depends on
 * base, POSIX. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "launch/probe.h"

#define BLOCK       ((size_t)1 << 20) /* bytes per write */
#define SMALL_FILES 5
#define SMALL_BYTES 4096

void probe_hash_file(const char *path, char hex[65]) {
  uint8_t bytes[1 << 14];
  Sha256 sha;
  ssize_t n = -1;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  sha256_begin(&sha);
  while (fd >= 0 && (n = read(fd, bytes, sizeof bytes)) > 0) sha256_add(&sha, bytes, (size_t)n);
  if (fd >= 0) close(fd);
  sha256_end(&sha, hex);
  if (n != 0) hex[0] = '\0';
}

static void name_file_system(uint64_t type, char name[32]) {
  static const struct {
    uint64_t type;
    const char *name;
  } names[] = {{0xef53, "ext4"},       {0x58465342, "xfs"},     {0x9123683e, "btrfs"},
               {0x2fc12fc1, "zfs"},    {0xf2f52010, "f2fs"},    {0x01021994, "tmpfs"},
               {0x858458f6, "ramfs"},  {0x794c7630, "overlay"}, {0x6969, "NFS"},
               {0xff534d42, "CIFS"},   {0xfe534d42, "SMB"},     {0x65735546, "FUSE"},
               {0x0bd00bd0, "Lustre"}, {0x47504653, "GPFS"},    {0x19830326, "BeeGFS"},
               {0x01021997, "9p"},     {0x00c36400, "Ceph"}};
  snprintf(name, 32, "type 0x%llx", (unsigned long long)type);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].type == type) snprintf(name, 32, "%s", names[i].name);
}

/* Finds the directory itself or its nearest existing parent. */
static void find_existing(const char *path, char *found, size_t size) {
  snprintf(found, size, "%s", path);
  while (!file_is_dir(found)) {
    char *slash = strrchr(found, '/');
    if (!slash) {
      snprintf(found, size, ".");
      return;
    }
    slash[slash == found] = '\0'; /* the root directory remains "/" */
  }
}

static void note_problem(DirectoryFacts *d, const char *what) {
  snprintf(d->problem, sizeof d->problem, "cannot %s: %s", what, strerror(errno));
}

/* Creates an empty file in the directory; returns -1 and sets d->problem on failure. */
static int create_file(DirectoryFacts *d, char name[FILE_PATH_MAX]) {
  snprintf(name, FILE_PATH_MAX, "%s/.trireme-doctor-XXXXXX", d->measured);
  int fd = mkostemp(name, O_CLOEXEC);
  if (fd < 0) note_problem(d, "create a file");
  return fd;
}

/* Writes whole blocks until `bytes` are written or the time is over, then syncs. */
static void measure_large(DirectoryFacts *d, uint64_t bytes, double seconds) {
  char name[FILE_PATH_MAX], *block;
  if (mem_alloc(&block, BLOCK, 1)) return;
  Rng rng = {.key = 1}; /* random data, because file systems may compress or skip zeros */
  for (size_t i = 0; i < BLOCK; i++) block[i] = (char)rng_below(&rng, 256);
  int fd = create_file(d, name);
  double start = progress_clock();
  while (fd >= 0 && d->written < bytes && progress_clock() - start < seconds) {
    size_t n = bytes - d->written < BLOCK ? (size_t)(bytes - d->written) : BLOCK;
    ssize_t put = write(fd, block, n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      note_problem(d, "write a file");
      break;
    }
    d->written += (uint64_t)put;
  }
  if (fd >= 0 && fsync(fd) != 0 && !d->problem[0]) note_problem(d, "sync a file");
  double took = progress_clock() - start;
  if (d->written && took > 0) d->write_rate = (double)d->written / took;
  if (fd >= 0) d->has_locks = flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (fd >= 0) {
    close(fd);
    unlink(name);
  }
  mem_free(block);
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure_small(DirectoryFacts *d) {
  double took[SMALL_FILES];
  static const char bytes[SMALL_BYTES];
  char name[FILE_PATH_MAX];
  for (int i = 0; i < SMALL_FILES; i++) {
    double start = progress_clock();
    int fd = create_file(d, name);
    if (fd < 0) return;
    bool is_good = write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes && fsync(fd) == 0;
    took[i] = progress_clock() - start;
    if (!is_good) note_problem(d, "write a file");
    close(fd);
    unlink(name);
    if (!is_good) return;
  }
  qsort(took, SMALL_FILES, sizeof *took, compare_doubles);
  d->sync_seconds = took[SMALL_FILES / 2];
}

void probe_directory(DirectoryFacts *d, const char *path, uint64_t bytes, double seconds) {
  *d = (DirectoryFacts){0};
  struct statfs fs;
  if (strlen(path) >= sizeof d->path) {
    snprintf(d->problem, sizeof d->problem, "the path is longer than %zu bytes",
             sizeof d->path - 1);
    return;
  }
  snprintf(d->path, sizeof d->path, "%s", path);
  d->exists = file_is_dir(path);
  find_existing(path, d->measured, sizeof d->measured);
  if (statfs(d->measured, &fs) != 0) {
    note_problem(d, "read the size of the file system");
    return;
  }
  name_file_system((uint64_t)fs.f_type & 0xffffffffu, d->file_system);
  d->free = (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
  if (bytes > d->free / 2) bytes = d->free / 2;
  measure_large(d, bytes, seconds);
  if (!d->problem[0]) measure_small(d);
}
