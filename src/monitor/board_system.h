/* Hosts and GPUs of a run, from a system.jsonl that may be growing: the last sample of each host
 * and its history, in bounded memory. Of a long file, a sample of the lines and the last
 * SYSTEM_TAIL bytes are read, later only what is appended. One thread at a time. Depends on
 * board_buckets. */
#ifndef MONITOR_BOARD_SYSTEM_H
#define MONITOR_BOARD_SYSTEM_H

#include "base/file.h"
#include "base/str.h"
#include "monitor/board_buckets.h"

#define SYSTEM_HOSTS 64 /* further hosts are not shown */
#define SYSTEM_NAME  64

typedef struct {
  char name[SYSTEM_NAME];
  Str latest;      /* the last sample: a line of JSON */
  Buckets history; /* a record's `step` is the time in seconds since 1970 */
} BoardHost;

typedef struct {
  uint64_t device, inode, size;
  uint64_t offset;     /* where the first line begins that was not read */
  uint64_t generation; /* increases when the file is read from its beginning */
  BoardHost *host;
  size_t hosts, host_room;
  bool is_cut; /* there are more hosts */
} BoardSystem;

/* Reads what is new in RUN/system.jsonl. */
NODISCARD Err board_system_refresh(BoardSystem *s, const char *run);
void board_system_free(BoardSystem *s);

#endif
