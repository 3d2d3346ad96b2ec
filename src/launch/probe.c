/* Reads facts from the kernel and the C library: cores, memory, limits, clock, the program
 * itself. Depends on base, Linux's /proc, /sys and cgroup file systems. */
#include "launch/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "base/fault.h"
#include "base/file.h"
#include "base/sysmem.h"
#include "base/thread.h"

/* Copies a text, truncated to the size of the array. */
static void copy_text(char *to, size_t size, const char *from) {
  snprintf(to, size, "%.*s", (int)size - 1, from);
}

/* Reads the first line of a file, without the line break; "" if it cannot be read. */
static void read_line(const char *root, const char *path, char *line, size_t size) {
  char full[FILE_PATH_MAX];
  line[0] = '\0';
  snprintf(full, sizeof full, "%s%s", root, path);
  FILE *f = fopen(full, "r");
  if (f && !fgets(line, (int)size, f)) line[0] = '\0';
  if (f) fclose(f);
  line[strcspn(line, "\n")] = '\0';
}

/* Returns the name of an ARM core, given the numbers in /proc/cpuinfo, as in lscpu's table. */
static const char *name_arm_part(unsigned implementer, unsigned part) {
  static const struct {
    unsigned implementer, part;
    const char *name;
  } names[] = {
      {0x41, 0xd03, "Cortex-A53"},   {0x41, 0xd07, "Cortex-A57"},  {0x41, 0xd08, "Cortex-A72"},
      {0x41, 0xd0b, "Cortex-A76"},   {0x41, 0xd0c, "Neoverse-N1"}, {0x41, 0xd40, "Neoverse-V1"},
      {0x41, 0xd42, "Cortex-A78AE"}, {0x41, 0xd49, "Neoverse-N2"}, {0x41, 0xd4f, "Neoverse-V2"},
      {0x4e, 0x004, "Carmel"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].implementer == implementer && names[i].part == part) return names[i].name;
  return NULL;
}

void probe_cpu_name(const char *root, char *name, size_t size) {
  char path[FILE_PATH_MAX], line[512];
  unsigned implementer = 0, part = 0;
  snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
  FILE *f = fopen(path, "r");
  name[0] = '\0';
  while (f && !name[0] && fgets(line, sizeof line, f)) {
    char *value = strchr(line, ':');
    if (!value) continue;
    value += 1 + strspn(value + 1, " \t");
    value[strcspn(value, "\n")] = '\0';
    if (strncmp(line, "model name", 10) == 0) copy_text(name, size, value);
    if (strncmp(line, "CPU implementer", 15) == 0)
      implementer = (unsigned)strtoul(value, NULL, 0);
    if (strncmp(line, "CPU part", 8) == 0) part = (unsigned)strtoul(value, NULL, 0);
  }
  if (f) fclose(f);
  if (name[0] || !implementer) return;
  const char *known = name_arm_part(implementer, part);
  if (known)
    copy_text(name, size, known);
  else
    snprintf(name, size, "ARM core, implementer 0x%02x, part 0x%03x", implementer, part);
}

/* Reads the CPU quota of one cgroup, in cores; 0: none. v2 has "QUOTA PERIOD" in cpu.max
 * ("max": none); v1 has two files (-1: none). Values are in microseconds. */
static double read_quota(const char *root, const char *dir) {
  char path[FILE_PATH_MAX], line[64];
  double quota = 0, period = 0;
  snprintf(path, sizeof path, "%s/cpu.max", dir);
  read_line(root, path, line, sizeof line);
  if (line[0])
    return sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0 ? quota / period : 0;
  snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
  read_line(root, path, line, sizeof line);
  quota = atof(line);
  snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
  read_line(root, path, line, sizeof line);
  period = atof(line);
  return quota > 0 && period > 0 ? quota / period : 0;
}

