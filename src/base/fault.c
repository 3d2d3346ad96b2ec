/* Fault injection for tests. Depends on base/stop. */
#include "base/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/stop.h"

#define MOST_FAULTS 32

static const char *next_fault(const char *at) {
  at = strchr(at, ',');
  return at ? at + 1 : NULL;
}

/* Returns the text after "WORD:" if the entry begins with it, else NULL. */
static const char *match_word(const char *fault, const char *word) {
  size_t n = strlen(word);
  return strncmp(fault, word, n) == 0 && fault[n] == ':' ? fault + n + 1 : NULL;
}

bool fault_now(const char *what, uint64_t step, int rank) {
  static uint32_t done; /* Bit i is set once entry i of TRIREME_FAULT has been injected. */
  size_t n = strlen(what);
  uint32_t bit = 1;
  for (const char *at = getenv("TRIREME_FAULT"); at; at = next_fault(at), bit <<= 1) {
    bool always = strncmp(at, what, n) == 0 && at[n] == '*' && at[n + 1] == ':';
    const char *number = always ? at + n + 2 : match_word(at, what);
    if (!number || *number < '0' || *number > '9' || (done & bit)) continue;
    char *end;
    unsigned long long when = strtoull(number, &end, 10);
    long who = *end == ':' ? strtol(end + 1, NULL, 10) : 0;
    if (when != step || who != rank) continue;
    if (!always) done |= bit;
    return true;
  }
  return false;
}

uint64_t fault_number(const char *what, uint64_t otherwise) {
  for (const char *at = getenv("TRIREME_FAULT"); at; at = next_fault(at)) {
    const char *number = match_word(at, what);
    if (number) return strtoull(number, NULL, 10);
  }
  return otherwise;
}

/* Counts this call at `place` for every entry "WHAT:PLACE:N"; returns true at the Nth call. */
static bool is_due(const char *list, const char *what, const char *place,
                   atomic_uint visits[MOST_FAULTS]) {
  bool due = false;
  size_t n = strlen(place);
  int i = 0;
  for (const char *at = list; at && i < MOST_FAULTS; at = next_fault(at), i++) {
    const char *where = match_word(at, what);
    if (!where || strncmp(where, place, n) != 0 || !strchr(":,", where[n])) continue;
    unsigned long when = where[n] == ':' ? strtoul(where + n + 1, NULL, 10) : 1;
    due = atomic_fetch_add(&visits[i], 1) + 1 == when || due;
  }
  return due;
}

void fault_point(const char *place) {
  static atomic_uint visits[MOST_FAULTS];
  const char *list = getenv("TRIREME_FAULT");
  if (!list) return;
  if (is_due(list, "die", place, visits)) kill(getpid(), SIGKILL);
  if (!is_due(list, "hang", place, visits)) return;
  fprintf(stderr, "TRIREME_FAULT: waiting at %s\n", place);
  while (!stop_asked()) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}
