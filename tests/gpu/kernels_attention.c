/* Compares every implementation of attention with the reference: self, causal and cross attention,
 * cached keys, lengths around the tile sizes. Depends on check.h. */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "check.h"

void attention_kernels(Type type, const Backend *ref, int variant);

static const uint64_t drop_key = 0x1234567890abcdef;

typedef struct {
  size_t heads, d;
  /* cache: keys are in separate slots, with k_len keys per sentence. */
  bool causal, cross, cache;
  int length; /* length of most sentences */
  float rate;
} AttendCase;

#define SENTENCES      11   /* sentences of an AttendCase */
#define MANY_SENTENCES 1100 /* of about 65 queries and ten keys instead */

static const char *way_name; /* implementation of attention */

/* Returns the implementation that attention must use, as kernel_last_attention does. way: the
 * number of the implementation that was selected. */
static const char *expected_attention(Type type, size_t d, int way) {
  static const char *const group[] = {"in groups", "direct", "tight"};
  int device, major, minor, sm_bytes;
  MUST(cudaGetDevice(&device));
  MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  MUST(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  MUST(cudaDeviceGetAttribute(&sm_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
  int capability = 10 * major + minor;
#ifdef CUDA_AS /* The kernels are compiled as for another GPU. */
  capability = CUDA_AS;
#endif
  if (type == TYPE_F32 || capability < (type == TYPE_BF16 ? 80 : 75)) return NULL;
  if (skew || (d != 32 && d != 64 && d != 128)) return NULL;
  if (d != 64) return "direct";
  return way == 0 && sm_bytes < 3 * (48 << 10) ? "tight" : group[way];
}

/* Sets the lengths of sentence s: around the tile sizes; one sentence is empty, the last one is
 * long. */
static void choose_lengths(const AttendCase *c, int s, int *rows, int *keys) {
  *rows = s == 4 ? 0 : s == SENTENCES - 1 ? 2 * c->length : c->length - 3 + s;
  *keys = c->cross && s != 4 ? c->length + 4 - s : *rows;
  if (*rows < 1 && s != 4) *rows = 1;
  if (*keys < 1 && s != 4) *keys = 1;
  if (!c->cross) *keys = *rows;
  /* sentences with only queries or only keys, short and long */
  if (c->cross && s == 2) *rows = 0;
  if (c->cross && s == 7) *keys = 0;
  if (c->cross && s == 8) {
    *rows = 0;
    *keys = 2 * c->length;
  }
  if (c->cross && s == 9) {
    *rows = 2 * c->length;
    *keys = 0;
  }
  if (c->cache) *rows = s == 4 ? 0 : 1 + s % 2;
}

/* way: the number of the selected implementation. sentences: SENTENCES or MANY_SENTENCES. */
static void test_attend(Type type, const Backend *ref, AttendCase c, int way,
                        size_t sentences) {
  BEGIN("attend (%s) %s heads %zu d %zu%s%s%s length %d rate %g skew %zu", way_name,
        type_name(type), c.heads, c.d, c.causal ? " causal" : "", c.cross ? " cross" : "",
        c.cache ? " cache" : "", c.length, (double)c.rate, skew);
  static int32_t q_off[MANY_SENTENCES + 1], k_off[MANY_SENTENCES + 1], k_len[MANY_SENTENCES];
  bool has_many = sentences == MANY_SENTENCES;
  size_t off_bytes = (sentences + 1) * sizeof *q_off;
  for (int s = 0; s < (int)sentences; s++) {
    int rows = 65 + s % 3, keys = 9 + s % 4;
    if (!has_many) choose_lengths(&c, s, &rows, &keys);
    k_len[s] = keys;
    q_off[s + 1] = q_off[s] + rows;
    k_off[s + 1] = k_off[s] + keys + (c.cache ? 5 : 0);
  }
  size_t width = c.heads * c.d, q_rows = (size_t)q_off[sentences],
         k_rows = (size_t)k_off[sentences];
  Attention a = {.sentences = sentences,
                 .heads = c.heads,
                 .d = c.d,
                 .q_off = q_off,
                 .k_off = k_off,
                 .k_len = c.cache ? k_len : NULL,
                 .q_ld = width + (skew ? 3 : 8),
                 .kv_ld = 2 * width,
                 .o_ld = width,
                 .causal = c.causal,
                 .drop = {.key = &drop_key, .site = 5, .rate = c.rate}};
  Attention at = a;
  at.drop.key = device_copy(&drop_key, sizeof drop_key);
  at.q_off = device_copy(q_off, off_bytes);
  at.k_off = device_copy(k_off, off_bytes);
  at.k_len = c.cache ? device_copy(k_len, sentences * sizeof *k_len) : NULL;
  size_t q_n = q_rows * a.q_ld, kv_n = k_rows * a.kv_ld, o_n = q_rows * width;
  size_t size = type_size(type), half = width * size; /* v follows k in each row */
  Array *q = array_draw(type, q_n, 1), *kv = array_draw(type, kv_n, 1),
        *o = array_blank(type, o_n), *lse = array_blank(TYPE_F32, q_rows * c.heads);
  float *want_o = host_floats(o_n), *want_lse = host_floats(q_rows * c.heads);
  ref->attend(ref, want_o, want_lse, q->host, kv->host, kv->host + width, &a);
  Array *o_in = array_zero(type, o_n), *lse_in = array_zero(TYPE_F32, q_rows * c.heads),
        *d_o = array_draw(type, o_n, 1), *dq = array_zero(type, q_n),
        *dkv = array_zero(type, kv_n);
  for (size_t i = 0; i < o_n; i++) o_in->host[i] = type_round(type, want_o[i]);
  memcpy(lse_in->host, want_lse, q_rows * c.heads * sizeof(float));
  /* Memory between the rows must not change. */
  for (size_t i = 0; i < q_n; i++) dq->host[i] = 0.5f;
  for (size_t i = 0; i < kv_n; i++) dkv->host[i] = 0.5f;
  float *want_dq = host_copy(dq), *want_dkv = host_copy(dkv);
  ref->attend_backward(ref, want_dq, want_dkv, want_dkv + width, d_o->host, o_in->host,
                       lse_in->host, q->host, kv->host, kv->host + width, &a);
  void *work = device_scratch(kernel_attend_backward_work(q_rows, c.heads));
  const char *kernel = expected_attention(type, c.d, way);
  /* p and ds are rounded to the type. With exact arithmetic otherwise, the worst gradient of a
   * case is 1.1 to 2.6 units off in the median of random draws, more than 4 in up to 5 % of them,
   * and was at most 6.5 (simulated for 11 of the cases). */
  double limit = type == TYPE_F32 ? 256 : 8;
  arrays_reset();
  TWICE {
    const char *k = kv->at;
    char *dk = dkv->at;
    MUST(kernel_attend(type, o->at, lse->at, q->at, k, k + half, &at, 0));
    expect_text(kernel_last_attention(), kernel, "forward kernel");
    /* Among millions of elements the worst has a larger error. */
    expect(o, want_o, type == TYPE_F32 ? 128 : has_many ? 4 : 2, "o");
    expect(lse, want_lse, 64, "lse");
    MUST(kernel_attend_backward(type, dq->at, dk, dk + half, d_o->at, o_in->at, lse_in->at,
                                q->at, k, k + half, &at, work, 0));
    expect_text(kernel_last_attention(), kernel, "backward kernel");
    expect(dq, want_dq, limit, "dq");
    expect(dkv, want_dkv, limit, "dk and dv");
  }
}

/* Tests share_out_tight of staged.cuh with more pieces than a helper block lists at a time: 64
 * helpers list 32 each, and a sentence has two pieces forward and three backward. */
static void test_many_pieces(Type type, const Backend *ref) {
  const AttendCase many = {1, 64, false, true, false, 65, 0.1f};
  keep_draws();
  way_name = kernel_select_attention(2);
  test_attend(type, ref, many, 2, MANY_SENTENCES);
  arrays_free();
  kernel_select_attention(0);
  swap_draws();
}

/* Tests attention with implementation `variant`, or with every one if it is -1; one that does not
 * support a shape is skipped. */
void attention_kernels(Type type, const Backend *ref, int variant) {
  static const AttendCase attend[] = {
      {2, 64, false, false, false, 31, 0.1f},
      {2, 64, true, false, false, 31, 0.1f},
      {2, 64, false, true, false, 31, 0.1f},
      {3, 64, false, false, false, 31, 0},
      {3, 64, true, false, false, 17, 0},
      {1, 64, true, false, false, 100, 0.2f},
      {1, 64, false, true, false, 100, 0.2f},
      {2, 64, false, true, false, 3, 0.1f},
      {2, 64, false, false, false, 64, 0.1f},
      {2, 64, true, false, false, 64, 0.1f},
      {1, 64, false, true, false, 64, 0},
      {2, 64, false, false, true, 40, 0},
      /* For attend_group.cu: complete and incomplete groups of four heads; lengths at which it
       * stages 4, 2 and 1 heads at a time; more keys than queries; dropout above one half. */
      {8, 64, false, false, false, 14, 0.1f},
      {5, 64, true, false, false, 15, 0.1f},
      {7, 64, true, false, false, 28, 0.1f},
      {6, 64, false, true, false, 46, 0.6f},
      {3, 64, false, true, false, 62, 0.1f},
      {4, 64, true, false, false, 80, 0.5f},
      {9, 64, false, true, false, 19, 0.1f},
      {6, 64, false, false, false, 47, 0},
      {5, 64, false, false, false, 12, 0.5f},
      {6, 64, true, false, false, 27, 0.7f},
      {5, 64, true, false, false, 47, 0.1f},
      {7, 64, false, true, false, 9, 0.3f},
      {5, 64, false, false, true, 14, 0.1f},
      {2, 32, true, false, false, 31, 0.1f},
      {2, 32, false, true, false, 70, 0.1f},
      {1, 128, true, false, false, 31, 0.1f},
      {2, 128, false, true, false, 70, 0.1f},
      {2, 128, false, false, true, 40, 0},
      {2, 16, true, false, false, 31, 0.1f},
      {3, 20, false, true, false, 31, 0.1f},
      {1, 80, true, false, false, 40, 0.1f},
      {1, 256, false, true, false, 33, 0.1f},
      {5, 7, false, false, false, 9, 0.5f},
      {1, 3, false, false, true, 40, 0}};
  for (size_t i = 0; i < COUNT(attend); i++) {
    bool several = type != TYPE_F32 && attend[i].d == 64 && !skew;
    int ways = several ? 3 : 1; /* those after the third differ in speed alone */
    for (int way = 0; way < ways && (way_name = kernel_select_attention(way)); way++) {
      if (way == 0) keep_draws();
      if (variant >= 0 && way != variant) continue;
      if (way == 2) swap_draws(); /* the tight variant has the inputs of the default */
      test_attend(type, ref, attend[i], way, SENTENCES);
      if (way == 2) swap_draws();
      arrays_free();
    }
    kernel_select_attention(0);
  }
  bool is_asked = variant < 0 || variant == 2;
  if (type != TYPE_F32 && !skew && is_asked) test_many_pieces(type, ref);
}
