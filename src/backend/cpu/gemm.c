/* Blocking, threads and incomplete tiles of a GEMM; the micro-kernels (gemm_internal.h) do the
 * arithmetic. The working memory is shared by the process, so only one GEMM may run at a time.
 * Depends on base, OpenMP. */
#include "backend/cpu/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/gemm_internal.h"
#include "base/mem.h"
#include "base/parallel.h"

#define MAX_TILE 2048 /* floats of the largest tile */

static GemmKernels kernels;

void gemm_use(GemmKernels use) {
  kernels = use;
}

/* Working memory: two panels of B for all threads, one block of A for each thread. */
static struct {
  char *b, *a;
  size_t b_bytes, a_bytes; /* b_bytes: bytes of a panel; a_bytes: bytes of A per thread */
  int threads;
} work;

static size_t round_up(size_t x, size_t unit) {
  return (x + unit - 1) / unit * unit;
}

static size_t a_block_bytes(const GemmKernel *k) {
  return round_up(k->mc, k->mr) * round_up(k->kc, k->k_unit) * k->element;
}

static size_t b_block_bytes(const GemmKernel *k) {
  return round_up(k->nc, k->nr) * round_up(k->kc, k->k_unit) * k->element;
}

Err gemm_reserve(int threads) {
  const GemmKernel *list[] = {kernels.f32, kernels.few_rows, kernels.bf16};
  size_t a = 0, b = 0;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    if (!list[i]) continue;
    if (a_block_bytes(list[i]) > a) a = a_block_bytes(list[i]);
    if (b_block_bytes(list[i]) > b) b = b_block_bytes(list[i]);
  }
  if (threads <= work.threads && a <= work.a_bytes && b <= work.b_bytes) return ERR_OK;
  if (threads < work.threads) threads = work.threads;
  mem_free(work.a);
  mem_free(work.b);
  work.a = work.b = NULL; /* so that a failure below leaves nothing to free twice */
  work.threads = 0;
  TRY(mem_alloc_aligned(&work.a, (size_t)threads * round_up(a, 4096)));
  TRY(mem_alloc_aligned(&work.b, 2 * round_up(b, 4096)));
  work.a_bytes = round_up(a, 4096);
  work.b_bytes = round_up(b, 4096);
  work.threads = threads;
  return ERR_OK;
}

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

static void add_bias(float *c, size_t ldc, const float *bias, size_t rows, size_t cols) {
  for (size_t r = 0; r < rows; r++, c += ldc) {
    size_t x = 0;
    for (; x + 4 <= cols; x += 4) *(Four *)(c + x) += *(const Four *)(bias + x);
    for (; x < cols; x++) c[x] += bias[x];
  }
}

/* Computes the tile at (i, j) of C over one block of k; `rows` x `cols` of it are inside C. An
 * incomplete tile is computed in `edge`, and the part inside C is copied. */
static void compute_tile(const GemmKernel *k, const Gemm *g, size_t depth, const char *a,
                         const char *b, size_t i, size_t j, size_t rows, size_t cols,
                         bool first, bool last) {
  float edge[MAX_TILE] __attribute__((aligned(64)));
  bool is_complete = rows == k->mr && cols == k->nr;
  bool add = !first || g->accumulate;
  float *c = g->c + i * g->ldc + j;
  if (is_complete) {
    k->tile(depth, a, b, c, g->ldc, add);
  } else if (rows == k->few_rows && cols == k->nr) {
    k->few(depth, a, b, c, g->ldc, add);
  } else {
    (rows < k->few_rows ? k->few : k->tile)(depth, a, b, edge, k->nr, false);
    for (size_t r = 0; r < rows; r++) {
      for (size_t x = 0; x < cols; x++)
        c[r * g->ldc + x] = (add ? c[r * g->ldc + x] : 0) + edge[r * k->nr + x];
    }
  }
  if (last && g->bias)
    (k->add_bias ? k->add_bias : add_bias)(c, g->ldc, g->bias + j, rows, cols);
}

