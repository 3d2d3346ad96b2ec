/* Device arrays and the checks of kernel tests: values within a multiple of the rounding error,
 * bits equal to those of the first run, memory before and after the array unchanged. Depends on
 * kernels.h, base/mem. */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include "backend/cuda/kernels.h"

#define ARRAYS_MOST 24

typedef struct {
  Type type;
  size_t n;
  float *host; /* what it holds before a run, as the type has it; NULL: nothing */
  char *base;  /* device memory with a fence on either side */
  void *at;    /* the first element */
  char *seen;  /* the bytes of the first run */
} Array;

extern int failures, checks; /* counts of all tests */
extern size_t skew;          /* elements by which arrays are shifted from a 256-byte boundary */
extern char case_name[200];  /* for messages */

/* Stops at the first call that returns a device error: later results would mean nothing. */
void must(cudaError_t err, const char *what);
#define MUST(call) must((call), #call)

double type_epsilon(Type type); /* distance from 1 to the next larger number */
const char *type_name(Type type);
float type_round(Type type, float x); /* rounds to the nearest number of the type */

/* Arrays of normal random numbers, rounded to the type; valid until arrays_free. */
Array *array_draw(Type type, size_t n, float scale);
Array *array_blank(Type type, size_t n); /* for results: NaN before each run */
Array *array_zero(Type type, size_t n);
void array_put(Array *a); /* host to device */
/* A copy on the device; scratch memory with arbitrary contents. */
void *device_copy(const void *host, size_t bytes);
void *device_scratch(size_t bytes);
/* A float copy of an array's initial values, for the reference. */
float *host_copy(const Array *a);
float *host_floats(size_t n); /* zeroed */
void arrays_reset(void);      /* resets all arrays to their initial values */
void arrays_free(void);

/* Checks |got - want| <= limit * epsilon * (|want| + root mean square of want), the bits of
 * the first run, and the memory around the array. */
void expect(Array *a, const float *want, double limit, const char *what);
void expect_exact(const void *device, const void *want, size_t bytes, const char *what);
void expect_near(double got, double want, double tolerance, const char *what);

/* A test case: its name in messages, and its two runs. */
#define BEGIN(...) snprintf(case_name, sizeof case_name, __VA_ARGS__)
#define TWICE      for (int run = 0; run < 2; run++, arrays_reset())
#define COUNT(a)   (sizeof(a) / sizeof *(a))

double draw_even(void); /* in 0 … 1 */
uint64_t draw_below(uint64_t n);

#endif
