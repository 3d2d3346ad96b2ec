/* Measurements of this host: cores, memory, disks, network cards, power, GPUs. One sample becomes
 * one line of RUN/system.jsonl (docs/formats.md). A value that cannot be measured is NAN and is left
 * out of the line. After system_open nothing allocates memory. Threads: one thread at a time.
 * Depends on base, Linux, and NVML at run time. */
#ifndef MONITOR_SYSTEM_H
#define MONITOR_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* What is beyond these numbers is left out. A line with all of them, each name as long as possible,
 * fits into SYSTEM_LINE bytes. */
enum { SYSTEM_CORES = 1024, SYSTEM_CARDS = 16, SYSTEM_GPUS = 16 };
enum { SYSTEM_NAME = 64, SYSTEM_LINE = 16384 };

typedef struct {
  char name[SYSTEM_NAME];
  double received, sent; /* bytes per second */
  double speed;          /* Mbit/s, as the card reports it */
} SystemCard;

typedef struct {
  unsigned index;
  char name[SYSTEM_NAME];
  double busy;                      /* percent of the time in which a kernel ran */
  double memory_used, memory_total; /* bytes */
  double watts, watts_limit;
  double sm_mhz, memory_mhz, celsius;
  bool has_throttle;
  uint64_t throttle; /* NVML's bits of reasons why the clocks are low */
} SystemGpu;

typedef struct {
  double time; /* seconds since 1970 */
  char host[SYSTEM_NAME];
  size_t cores;
  float core[SYSTEM_CORES];         /* percent busy since the previous sample */
  double memory_used, memory_total; /* bytes */
  double process_memory;            /* resident bytes of this host's ranks */
  double disk_read, disk_written;   /* bytes per second, all disks */
  double disk_free;                 /* bytes */
  double watts_cpu;
  size_t cards;
  SystemCard card[SYSTEM_CARDS];
  size_t gpus;
  SystemGpu gpu[SYSTEM_GPUS];
  /* Set by the caller: step of the run; earlier samples of this host that were dropped. */
  double step, dropped;
} SystemSample;

/* What to measure. The strings must outlive the System. */
typedef struct {
  const char *root; /* prefix of /proc and /sys; "" except in tests */
  const char *nvml; /* file name of NVML for dlopen; NULL: no GPUs */
  const char *host; /* name in the sample */
  const char *dir;  /* directory for disk_free; NULL: not measured */
  const int *pid;   /* (pids) processes for process_memory */
  size_t pids;
} SystemSpec;

typedef struct System System;

/* Opens the sources and reads the counters for the first time. Loading NVML may take a second. */
NODISCARD Err system_open(System **out, const SystemSpec *spec);
void system_close(System *s); /* accepts NULL */
/* Measures. Rates are means since the previous call, or since system_open. */
void system_take(System *s, SystemSample *sample);

/* Writes the sample as one line with its line break and returns its length, or 0 if it does not fit
 * into `size` bytes. Bytes of names that are not printable ASCII are replaced. */
size_t system_write(const SystemSample *sample, char *line, size_t size);

#endif
