/* Compares the decoding kernels with the reference; part of test_kernels. Depends on
 * check.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "check.h"

void decode_kernels(Type type, const Backend *ref);

/* The second half of the lists continues the first one; every third row is skipped. */
static void test_extend(const Backend *ref, size_t rows, size_t n) {
  BEGIN("extend rows %zu n %zu", rows, n);
  size_t ld = n + 3, cells = 2 * rows * ld;
  int32_t *want = (int32_t *)host_floats(cells), *row = (int32_t *)host_floats(4 * rows),
          *list = row, *parent = row + rows, *len = parent + rows, *slot = len + rows;
  for (size_t i = 0; i < cells; i++) want[i] = (int32_t)draw_below(1000);
  for (size_t r = 0; r < rows; r++) {
    list[r] = (int32_t)(2 * rows - 1 - r);
    parent[r] = (int32_t)draw_below(rows);
    len[r] = r % 3 == 2 ? 0 : (int32_t)n + 1;
    slot[r] = 5000 + (int32_t)r;
  }
  int32_t *at = device_copy(want, cells * sizeof *want),
          *row_at = device_copy(row, 4 * rows * sizeof *row);
  ref->extend(ref, want, list, parent, len, slot, rows, ld);
  MUST(kernel_extend(at, row_at, row_at + rows, row_at + 2 * rows, row_at + 3 * rows, rows, ld,
                     0));
  expect_exact(at, want, cells * sizeof *want, "lists");
}

/* Makes rows with 0 to `longest` keys, scattered over the cache or contiguous in it, or scattered
 * and with the last key and value still beside the query. */
enum { CONTIGUOUS, LISTED, APPENDED };
static void test_cached(const Backend *ref, Type type, size_t heads, size_t d, int longest,
                        int kind) {
  static const char *const kinds[] = {"", " listed", " appended"};
  BEGIN("attend_cached %s heads %zu d %zu longest %d%s skew %zu", type_name(type), heads, d,
        longest, kinds[kind], skew);
  enum { ROWS = 37 };
  bool listed = kind != CONTIGUOUS;
  size_t width = heads * d, others = (size_t)longest + 20, cache = others + ROWS;
  CachedAttention a = {.rows = ROWS,
                       .heads = heads,
                       .d = d,
                       .at_ld = (size_t)longest + 2,
                       .q_ld = 3 * width + (skew ? 3 : 8),
                       .kv_ld = 2 * width,
                       .o_ld = width,
                       .appends = kind == APPENDED};
  int32_t *list = (int32_t *)host_floats(ROWS * a.at_ld), len[ROWS], first[ROWS], which[ROWS];
  for (size_t r = 0; r < ROWS; r++) {
    len[r] = r == ROWS - 1 ? 0 : r < (size_t)longest && r < 34 ? (int32_t)r + 1 : longest;
    first[r] = (int32_t)draw_below(20);
    which[r] = (int32_t)(ROWS - 1 - r);
    int32_t *own = list + (ROWS - 1 - r) * a.at_ld;
    for (size_t j = 0; j < a.at_ld; j++) own[j] = (int32_t)draw_below(others);
    if (a.appends && len[r]) own[len[r] - 1] = (int32_t)(others + r); /* of no other row */
  }
  CachedAttention at = a;
  a.len = len;
  at.len = device_copy(len, sizeof len);
  if (listed) {
    a.at = list;
    at.at = device_copy(list, ROWS * a.at_ld * sizeof *list);
    a.list = which;
    at.list = device_copy(which, sizeof which);
  } else {
    a.first = first;
    at.first = device_copy(first, sizeof first);
  }
  Array *q = array_draw(type, ROWS * a.q_ld, 1),
        *kv = array_draw(type, (cache + 1) * a.kv_ld, 1), *o = array_blank(type, ROWS * width);
  float *want = host_floats(ROWS * width), *stored = host_copy(kv);
  ref->attend_cached(ref, want, q->host, stored, stored + width, &a);
  TWICE {
    MUST(kernel_attend_cached(type, o->at, q->at, kv->at,
                              (char *)kv->at + width * type_size(type), &at, 0));
    expect(o, want, type == TYPE_F32 ? 64 : 2, "o");
    expect(kv, stored, 0, "the cache");
  }
}

