/* The cores this process may use, not those the machine has. Relies on POSIX. */
#include "base/thread.h"

#include <sched.h>
#include <unistd.h>

int thread_cores(void) {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}
