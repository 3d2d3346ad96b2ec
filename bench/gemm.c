/* Matrix products of training's shapes: ours beside a library's, in GFLOP/s. Built
 * and run by bench/gemm. Relies on libtrireme. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/progress.h"

/* The two C faces that libraries have; enumerations as their manuals number them. */
typedef void (*Cblas)(int order, int ta, int tb, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);
typedef int (*Dnnl)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                    float *c, int64_t ldc);

typedef struct {
  Backend backend;
  Cblas cblas;
  Dnnl dnnl;
  float *x, *w, *y;
} Bench;

/* y (rows, out) = x (rows, in) · wᵀ */
static void product(const Bench *g, size_t rows, size_t in, size_t out) {
  int m = (int)rows, k = (int)in, n = (int)out;
  if (g->cblas)
    g->cblas(101, 111, 112, m, n, k, 1, g->x, k, g->w, k, 0, g->y, n);
  else if (g->dnnl)
    g->dnnl('N', 'T', m, n, k, 1, g->x, k, g->w, k, 0, g->y, n);
  else
    g->backend.linear(&g->backend, g->y, g->x, g->w, NULL, rows, in, out);
}

static double rate(const Bench *g, size_t rows, size_t in, size_t out) {
  double best = 0, operations = 2.0 * (double)rows * (double)in * (double)out;
  product(g, rows, in, out);
  for (double end = progress_clock() + 1; progress_clock() < end;) {
    double start = progress_clock();
    product(g, rows, in, out);
    double now = operations / (progress_clock() - start);
    if (now > best) best = now;
  }
  return best / 1e9;
}

/* gemm THREADS [LIBRARY.so SYMBOL] */
int main(int argc, char **argv) {
  static const size_t shapes[][3] = {{2048, 256, 1024}, {2048, 1024, 256}, {4096, 512, 512},
                                     {4096, 512, 2048}, {4096, 2048, 512}, {512, 512, 32768}};
  Bench g = {0};
  if (argc < 2) return 2;
  if (argc > 3) {
    void *library = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
    void *symbol = library ? dlsym(library, argv[3]) : NULL;
    if (!symbol) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    if (strncmp(argv[3], "dnnl", 4) == 0)
      memcpy(&g.dnnl, &symbol, sizeof symbol);
    else
      memcpy(&g.cblas, &symbol, sizeof symbol);
  }
  size_t n = (size_t)32768 * 2048;
  if (backend_cpu(&g.backend, atoi(argv[1]), false) || mem_alloc_aligned(&g.x, n * 4) ||
      mem_alloc_aligned(&g.w, n * 4) || mem_alloc_aligned(&g.y, n * 4))
    return 1;
  for (size_t i = 0; i < n; i++) g.x[i] = (float)(i % 17) - 8, g.w[i] = (float)(i % 13) - 6;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    printf("%zux%zux%zu %.0f\n", shapes[i][0], shapes[i][2], shapes[i][1],
           rate(&g, shapes[i][0], shapes[i][1], shapes[i][2]));
    fflush(stdout);
  }
  mem_free(g.x);
  mem_free(g.w);
  mem_free(g.y);
  return 0;
}
