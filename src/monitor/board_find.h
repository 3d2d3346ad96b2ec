/* Finds the runs below a directory: directories with a metrics.jsonl or a config. Follows symbolic
 * links, visits no directory twice, and is bounded in depth and in number. Depends on base. */
#ifndef MONITOR_BOARD_FIND_H
#define MONITOR_BOARD_FIND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define FIND_DEPTH       8     /* levels below the directory */
#define FIND_DIRECTORIES 20000 /* visited in one search */
#define FIND_RUNS        2000

typedef struct {
  char **name; /* paths relative to the directory, sorted; "." is the directory itself */
  size_t count, room;
  bool is_cut; /* there are more directories or runs than the limits allow */
} FoundRuns;

/* Directories that cannot be read, or vanish meanwhile, are left out. */
NODISCARD Err find_runs(const char *dir, FoundRuns *found);
void find_free(FoundRuns *found);

#endif