/* Packs a block of A (`rows` rows beginning at i0, `depth` steps of k beginning at p0) into `a`
 * and multiplies it by the `cols` packed columns `b`, which begin at column j0. */
static void multiply_block(const GemmKernel *k, const Gemm *g, size_t i0, size_t rows,
                           size_t j0, size_t cols, size_t p0, size_t depth, const char *b,
                           char *a) {
  size_t padded = round_up(depth, k->k_unit);
  bool first = p0 == 0, last = p0 + depth == g->k;
  k->pack_a(a, g, i0, rows, p0, depth);
  for (size_t j = 0; j < cols; j += k->nr) {
    size_t width = cols - j < k->nr ? cols - j : k->nr;
    for (size_t i = 0; i < rows; i += k->mr) {
      size_t height = rows - i < k->mr ? rows - i : k->mr;
      compute_tile(k, g, padded, a + i * padded * k->element, b + j * padded * k->element,
                   i0 + i, j0 + j, height, width, first, last);
    }
  }
}

/* Returns a part size, a multiple of `unit` and about `max` at most, that divides `total` into
 * equal parts. */
static size_t even_part(size_t total, size_t max, size_t unit) {
  size_t parts = (total + max - 1) / max;
  size_t size = round_up((total + parts - 1) / parts, unit);
  return size ? size : unit;
}

static const GemmKernel *select_kernel(const Gemm *g) {
  if (g->bf16 && kernels.bf16) return kernels.bf16;
  return g->few_rows && kernels.few_rows ? kernels.few_rows : kernels.f32;
}

/* Block sizes of a GEMM; they depend only on the shape. */
typedef struct {
  size_t nc, kc;
  size_t depth; /* k, with the last block padded to k_unit */
} Blocking;

static Blocking choose_blocking(const GemmKernel *k, const Gemm *g) {
  Blocking c = {.nc = even_part(g->n, k->nc, k->nr), .kc = even_part(g->k, k->kc, k->k_unit)};
  size_t rest = g->k % c.kc;
  c.depth = g->k - rest + round_up(rest, k->k_unit);
  return c;
}

size_t gemm_packed_bytes(const Gemm *g) {
  const GemmKernel *k = select_kernel(g);
  return round_up(g->n, k->nr) * choose_blocking(k, g).depth * k->element;
}

/* Layout of a packed B: the slices of all columns for the first block of k, then for the next
 * block. */
void gemm_pack(void *out, const Gemm *g) {
  const GemmKernel *k = select_kernel(g);
  size_t kc = choose_blocking(k, g).kc, wide = round_up(g->n, k->nr);
#pragma omp parallel for num_threads(work.threads) schedule(static)
  for (size_t j = 0; j < g->n; j += k->nr) {
    for (size_t p0 = 0; p0 < g->k; p0 += kc) {
      size_t depth = g->k - p0 < kc ? g->k - p0 : kc, padded = round_up(depth, k->k_unit);
      k->pack_b((char *)out + (wide * p0 + j * padded) * k->element, g, j,
                g->n - j < k->nr ? g->n - j : k->nr, p0, depth);
    }
  }
}

/* GEMM with B packed in advance. The threads divide the columns instead of the rows: each thread
 * reads its part of B once, and a GEMM with few rows (one decoding step) still uses all
 * threads. */
static void gemm_by_columns(const GemmKernel *k, const Gemm *g, int threads) {
  Blocking c = choose_blocking(k, g);
  size_t slices = round_up(g->n, k->nr) / k->nr, mc = even_part(g->m, k->mc, k->mr);
#pragma omp parallel num_threads(threads)
  {
    size_t me = (size_t)omp_get_thread_num(), all = (size_t)omp_get_num_threads();
    size_t begin = slices * me / all * k->nr, end = slices * (me + 1) / all * k->nr;
    size_t cols = (end < g->n ? end : g->n) - begin;
    for (size_t p0 = 0; p0 < g->k && begin < end; p0 += c.kc) {
      size_t depth = g->k - p0 < c.kc ? g->k - p0 : c.kc, padded = round_up(depth, k->k_unit);
      const char *b =
          (const char *)g->packed + (slices * k->nr * p0 + begin * padded) * k->element;
      for (size_t i0 = 0; i0 < g->m; i0 += mc)
        multiply_block(k, g, i0, g->m - i0 < mc ? g->m - i0 : mc, begin, cols, p0, depth, b,
                       work.a + me * work.a_bytes);
    }
  }
}

