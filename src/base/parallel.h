/* OpenMP if the compiler supports it; otherwise replacements that run one thread. */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_max_threads(void) {
  return 1;
}
static inline int omp_get_num_threads(void) {
  return 1;
}
static inline int omp_get_thread_num(void) {
  return 0;
}
#endif

#endif
