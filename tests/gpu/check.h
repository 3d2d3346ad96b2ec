/* Device arrays and checks of kernel tests: values within a multiple of the rounding error, the
 * same bits as in the first run, and unchanged guard memory around each array. Depends on
 * kernels.h, base/mem. */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include "backend/cuda/kernels.h"

#define ARRAYS_MOST 24

typedef struct {
  Type type;
  size_t n;
  float *host; /* initial values before each run, in the array's type; NULL: arbitrary */
  char *base;  /* device memory with guard memory on either side */
  void *at;    /* first element */
  char *seen;  /* bytes after the first run */
} Array;

extern int failures, checks; /* number of checks and failures of all tests */
extern size_t skew;          /* elements by which arrays are shifted from a 256-byte boundary */
extern char case_name[200];  /* name of the current test in messages */

/* Exits at the first device error, because later results would be meaningless. */
void must(cudaError_t err, const char *what);
#define MUST(call) must((call), #call)

double type_epsilon(Type type); /* distance from 1 to the next larger number of the type */
const char *type_name(Type type);
float type_round(Type type, float x); /* rounds to the nearest number of the type */

/* Creates an array of normally distributed random numbers, rounded to the type; valid until
 * arrays_free. */
Array *array_draw(Type type, size_t n, float scale);
/* Creates an array for results, filled with NaN before each run. */
Array *array_blank(Type type, size_t n);
Array *array_zero(Type type, size_t n);
void array_put(Array *a); /* copies from host to device */
/* Create a copy on the device, and scratch memory with arbitrary contents. */
void *device_copy(const void *host, size_t bytes);
void *device_scratch(size_t bytes);
/* Returns a float copy of an array's initial values, for the reference. */
float *host_copy(const Array *a);
float *host_floats(size_t n); /* allocates zeroed host memory */
void arrays_reset(void);      /* resets all arrays to their initial values */
void arrays_free(void);

/* Checks |got - want| <= limit * epsilon * (|want| + root mean square of want), equality with
 * the first run, and the guard memory. */
void expect(Array *a, const float *want, double limit, const char *what);
void expect_exact(const void *device, const void *want, size_t bytes, const char *what);
void expect_near(double got, double want, double tolerance, const char *what);
void expect_text(const char *got, const char *want, const char *what); /* NULL: no text */

/* A test case: its name in messages, and the functions that run the kernel and the
 * reference. */
#define BEGIN(...) snprintf(case_name, sizeof case_name, __VA_ARGS__)
#define TWICE      for (int run = 0; run < 2; run++, arrays_reset())
#define COUNT(a)   (sizeof(a) / sizeof *(a))

double draw_even(void); /* returns a random number in 0 … 1 */
uint64_t draw_below(uint64_t n);
/* Keeps the state of the random numbers. */
void keep_draws(void);
/* Exchanges the state with the kept one: once to draw the same numbers again, a second time to
 * go on as if nothing had been drawn in between. */
void swap_draws(void);

#endif
