/* Reads /proc/meminfo and the memory cgroups of this process. A limit may be set at any level of
 * the cgroup hierarchy and applies to all levels below it. Each level from the process's own
 * cgroup up to the mount point is therefore read:
 *   v2  limits memory.max and memory.high, usage memory.current
 *   v1  limit memory.limit_in_bytes, usage memory.usage_in_bytes
 * The usage includes page cache. The kernel drops cached file pages before it enforces a limit,
 * so they count as free. Depends on file, str. */
#include "base/sysmem.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* File names and keys of one cgroup version. NULL: that version has no such file or key. */
typedef struct {
  const char *file_system; /* file system type in /proc/self/mountinfo */
  const char *limit[2], *usage;
  const char *cache[3]; /* keys of memory.stat that count reclaimable pages */
} Hierarchy;

static const Hierarchy hierarchies[] = {
    {"cgroup2",
     {"memory.max", "memory.high"},
     "memory.current",
     {"inactive_file ", "active_file ", "slab_reclaimable "}},
    {"cgroup",
     {"memory.limit_in_bytes", NULL},
     "memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file ", NULL}},
};

/* Concatenates `root` and a path; returns false if the result is too long. */
static bool join_root(char path[FILE_PATH_MAX], const char *root, const char *dir,
                      const char *name) {
  int n = snprintf(path, FILE_PATH_MAX, "%s%s/%s", root, dir, name);
  return n > 0 && n < FILE_PATH_MAX;
}

/* Reads the number after `key` in the first line that begins with `key`. Returns false if there
 * is none; the value "max" (no limit) is not a number. */
static bool read_number(const char *root, const char *dir, const char *name, const char *key,
                        uint64_t *number) {
  char path[FILE_PATH_MAX], line[256];
  bool found = false;
  FILE *f = join_root(path, root, dir, name) ? fopen(path, "r") : NULL;
  while (f && !found && fgets(line, sizeof line, f))
    found = strncmp(line, key, strlen(key)) == 0 &&
            sscanf(line + strlen(key), "%" SCNu64, number) == 1;
  if (f) fclose(f);
  return found;
}

/* Reduces *left and *all to the limits of one cgroup. */
static void apply_limits(const Hierarchy *h, const char *root, const char *dir, uint64_t *left,
                         uint64_t *all) {
  uint64_t usage, cache = 0, pages;
  /* The root cgroup has no usage file and no limits. */
  if (!read_number(root, dir, h->usage, "", &usage)) return;
  for (int i = 0; i < 3 && h->cache[i]; i++)
    if (read_number(root, dir, "memory.stat", h->cache[i], &pages)) cache += pages;
  uint64_t held = usage > cache ? usage - cache : 0;
  for (int i = 0; i < 2 && h->limit[i]; i++) {
    uint64_t limit;
    if (!read_number(root, dir, h->limit[i], "", &limit)) continue;
    uint64_t rest = limit > held ? limit - held : 0;
    if (limit < *all) *all = limit;
    if (rest < *left) *left = rest;
  }
}

/* Returns true if the comma-separated list contains the entry. */
static bool has_entry(const char *list, const char *entry) {
  size_t n = strlen(entry);
  for (const char *at = list; *at; at += strspn(at, ",")) {
    size_t len = strcspn(at, ",");
    if (len == n && memcmp(at, entry, n) == 0) return true;
    at += len;
  }
  return false;
}

/* Finds the process's cgroup in this hierarchy, in a line "ID:CONTROLLERS:PATH" of
 * /proc/self/cgroup. The line of v2 is "0::PATH". */
static bool find_cgroup(const Hierarchy *h, const char *root, char cgroup[FILE_PATH_MAX]) {
  char path[FILE_PATH_MAX], line[FILE_PATH_MAX + 256];
  bool found = false, v2 = strcmp(h->file_system, "cgroup2") == 0;
  FILE *f = join_root(path, root, "/proc/self", "cgroup") ? fopen(path, "r") : NULL;
  while (f && !found && fgets(line, sizeof line, f)) {
    char *controllers = strchr(line, ':'),
         *name = controllers ? strchr(controllers + 1, ':') : 0;
    if (!name) continue;
    *name++ = '\0';
    name[strcspn(name, "\n")] = '\0';
    found = (v2 ? strncmp(line, "0:", 2) == 0 && !controllers[1]
                : has_entry(controllers + 1, "memory")) &&
            strlen(name) < FILE_PATH_MAX;
    if (found) memcpy(cgroup, name, strlen(name) + 1);
  }
  if (f) fclose(f);
  return found;
}

