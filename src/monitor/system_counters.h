/* Counters of the kernel, parsed from the text of files in /proc. The functions only read `text`
 * and fill in what they find; damaged lines are skipped. No dependencies. */
#ifndef MONITOR_SYSTEM_COUNTERS_H
#define MONITOR_SYSTEM_COUNTERS_H

#include "monitor/system.h"

typedef struct {
  unsigned number;
  uint64_t busy, total; /* in clock ticks */
} CoreTime;

typedef struct {
  char name[SYSTEM_NAME];
  uint64_t received, sent; /* bytes */
} CardBytes;

typedef struct {
  uint64_t read, written; /* bytes */
} DiskBytes;

/* /proc/stat. Returns the number of cores, at most `max`. */
size_t counters_parse_cores(const char *text, CoreTime *core, size_t max);
/* /proc/meminfo. Returns false if a value is missing. */
bool counters_parse_memory(const char *text, uint64_t *total, uint64_t *available);
/* /proc/diskstats: sums over the devices for which is_disk returns true. Returns false if there is
 * none. */
bool counters_parse_disks(const char *text, bool (*is_disk)(const char *name, void *context),
                          void *context, DiskBytes *sum);
/* /proc/net/dev: the cards that have sent or received something, except the loopback. Returns
 * their number, at most `max`. */
size_t counters_parse_cards(const char *text, CardBytes *card, size_t max);
/* /proc/PID/statm: sets the number of resident pages. */
bool counters_parse_resident(const char *text, uint64_t *pages);
/* A file that holds one number. */
bool counters_parse_number(const char *text, uint64_t *number);
/* The rate of an InfiniBand port, such as "400 Gb/sec (4X NDR)": returns Mbit/s, or NAN. */
double counters_parse_rate(const char *text);

#endif