/* A panel of B: `cols` columns beginning at j0, `depth` steps of k beginning at p0. */
typedef struct {
  size_t j0, cols, p0, depth;
} Panel;

static size_t count_parts(size_t total, size_t size) {
  return (total + size - 1) / size;
}

/* Returns a panel by its number; all panels of the same columns follow each other. */
static Panel find_panel(const Gemm *g, const Blocking *c, size_t number) {
  size_t deep = count_parts(g->k, c->kc), j0 = number / deep * c->nc,
         p0 = number % deep * c->kc;
  return (Panel){.j0 = j0,
                 .cols = g->n - j0 < c->nc ? g->n - j0 : c->nc,
                 .p0 = p0,
                 .depth = g->k - p0 < c->kc ? g->k - p0 : c->kc};
}

/* Packs part i of `parts` of a panel. Adjacent columns belong to one part, because they are adjacent
 * in memory. */
static void pack_part(const GemmKernel *k, const Gemm *g, const Panel *panel, size_t i,
                      size_t parts, char *b) {
  size_t wide = round_up(count_parts(panel->cols, parts), k->nr), j = i * wide;
  if (j >= panel->cols) return;
  k->pack_b(b + j * round_up(panel->depth, k->k_unit) * k->element, g, panel->j0 + j,
            panel->cols - j < wide ? panel->cols - j : wide, panel->p0, panel->depth);
}

/* Multiplies all rows by one panel of B after the other. While the threads multiply by a panel,
 * they also pack the next one, so that they wait for each other only once per panel. */
static void gemm_by_rows(const GemmKernel *k, const Gemm *g, size_t threads) {
  Blocking c = choose_blocking(k, g);
  size_t panels = count_parts(g->n, c.nc) * count_parts(g->k, c.kc);
  /* At least two blocks of rows per thread, to balance the load. */
  size_t share = count_parts(g->m, 2 * threads);
  size_t mc = even_part(g->m, share < k->mc ? round_up(share, k->mr) : k->mc, k->mr);
#pragma omp parallel num_threads((int)threads)
  {
    char *a = work.a + (size_t)omp_get_thread_num() * work.a_bytes;
    Panel now = {0}, next = {0};
    /* Round r packs panel r and multiplies by panel r - 1. */
    for (size_t r = 0; r <= panels; r++, now = next) {
      size_t parts = r < panels ? threads : 0, blocks = r > 0 ? count_parts(g->m, mc) : 0;
      char *to = work.b + r % 2 * work.b_bytes, *from = work.b + (r + 1) % 2 * work.b_bytes;
      if (parts) next = find_panel(g, &c, r);
#pragma omp for schedule(dynamic)
      for (size_t i = 0; i < parts + blocks; i++) {
        size_t i0 = (i - parts) * mc;
        if (i < parts)
          pack_part(k, g, &next, i, parts, to);
        else
          multiply_block(k, g, i0, g->m - i0 < mc ? g->m - i0 : mc, now.j0, now.cols, now.p0,
                         now.depth, from, a);
      }
    }
  }
}

void gemm(const Gemm *g) {
  const GemmKernel *k = select_kernel(g);
  if (g->m == 0 || g->n == 0) return;
  int threads = omp_get_max_threads();
  if (threads > work.threads) threads = work.threads;
  if (g->packed)
    gemm_by_columns(k, g, threads);
  else
    gemm_by_rows(k, g, (size_t)threads);
}