/* Sets *least to the lowest quota of a cgroup and its parents below the mount point `top`. */
static void apply_quotas(const char *root, const char *top, const char *cgroup, double *least) {
  char dir[FILE_PATH_MAX];
  snprintf(dir, sizeof dir, "%s%s", top, strcmp(cgroup, "/") == 0 ? "" : cgroup);
  while (strlen(dir) >= strlen(top)) {
    double quota = read_quota(root, dir);
    if (quota > 0 && (*least == 0 || quota < *least)) *least = quota;
    char *slash = strrchr(dir, '/');
    if (!slash) return;
    *slash = '\0';
  }
}

double probe_core_quota(const char *root) {
  char path[FILE_PATH_MAX], line[FILE_PATH_MAX];
  double least = 0;
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f)) { /* format of a line: ID:CONTROLLERS:PATH */
    char *controllers = strchr(line, ':');
    char *cgroup = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!cgroup) continue;
    *cgroup++ = '\0';
    cgroup[strcspn(cgroup, "\n")] = '\0';
    /* The cgroup is outside of what this container can see. */
    if (strstr(cgroup, "/..")) cgroup = "/";
    if (!controllers[1]) apply_quotas(root, "/sys/fs/cgroup", cgroup, &least);
    if (strcmp(controllers + 1, "cpu") == 0 || strstr(controllers + 1, "cpu,"))
      apply_quotas(root, "/sys/fs/cgroup/cpu", cgroup, &least);
  }
  if (f) fclose(f);
  return least;
}

static void probe_limits(MachineFacts *m) {
  struct rlimit limit;
  struct statvfs shm;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    m->open_files = limit.rlim_cur == RLIM_INFINITY ? FACTS_UNLIMITED : limit.rlim_cur;
    m->open_files_hard = limit.rlim_max == RLIM_INFINITY ? FACTS_UNLIMITED : limit.rlim_max;
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    m->locked_memory = limit.rlim_cur == RLIM_INFINITY ? FACTS_UNLIMITED : limit.rlim_cur;
  if (statvfs("/dev/shm", &shm) == 0) {
    m->shm = (uint64_t)shm.f_blocks * shm.f_frsize;
    m->shm_free = (uint64_t)shm.f_bavail * shm.f_frsize;
  }
}

static void probe_tmp(MachineFacts *m) {
  struct statvfs space;
  const char *dir = getenv("TMPDIR");
  snprintf(m->tmp, sizeof m->tmp, "%s", dir && *dir ? dir : "/tmp");
  if (access(m->tmp, W_OK | X_OK) == 0 && statvfs(m->tmp, &space) == 0)
    m->tmp_free = (uint64_t)space.f_bavail * space.f_frsize;
}

double probe_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec +
         (double)fault_number("clock-ahead", 0);
}

static void probe_program(MachineFacts *m) {
  char path[FILE_PATH_MAX];
  if (file_program(path) == ERR_OK) copy_text(m->program, sizeof m->program, path);
  copy_text(m->version, sizeof m->version, TRIREME_VERSION);
  probe_hash_file("/proc/self/exe", m->sha256);
#ifdef __GLIBC__
  snprintf(m->libc, sizeof m->libc, "glibc %.20s", gnu_get_libc_version());
#endif
}

void probe_machine(MachineFacts *m) {
  *m = (MachineFacts){0};
  struct utsname name = {0};
  struct timex timex = {0};
  if (uname(&name) == 0)
    snprintf(m->system, sizeof m->system, "%.32s %.60s, %.30s", name.sysname, name.release,
             name.machine);
  copy_text(m->host, sizeof m->host, name.nodename);
  read_line("", "/proc/sys/kernel/random/boot_id", m->boot_id, sizeof m->boot_id);
  probe_cpu_name("", m->cpu, sizeof m->cpu);
  m->cores = (uint64_t)thread_cores();
  m->core_quota = probe_core_quota("");
  if (sysmem_read("", &m->memory_free, &m->memory)) m->memory = m->memory_free = 0;
  probe_limits(m);
  probe_tmp(m);
  m->clock = probe_clock();
  m->is_clock_synced = adjtimex(&timex) >= 0 && !(timex.status & STA_UNSYNC);
  probe_program(m);
  probe_gpus(m);
  probe_addresses(m);
  probe_mpi(m);
}
