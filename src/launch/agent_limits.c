/* Checks limits before mpirun is started. Depends on base. */
#include "launch/agent_limits.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"

/* Measured with Open MPI 4.1: the agent and mpirun need about 28 open files each, and 6 for each
 * rank; MPI's files of one machine take 12 to 16 MB, of any number of ranks. */
#define FILES_FIXED  36
#define FILES_RANK   6
#define MEMORY_LEAST ((uint64_t)16 << 20)
/* Threads of mpirun and its stubs, and of a rank with MPI. */
#define THREADS_FIXED 16
#define THREADS_RANK  8

static Err check_files(int ranks) {
  struct rlimit limit;
  rlim_t need = FILES_FIXED + FILES_RANK * (rlim_t)ranks;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) return ERR_OK;
  if (limit.rlim_max >= need) {
    limit.rlim_cur = need;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return ERR_OK;
  }
  return err_set(ERR_WORK,
                 "the limit of open files is %" PRIu64
                 ", too low for %d ranks with MPI; raise it to %" PRIu64
                 " or more (ulimit -n, for good in /etc/security/limits.conf: nofile)",
                 (uint64_t)limit.rlim_cur, ranks, (uint64_t)need);
}

/* Reads the number of threads from /proc/PID/stat, where it is the 18th field after the command. */
static int read_threads(const char *pid) {
  char path[64], text[1024];
  int threads = 0;
  snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = '\0';
  const char *at = strrchr(text, ')');
  for (int field = 0; at && field < 18; field++) at = strchr(at + 1, ' ');
  if (at) threads = atoi(at);
  return threads;
}

/* Counts the threads of all processes of this user. */
static uint64_t count_threads(void) {
  char path[64];
  struct stat about;
  uint64_t threads = 0;
  DIR *dir = opendir("/proc");
  if (!dir) return 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    snprintf(path, sizeof path, "/proc/%.16s", entry->d_name);
    if (stat(path, &about) == 0 && about.st_uid == getuid())
      threads += (uint64_t)read_threads(entry->d_name);
  }
  closedir(dir);
  return threads;
}

/* The limit applies to all threads of the user, and not to root. */
static Err check_processes(int ranks) {
  struct rlimit limit;
  uint64_t need = THREADS_FIXED + THREADS_RANK * (uint64_t)ranks;
  if (getuid() == 0 || getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return ERR_OK;
  uint64_t used = count_threads();
  if (used + need <= limit.rlim_cur) return ERR_OK;
  return err_set(ERR_WORK,
                 "the limit of processes and threads of this user is %" PRIu64 ", and %" PRIu64
                 " are running: too few are left for %d ranks with MPI, which need %" PRIu64
                 "; raise it (ulimit -u, for good in /etc/security/limits.conf: nproc)",
                 (uint64_t)limit.rlim_cur, used, ranks, need);
}

static Err check_memory(const char *dir) {
  struct statvfs fs;
  char available[32], whole[32], need[32];
  if (statvfs(dir, &fs) != 0 || !fs.f_blocks) return ERR_OK;
  uint64_t unused = (uint64_t)fs.f_bavail * fs.f_frsize;
  if (unused >= MEMORY_LEAST) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s of %s are free in %s, but MPI needs %s there; remove what fills it, or "
                 "enlarge it (mount -o remount,size=SIZE /dev/shm; in a container --shm-size "
                 "SIZE)",
                 str_of_bytes(available, unused),
                 str_of_bytes(whole, (uint64_t)fs.f_blocks * fs.f_frsize), dir,
                 str_of_bytes(need, MEMORY_LEAST));
}

Err agent_check_limits(const char *dir, int ranks) {
  TRY(check_files(ranks));
  TRY(check_processes(ranks));
  return check_memory(dir);
}
