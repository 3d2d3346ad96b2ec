/* Compares the GEMMs of Trireme with those of libraries on the shapes of training, in GFLOP/s.
 * The contenders alternate on each shape, and the best time of each counts. With one thread the
 * thread's CPU time is measured, so that other processes hardly affect it. Built and run by
 * bench/gemm. Depends on libtrireme. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/progress.h"

/* The two C interfaces of BLAS libraries, with the enumeration values of their manuals. */
typedef void (*Cblas)(int order, int ta, int tb, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);
typedef int (*Dnnl)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                    float *c, int64_t ldc);

typedef struct {
  const char *name;
  Backend *backend; /* the backend of Trireme, or NULL for a library */
  Cblas cblas;
  Dnnl dnnl;
} Contender;

typedef struct {
  float *x, *w, *y;
  int threads;
} Bench;

/* y (rows, out) = x (rows, in) · wᵀ */
static void product(const Bench *g, const Contender *c, size_t rows, size_t in, size_t out) {
  int m = (int)rows, k = (int)in, n = (int)out;
  if (c->cblas)
    c->cblas(101, 111, 112, m, n, k, 1, g->x, k, g->w, k, 0, g->y, n);
  else if (c->dnnl)
    c->dnnl('N', 'T', m, n, k, 1, g->x, k, g->w, k, 0, g->y, n);
  else
    c->backend->linear(c->backend, g->y, g->x, g->w, NULL, rows, in, out);
}

static double seconds(const Bench *g) {
  struct timespec t;
  if (g->threads > 1) return progress_clock();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Alternates between the contenders until the time is over; prints the best rate of each. */
static void compare(const Bench *g, const Contender *list, size_t n, const size_t shape[3]) {
  size_t rows = shape[0], in = shape[1], out = shape[2];
  double best[8] = {0}, operations = 2.0 * (double)rows * (double)in * (double)out, peer = 0;
  for (size_t i = 0; i < n; i++) product(g, &list[i], rows, in, out);
  double end = seconds(g) + (double)n;
  for (int turn = 0; turn < 3 || seconds(g) < end; turn++) {
    for (size_t i = 0; i < n; i++) {
      double start = seconds(g);
      product(g, &list[i], rows, in, out);
      double now = operations / (seconds(g) - start) * 1e-9;
      if (now > best[i]) best[i] = now;
      if (!list[i].backend && best[i] > peer) peer = best[i];
    }
  }
  char name[64];
  snprintf(name, sizeof name, "%zu x %zu x %zu", rows, out, in);
  printf("%-22s", name);
  for (size_t i = 0; i < n; i++) printf(" %12.1f", best[i]);
  if (peer > 0) printf(" %8.3f", best[0] / peer);
  printf("\n");
  fflush(stdout);
}

static bool find(Contender *c, const char *name, const char *file, const char *symbol) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  void *at = library ? dlsym(library, symbol) : NULL;
  *c = (Contender){.name = name};
  if (!at) {
    fprintf(stderr, "%s\n", dlerror());
    return false;
  }
  if (strncmp(symbol, "dnnl", 4) == 0)
    memcpy(&c->dnnl, &at, sizeof at);
  else
    memcpy(&c->cblas, &at, sizeof at);
  return true;
}

/* Usage: gemm THREADS [NAME LIBRARY.so SYMBOL …] */
int main(int argc, char **argv) {
  static const size_t shapes[][3] = {{2048, 256, 1024}, {2048, 1024, 256}, {4096, 512, 512},
                                     {4096, 512, 2048}, {4096, 2048, 512}, {512, 512, 32768},
                                     {128, 512, 512},   {32, 512, 32768},  {4, 512, 2048}};
  if (argc < 2) return 2;
  Backend backend, low;
  Bench g = {.threads = atoi(argv[1])};
  Contender list[8] = {{.name = "trireme", .backend = &backend}};
  size_t contenders = 1, n = (size_t)32768 * 2048;
  for (int i = 2; i + 2 < argc && contenders < 7; i += 3) {
    if (find(&list[contenders], argv[i], argv[i + 1], argv[i + 2])) contenders++;
  }
  if (backend_cpu(&backend, g.threads, false) || mem_alloc_aligned(&g.x, n * 4) ||
      mem_alloc_aligned(&g.w, n * 4) || mem_alloc_aligned(&g.y, n * 4))
    return 1;
  if (backend_cpu(&low, g.threads, true) == ERR_OK)
    list[contenders++] = (Contender){.name = "bf16, ours", .backend = &low};
  for (size_t i = 0; i < n; i++) g.x[i] = (float)(i % 17) - 8, g.w[i] = (float)(i % 13) - 6;
  printf("%-22s", "rows x outputs x inputs");
  for (size_t i = 0; i < contenders; i++) printf(" %12s", list[i].name);
  printf("%s\n", argc > 2 ? "    ratio" : "");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    compare(&g, list, contenders, shapes[i]);
  mem_free(g.x);
  mem_free(g.w);
  mem_free(g.y);
  return 0;
}
