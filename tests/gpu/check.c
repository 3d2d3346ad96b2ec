/* Device arrays of the kernel tests, and their comparison with references. Depends on
 * check.h. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

#define FENCE       512 /* bytes of guard memory on either side of an array */
#define FENCE_BYTE  0xA5
#define BLOCKS_MOST 64

int failures, checks;
size_t skew;
char case_name[200];

static Array array[ARRAYS_MOST];
static size_t arrays;
static void *host_block[BLOCKS_MOST], *device_block[BLOCKS_MOST];
static size_t host_blocks, device_blocks;
static Rng rng = {.key = 11}, kept_rng;

void must(cudaError_t err, const char *what) {
  if (err == cudaSuccess) return;
  fprintf(stderr, "%s\n  %s: %s\n", case_name, what, cudaGetErrorString(err));
  exit(1);
}

static void *host_take(size_t count, size_t size) {
  void *p = NULL;
  if (host_blocks == BLOCKS_MOST || mem_alloc(&p, count, size)) {
    fprintf(stderr, "%s: no memory for the test\n", case_name);
    exit(1);
  }
  return host_block[host_blocks++] = p;
}

static void fail(const char *what, const char *why) {
  failures++;
  fprintf(stderr, "FAIL %s: %s: %s\n", case_name, what, why);
}

void keep_draws(void) {
  kept_rng = rng;
}

void swap_draws(void) {
  Rng now = rng;
  rng = kept_rng;
  kept_rng = now;
}

double draw_even(void) {
  return ((double)(rng_next(&rng) >> 11) + 0.5) * 0x1p-53;
}

uint64_t draw_below(uint64_t n) {
  return rng_below(&rng, n);
}