/* Adversarial input: the largest logits all belong to three warps, which is more than the
 * kernel can sort. */
static void test_top_k(const Backend *ref, Type type, size_t n, size_t vocab, size_t k,
                       bool spite) {
  BEGIN("top %s n %zu vocab %zu k %zu%s skew %zu", type_name(type), n, vocab, k,
        spite ? " spite" : "", skew);
  Array *logits = array_draw(type, n * vocab, 2), *value = array_blank(TYPE_F32, n * k),
        *lse = array_blank(TYPE_F32, n);
  size_t share = vocab % 8 || skew ? 32 : 256; /* neighbours that one warp reads */
  for (size_t i = 0; i < n * vocab; i++) {
    /* Rows with many equal values. */
    if (i / vocab % 2) logits->host[i] = floorf(logits->host[i]);
    if (spite && i % vocab / share % 32 < 3) logits->host[i] += 64;
    logits->host[i] = type_round(type, logits->host[i]);
  }
  float *want = host_floats(n * k), *want_lse = host_floats(n);
  int32_t *want_id = (int32_t *)host_floats(n * k), *id = device_scratch(n * k * sizeof *id);
  ref->top_k(ref, want, want_id, want_lse, logits->host, n, vocab, k);
  arrays_reset();
  TWICE {
    MUST(kernel_top_k(type, value->at, id, lse->at, logits->at, n, vocab, k, 0));
    expect(value, want, 0, "top's values");
    expect(lse, want_lse, 32, "top's lse");
    expect_exact(id, want_id, n * k * sizeof *id, "top's ids");
  }
}

/* Rows of NaNs must give distinct ids. */
static void test_top_k_of_nan(Type type) {
  BEGIN("top %s of NaN skew %zu", type_name(type), skew);
  enum { VOCAB = 3000, K = 12 };
  Array *logits = array_draw(type, VOCAB, 1);
  for (size_t i = 0; i < VOCAB; i++) logits->host[i] = NAN;
  array_put(logits);
  int32_t want[K], *id = device_scratch(sizeof want);
  for (int i = 0; i < K; i++) want[i] = i;
  MUST(kernel_top_k(type, device_scratch(sizeof want), id, device_scratch(4), logits->at, 1,
                    VOCAB, K, 0));
  expect_exact(id, want, sizeof want, "ids");
}

void decode_kernels(Type type, const Backend *ref) {
  static const size_t lists[][2] = {{1, 0}, {5, 1}, {70, 33}, {130, 500}};
  for (size_t i = 0; i < COUNT(lists) && type == TYPE_F32; i++) {
    test_extend(ref, lists[i][0], lists[i][1]);
    arrays_free();
  }
  static const size_t cached[][3] = {{8, 64, 40},   {3, 64, 100}, {2, 32, 33}, {1, 128, 70},
                                     {1, 256, 35},  {2, 16, 40},  {3, 20, 17}, {1, 80, 31},
                                     {1, 200, 64},  {5, 7, 9},    {2, 1, 40},  {4, 33, 1},
                                     {2, 64, 1100}, {16, 8, 32}};
  for (size_t i = 0; i < COUNT(cached); i++) {
    size_t heads = cached[i][0], d = cached[i][1];
    for (int kind = CONTIGUOUS; kind <= APPENDED; kind++) {
      test_cached(ref, type, heads, d, (int)cached[i][2], kind);
      arrays_free();
    }
  }
  static const size_t tops[][3] = {{3, 5, 5},      {4, 1000, 1},   {4, 1000, 128},
                                   {5, 10007, 8},  {3, 2600, 11},  {6, 32768, 11},
                                   {2, 40960, 32}, {2, 32768, 33}, {2, 5000, 1024}};
  for (size_t i = 0; i < COUNT(tops); i++) {
    test_top_k(ref, type, tops[i][0], tops[i][1], tops[i][2], false);
    arrays_free();
    test_top_k(ref, type, tops[i][0], tops[i][1], tops[i][2], true);
    arrays_free();
  }
  test_top_k_of_nan(type);
  arrays_free();
}
