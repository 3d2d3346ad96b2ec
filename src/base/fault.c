/* Faults on purpose. Relies on the C library. */
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

bool fault_now(const char *what, uint64_t step, int rank) {
  static uint32_t done; /* a bit for each fault of the list */
  const char *list = getenv("TRIREME_FAULT");
  size_t n = strlen(what);
  uint32_t bit = 1;
  for (const char *at = list; at && *at; at = strchr(at, ','), at += at != NULL, bit <<= 1) {
    bool always = strncmp(at, what, n) == 0 && at[n] == '*';
    if (strncmp(at, what, n) != 0 || at[n + always] != ':' || (done & bit)) continue;
    char *end;
    unsigned long long when = strtoull(at + n + always + 1, &end, 10);
    long who = *end == ':' ? strtol(end + 1, NULL, 10) : 0;
    if (when != step || who != rank) continue;
    if (!always) done |= bit;
    return true;
  }
  return false;
}