static float draw_normal(void) {
  double u = draw_even(), v = draw_even();
  return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

const char *type_name(Type type) {
  return type == TYPE_F32 ? "fp32" : type == TYPE_BF16 ? "bf16" : "fp16";
}

static int mantissa_of(Type type) {
  return type == TYPE_F32 ? 23 : type == TYPE_BF16 ? 7 : 10;
}

double type_epsilon(Type type) {
  return ldexp(1, -mantissa_of(type));
}

/* Conversions written after the definitions of the formats, as a reference for the cast
 * kernels. */
float type_round(Type type, float x) {
  if (type == TYPE_F32 || x == 0 || !isfinite(x)) return x;
  int least = type == TYPE_F16 ? -14 : -126, e = ilogb((double)x);
  if (e < least) e = least;
  double step = ldexp(1, e - mantissa_of(type)), y = nearbyint((double)x / step) * step;
  double most = type == TYPE_F16 ? 65504.0 : 3.3895313892515355e38;
  return fabs(y) > most ? copysignf(INFINITY, x) : (float)y;
}

static uint16_t to_bits(Type type, float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (type == TYPE_BF16) return (uint16_t)(bits >> 16); /* x is already rounded to the type */
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  if (isnan(x)) return sign | 0x7e00;
  if (isinf(x)) return sign | 0x7c00;
  if (fabsf(x) < 0x1p-14f) return sign | (uint16_t)(fabsf(x) * 0x1p24f);
  int e = ilogbf(x);
  return sign | (uint16_t)(((e + 15) << 10) + (int)(ldexpf(fabsf(x), 10 - e) - 1024));
}

static float from_bits(Type type, uint16_t half) {
  if (type == TYPE_BF16) {
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
  }
  int e = half >> 10 & 31, m = half & 1023;
  float x = e == 31 ? (m ? NAN : INFINITY)
            : e     ? ldexpf((float)(1024 + m), e - 25)
                    : ldexpf((float)m, -24);
  return half & 0x8000 ? -x : x;
}

static Array *array_new(Type type, size_t n) {
  if (arrays == ARRAYS_MOST) {
    fprintf(stderr, "%s: too many arrays\n", case_name);
    exit(1);
  }
  Array *a = &array[arrays++];
  *a = (Array){.type = type, .n = n};
  MUST(cudaMalloc((void **)&a->base, n * type_size(type) + 2 * FENCE));
  /* Arrays of doubles, and arrays that are always fp32, may be unaligned too. */
  a->at = a->base + FENCE + skew * type_size(type);
  return a;
}

void array_put(Array *a) {
  size_t bytes = a->n * type_size(a->type);
  MUST(cudaMemset(a->base, FENCE_BYTE, bytes + 2 * FENCE));
  if (!a->host) {
    MUST(cudaMemset(a->at, 0xff, bytes)); /* a NaN in every type */
    return;
  }
  if (a->type == TYPE_F32) {
    MUST(cudaMemcpy(a->at, a->host, bytes, cudaMemcpyHostToDevice));
    return;
  }
  uint16_t *low = NULL;
  if (mem_alloc(&low, a->n, 2)) exit(1);
  for (size_t i = 0; i < a->n; i++) low[i] = to_bits(a->type, a->host[i]);
  MUST(cudaMemcpy(a->at, low, bytes, cudaMemcpyHostToDevice));
  mem_free(low);
}

Array *array_draw(Type type, size_t n, float scale) {
  Array *a = array_new(type, n);
  a->host = host_floats(n);
  for (size_t i = 0; i < n; i++) a->host[i] = type_round(type, draw_normal() * scale);
  array_put(a);
  return a;
}

Array *array_blank(Type type, size_t n) {
  Array *a = array_new(type, n);
  array_put(a);
  return a;
}

Array *array_zero(Type type, size_t n) {
  return array_draw(type, n, 0);
}

float *host_floats(size_t n) {
  return host_take(n + 1, sizeof(float));
}

float *host_copy(const Array *a) {
  float *copy = host_floats(a->n);
  memcpy(copy, a->host, a->n * sizeof *copy);
  return copy;
}

void *device_scratch(size_t bytes) {
  if (device_blocks == BLOCKS_MOST) exit(1);
  void *p;
  MUST(cudaMalloc(&p, bytes + 256));
  MUST(cudaMemset(p, 0xff, bytes + 256));
  return device_block[device_blocks++] = p;
}

void *device_copy(const void *host, size_t bytes) {
  void *p = device_scratch(bytes);
  MUST(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
  return p;
}

void arrays_reset(void) {
  for (size_t i = 0; i < arrays; i++) array_put(&array[i]);
}

void arrays_free(void) {
  for (size_t i = 0; i < arrays; i++) {
    MUST(cudaFree(array[i].base));
    mem_free(array[i].seen);
  }
  for (size_t i = 0; i < host_blocks; i++) mem_free(host_block[i]);
  for (size_t i = 0; i < device_blocks; i++) MUST(cudaFree(device_block[i]));
  arrays = host_blocks = device_blocks = 0;
}

void expect(Array *a, const float *want, double limit, const char *what) {
  size_t bytes = a->n * type_size(a->type), all = bytes + 2 * FENCE;
  char *got = NULL, text[300];
  checks++;
  if (mem_alloc(&got, all, 1)) exit(1);
  MUST(cudaMemcpy(got, a->base, all, cudaMemcpyDeviceToHost));
  size_t begin = (size_t)((char *)a->at - a->base);
  for (size_t i = 0; i < all; i++) {
    if ((i < begin || i >= begin + bytes) && (unsigned char)got[i] != FENCE_BYTE) {
      snprintf(text, sizeof text, "memory %zd bytes from its begin was overwritten",
               (ssize_t)i - (ssize_t)begin);
      fail(what, text);
      break;
    }
  }
  double square = 0, worst = 0;
  for (size_t i = 0; i < a->n; i++)
    if (isfinite(want[i])) square += (double)want[i] * want[i];
  double rms = a->n ? sqrt(square / (double)a->n) : 0;
  size_t where = 0;
  float there = 0;
  for (size_t i = 0; i < a->n; i++) {
    float x;
    if (a->type == TYPE_F32) {
      memcpy(&x, got + begin + 4 * i, 4);
    } else {
      uint16_t half;
      memcpy(&half, got + begin + 2 * i, 2);
      x = from_bits(a->type, half);
    }
    /* the spacing of fp16 is never below 2^-24 */
    double room = type_epsilon(a->type) * (fabs((double)want[i]) + rms) +
                  (a->type == TYPE_F16 ? 0x1p-24 : 0);
    double off = fabs((double)x - want[i]) / (room > 0 ? room : 1e-30);
    if (limit == 0) off = INFINITY; /* equal bits, except the sign of 0 */
    if (x == want[i]) off = 0;
    if (isnan(x) != isnan(want[i]) || (isinf(want[i]) && x != want[i])) off = INFINITY;
    if (off > worst) {
      worst = off;
      where = i;
      there = x;
    }
  }
  if (!(worst <= limit)) {
    snprintf(text, sizeof text,
             "element %zu of %zu is %.9g, not %.9g: %.1f units of rounding error off, %.1f are "
             "allowed",
             where, a->n, (double)there, (double)want[where], worst, limit);
    fail(what, text);
  }
  if (!a->seen) {
    a->seen = got;
    return;
  }
  if (memcmp(a->seen + begin, got + begin, bytes)) fail(what, "two runs differ");
  mem_free(got);
}

void expect_exact(const void *device, const void *want, size_t bytes, const char *what) {
  char *got = NULL;
  checks++;
  if (mem_alloc(&got, bytes, 1)) exit(1);
  MUST(cudaMemcpy(got, device, bytes, cudaMemcpyDeviceToHost));
  if (memcmp(got, want, bytes)) fail(what, "differs");
  mem_free(got);
}

void expect_near(double got, double want, double tolerance, const char *what) {
  char text[200];
  checks++;
  if (fabs(got - want) <= tolerance) return;
  snprintf(text, sizeof text, "is %.17g, not %.17g", got, want);
  fail(what, text);
}

void expect_text(const char *got, const char *want, const char *what) {
  char text[200];
  checks++;
  if (!got) got = "(none)";
  if (!want) want = "(none)";
  if (!strcmp(got, want)) return;
  snprintf(text, sizeof text, "is %s, not %s", got, want);
  fail(what, text);
}