/* Replaces the octal escapes of mountinfo, for example \040 by a space. */
static void unescape_octal(char *text) {
  char *to = text;
  for (const char *at = text; *at; to++) {
    unsigned byte;
    if (at[0] == '\\' && sscanf(at + 1, "%3o", &byte) == 1 && strspn(at + 1, "01234567") >= 3) {
      *to = (char)byte;
      at += 4;
    } else {
      *to = *at++;
    }
  }
  *to = '\0';
}

/* Finds the mount point of the hierarchy and `top`, the cgroup that is the root of the mount. A
 * line of mountinfo: "ID PARENT DEVICE TOP POINT OPTIONS [TAG…] - TYPE SOURCE SUPER-OPTIONS". */
static bool find_mount(const Hierarchy *h, const char *root, char top[FILE_PATH_MAX],
                       char point[FILE_PATH_MAX]) {
  char path[FILE_PATH_MAX], line[2 * FILE_PATH_MAX + 512];
  bool found = false, v2 = strcmp(h->file_system, "cgroup2") == 0;
  FILE *f = join_root(path, root, "/proc/self", "mountinfo") ? fopen(path, "r") : NULL;
  while (f && !found && fgets(line, sizeof line, f)) {
    char *rest = strstr(line, " - "), *save = NULL, *field[5] = {0};
    if (!rest) continue;
    *rest = '\0';
    char *type = strtok_r(rest + 3, " \n", &save);
    char *source = strtok_r(NULL, " \n", &save), *options = strtok_r(NULL, " \n", &save);
    if (!source || !options || strcmp(type, h->file_system) != 0) continue;
    if (!v2 && !has_entry(options, "memory")) continue;
    field[0] = strtok_r(line, " ", &save);
    for (int i = 1; i < 5 && field[i - 1]; i++) field[i] = strtok_r(NULL, " ", &save);
    found = field[4] && strlen(field[3]) < FILE_PATH_MAX && strlen(field[4]) < FILE_PATH_MAX;
    if (!found) continue;
    memcpy(top, field[3], strlen(field[3]) + 1);
    memcpy(point, field[4], strlen(field[4]) + 1);
    unescape_octal(top);
    unescape_octal(point);
  }
  if (f) fclose(f);
  return found;
}

/* Returns the path of `cgroup` relative to `top`. Returns "" if `cgroup` is outside the mount, as
 * in a container that sees only its own cgroup. */
static const char *below_top(const char *cgroup, const char *top) {
  size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
  if (strncmp(cgroup, top, n) != 0 || (cgroup[n] != '/' && cgroup[n] != '\0')) return "";
  if (strstr(cgroup, "/..") || strcmp(cgroup + n, "/") == 0) return "";
  return cgroup + n;
}

static void apply_hierarchy(const Hierarchy *h, const char *root, uint64_t *left,
                            uint64_t *all) {
  char cgroup[FILE_PATH_MAX], top[FILE_PATH_MAX], point[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  if (!find_cgroup(h, root, cgroup) || !find_mount(h, root, top, point)) return;
  size_t stop = strlen(point);
  int n = snprintf(dir, sizeof dir, "%s%s", point, below_top(cgroup, top));
  if (n < 0 || n >= FILE_PATH_MAX) return;
  for (;;) {
    apply_limits(h, root, dir, left, all);
    char *slash = strrchr(dir, '/');
    if (strlen(dir) <= stop || !slash) return;
    *slash = '\0';
  }
}

Err sysmem_read(const char *root, uint64_t *left, uint64_t *all) {
  uint64_t kilobytes;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  *all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
  if (read_number(root, "/proc", "meminfo", "MemTotal:", &kilobytes)) *all = kilobytes * 1024;
  *left = *all;
  if (read_number(root, "/proc", "meminfo", "MemAvailable:", &kilobytes))
    *left = kilobytes * 1024;
  if (!*all)
    return err_set(ERR_WORK, "cannot read the size of memory from /proc/meminfo; mount /proc");
  for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++)
    apply_hierarchy(&hierarchies[i], root, left, all);
  return ERR_OK;
}
