/* Searches directories for runs. Depends on base. */
#include "monitor/board_find.h"

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

typedef struct {
  dev_t device;
  ino_t inode;
} Visited;

typedef struct {
  const char *dir;
  FoundRuns *found;
  Visited *visited; /* hash table with open addressing; inode 0 is a free place */
  size_t directories;
} Search;

#define VISITED_ROOM ((size_t)1 << 16) /* more than twice FIND_DIRECTORIES */

/* Returns false if the directory was visited before. */
static bool mark_visited(Search *s, const struct stat *st) {
  uint64_t hash = ((uint64_t)st->st_ino * 0x9e3779b97f4a7c15u) ^ (uint64_t)st->st_dev;
  for (size_t i = hash >> 48;; i = (i + 1) % VISITED_ROOM) {
    Visited *v = &s->visited[i];
    if (v->inode == st->st_ino && v->device == st->st_dev) return false;
    if (v->inode == 0) {
      *v = (Visited){st->st_dev, st->st_ino};
      return true;
    }
  }
}

static Err add_run(FoundRuns *found, const char *name) {
  if (found->count == FIND_RUNS) {
    found->is_cut = true;
    return ERR_OK;
  }
  TRY(mem_grow(&found->name, &found->room, found->count + 1, sizeof *found->name));
  TRY(mem_dup(&found->name[found->count], name, strlen(name)));
  found->count++;
  return ERR_OK;
}

static bool has_file(const char *dir, const char *name) {
  char path[FILE_PATH_MAX];
  struct stat st;
  if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path) return false;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Returns true for directories that have no runs in them: hidden ones, and the large ones of a
 * run. */
static bool is_skipped(const char *name) {
  return name[0] == '.' || strcmp(name, "checkpoints") == 0 || strcmp(name, "average") == 0;
}

static Err search_dir(Search *s, const char *path, const char *name, int depth);

static Err search_entry(Search *s, const char *path, const char *name, const struct dirent *e,
                        int depth) {
  char below[FILE_PATH_MAX], below_name[FILE_PATH_MAX];
  bool may_be_dir = e->d_type == DT_DIR || e->d_type == DT_LNK || e->d_type == DT_UNKNOWN;
  if (!may_be_dir || is_skipped(e->d_name)) return ERR_OK;
  int len = snprintf(below, sizeof below, "%s/%s", path, e->d_name);
  bool is_top = strcmp(name, ".") == 0;
  int name_len = snprintf(below_name, sizeof below_name, "%s%s%s", is_top ? "" : name,
                          is_top ? "" : "/", e->d_name);
  if ((size_t)len >= sizeof below || (size_t)name_len >= sizeof below_name) return ERR_OK;
  return search_dir(s, below, below_name, depth + 1);
}

static Err search_dir(Search *s, const char *path, const char *name, int depth) {
  struct stat st;
  Err err = ERR_OK;
  if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return ERR_OK;
  if (depth > FIND_DEPTH || s->directories == FIND_DIRECTORIES) {
    s->found->is_cut = true;
    return ERR_OK;
  }
  if (!mark_visited(s, &st)) return ERR_OK;
  s->directories++;
  if (has_file(path, "metrics.jsonl") || has_file(path, "config")) TRY(add_run(s->found, name));
  DIR *dir = opendir(path);
  if (!dir) return ERR_OK;
  const struct dirent *e;
  while (!err && (e = readdir(dir))) err = search_entry(s, path, name, e, depth);
  closedir(dir);
  return err;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

Err find_runs(const char *dir, FoundRuns *found) {
  enum { TOP = 0 };
  Search s = {.dir = dir, .found = found};
  *found = (FoundRuns){0};
  TRY(mem_alloc(&s.visited, VISITED_ROOM, sizeof *s.visited));
  Err err = search_dir(&s, dir, ".", TOP);
  mem_free(s.visited);
  if (found->count) qsort(found->name, found->count, sizeof *found->name, compare_names);
  if (err) find_free(found);
  return err;
}

void find_free(FoundRuns *found) {
  for (size_t i = 0; i < found->count; i++) mem_free(found->name[i]);
  mem_free(found->name);
  *found = (FoundRuns){0};
}
