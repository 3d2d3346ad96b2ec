/* Measures kernel times at the shapes of the base model: median of many launches, each after L2
 * was flushed. Depends on check.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "check.h"
#include "occupy.h"

enum { ROWS = 25600, D = 512, FF = 2048, HEADS = 8, VOCAB = 32768, RUNS = 15, STEP = 2048 };
#define POOL        ((size_t)1 << 22)
#define SWEEP       ((size_t)256 << 20)
#define OCCUPIED_US 2000 /* longer than any kernel that is timed beside occupied SMs */

void speed(bool attention_only);
void speed_output(void);
void speed_rows_beside(int sms);

static float *pool; /* POOL normally distributed numbers on the device */
static void *sweep;
static cudaEvent_t begin, end;
static int occupied; /* SMs that another kernel occupies meanwhile */
static cudaStream_t beside;

static void *take(size_t bytes) {
  void *p;
  MUST(cudaMalloc(&p, bytes));
  return p;
}

static void *fill(Type type, size_t n) {
  char *p = take(n * type_size(type));
  for (size_t at = 0; at < n; at += POOL)
    MUST(
        kernel_cast_to(type, p + at * type_size(type), pool, n - at < POOL ? n - at : POOL, 0));
  return p;
}

static int by_size(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static void report(const char *name, double bytes, float *ms) {
  qsort(ms, RUNS, sizeof *ms, by_size);
  double us = (double)ms[RUNS / 2] * 1000;
  printf("%-48s %9.1f us %8.0f GB/s   (fastest %.1f)\n", name, us, bytes / us / 1000,
         (double)ms[0] * 1000);
}

#define TIME(name, bytes, call)                                      \
  do {                                                               \
    float ms_[RUNS];                                                 \
    for (int i_ = -2; i_ < RUNS; i_++) {                             \
      if (occupied) MUST(occupy_sms(occupied, OCCUPIED_US, beside)); \
      MUST(cudaMemsetAsync(sweep, i_, SWEEP, 0));                    \
      MUST(cudaEventRecord(begin, 0));                               \
      MUST(call);                                                    \
      MUST(cudaEventRecord(end, 0));                                 \
      MUST(cudaEventSynchronize(end));                               \
      if (occupied) MUST(cudaStreamSynchronize(beside));             \
      if (i_ >= 0) MUST(cudaEventElapsedTime(&ms_[i_], begin, end)); \
    }                                                                \
    report(name, (double)(bytes), ms_);                              \
  } while (0)

static void speed_attend(Type type, const char *order, const int32_t *off, size_t sentences,
                         const char *way) {
  char name[80];
  size_t n = (size_t)ROWS * D, size = type_size(type);
  Attention a = {.sentences = sentences,
                 .heads = HEADS,
                 .d = D / HEADS,
                 .q_off = off,
                 .k_off = off,
                 .q_ld = 3 * D,
                 .kv_ld = 3 * D,
                 .o_ld = D};
  char *qkv = fill(type, 3 * n), *d_qkv = take(3 * n * size);
  void *o = take(n * size), *d_o = fill(type, n);
  float *lse = take((size_t)ROWS * HEADS * sizeof(float));
  void *work = take(kernel_attend_backward_work(ROWS, HEADS));
  uint64_t *key = take(sizeof *key);
  for (int i = 0; i < 4; i++) {
    a.causal = i % 2;
    a.drop = (Dropout){.key = key, .site = 2, .rate = i < 2 ? 0 : 0.1f};
    const char *what = a.causal ? "causal" : "self";
    snprintf(name, sizeof name, "%-12s attend %s %s rate %g", way, what, order,
             (double)a.drop.rate);
    TIME(name, 4 * n * size,
         kernel_attend(type, o, lse, qkv, qkv + D * size, qkv + 2 * D * size, &a, 0));
    snprintf(name, sizeof name, "%-12s   back %s %s rate %g", way, what, order,
             (double)a.drop.rate);
    TIME(name, 8 * n * size,
         kernel_attend_backward(type, d_qkv, d_qkv + D * size, d_qkv + 2 * D * size, d_o, o,
                                lse, qkv, qkv + D * size, qkv + 2 * D * size, &a, work, 0));
  }
  MUST(cudaFree(qkv));
  MUST(cudaFree(d_qkv));
  MUST(cudaFree(o));
  MUST(cudaFree(d_o));
  MUST(cudaFree(lse));
  MUST(cudaFree(work));
  MUST(cudaFree(key));
}

static void speed_rows(Type type) {
  size_t n = (size_t)ROWS * D, size = type_size(type), wide = (size_t)ROWS * FF;
  Dropout drop = {.key = take(sizeof(uint64_t)), .site = 2, .rate = 0.1f};
  AddNorm an = {.rows = ROWS, .d = D, .epsilon = 1e-6f, .drop = drop};
  void *x = fill(type, n), *branch = fill(type, n), *sum = take(n * size), *y = take(n * size),
       *d_sum = fill(type, n), *up = fill(type, wide), *act = take(wide * size);
  float *gain = fill(TYPE_F32, D), *bias = fill(TYPE_F32, D), *stat = take(ROWS * 2 * 4),
        *table = fill(TYPE_F32, (size_t)VOCAB * D), *place = fill(TYPE_F32, 1024 * D);
  void *low = fill(type, (size_t)VOCAB * D);
  size_t need = kernel_add_norm_backward_work(ROWS, D),
         more = kernel_column_sums_work(ROWS, FF);
  if (more > need) need = more;
  if (need < kernel_embed_backward_work(ROWS, D)) need = kernel_embed_backward_work(ROWS, D);
  void *work = take(need), *sort = take(kernel_sort_ids_work(ROWS));
  int32_t *id = NULL, *pos = NULL, *id_at = take(ROWS * 4), *pos_at = take(ROWS * 4),
          *sorted = take(ROWS * 8);
  if (mem_alloc(&id, ROWS, sizeof *id) || mem_alloc(&pos, ROWS, sizeof *pos)) exit(1);
  for (int i = 0; i < ROWS; i++) {
    id[i] = (int32_t)exp(draw_even() * log(VOCAB)) - 1; /* word frequencies by Zipf's law */
    pos[i] = i % 31;
  }
  MUST(cudaMemcpy(id_at, id, ROWS * 4, cudaMemcpyHostToDevice));
  MUST(cudaMemcpy(pos_at, pos, ROWS * 4, cudaMemcpyHostToDevice));
  mem_free(id);
  mem_free(pos);

  float root = 22.6f;
  TIME("embed", 2 * n * size,
       kernel_embed(type, x, low, place, id_at, pos_at, ROWS, D, root, drop, 0));
  TIME("sort_ids", ROWS * 12, kernel_sort_ids(sorted, id_at, ROWS, VOCAB, sort, 0));
  TIME("embed_backward", n * size,
       kernel_embed_backward(type, table, branch, sorted, ROWS, D, root, drop, work, 0));
  TIME("add_norm", 4 * n * size,
       kernel_add_norm(type, sum, y, stat, x, branch, gain, bias, &an, 0));
  TIME("add_norm_backward with through and a bias", 5 * n * size,
       kernel_add_norm_backward(type, d_sum, branch, gain, bias, gain, y, d_sum, sum, stat,
                                bias, &an, true, work, 0));
  TIME("add_norm_backward without", 4 * n * size,
       kernel_add_norm_backward(type, d_sum, branch, gain, bias, NULL, y, NULL, sum, stat, bias,
                                &an, true, work, 0));
  uint8_t *mask = take(wide / 8);
  TIME("relu", 2 * wide * size,
       kernel_activate(type, act, NULL, up, NULL, ROWS, FF, ACT_RELU, drop, 0));
  TIME("relu with its mask", 2 * wide * size + wide / 8,
       kernel_activate(type, act, mask, up, NULL, ROWS, FF, ACT_RELU, drop, 0));
  TIME("relu with its mask and a bias", 2 * wide * size + wide / 8,
       kernel_activate(type, act, mask, up, low, ROWS, FF, ACT_RELU, drop, 0));
  an.ahead = mask;
  an.ahead_width = FF;
  an.ahead_drop = drop;
  TIME("add_norm that draws the bits of relu", 4 * n * size + wide / 8,
       kernel_add_norm(type, sum, y, stat, x, branch, gain, bias, &an, 0));
  TIME("draw_bits", wide / 8, kernel_draw_bits(mask, wide, drop, 0));
  if (kernel_fuses_relu(type, ROWS, FF, D)) {
    TIME("linear_relu_dropout", (n + wide + FF * D) * size + wide / 4,
         kernel_linear_relu_dropout(type, act, mask, x, low, low, ROWS, D, FF, drop, 0));
    void *more_work = take(kernel_linear_relu_backward_work(ROWS, FF));
    unsigned *counter = take(sizeof *counter);
    MUST(cudaMemset(counter, 0, sizeof *counter));
    TIME("linear_relu_backward", (n + wide + FF * D) * size + wide / 8,
         kernel_linear_relu_backward(type, act, table, x, low, mask, ROWS, FF, D, drop, false,
                                     more_work, counter, 0));
    MUST(cudaFree(counter));
    MUST(cudaFree(more_work));
  }
  TIME("relu_back", 2 * wide * size + wide / 8,
       kernel_activate_backward(type, act, NULL, act, mask, ROWS, FF, ACT_RELU, drop, true,
                                NULL, 0));
  TIME("relu_back with the bias", 2 * wide * size + wide / 8,
       kernel_activate_backward(type, act, stat, act, mask, ROWS, FF, ACT_RELU, drop, true,
                                work, 0));
  TIME("gelu_back", 3 * wide * size,
       kernel_activate_backward(type, act, NULL, act, up, ROWS, FF, ACT_GELU, drop, true, NULL,
                                0));
  TIME("column_sums of 512", n * size,
       kernel_column_sums(type, gain, x, ROWS, D, true, work, 0));
  TIME("column_sums of 2048", wide * size,
       kernel_column_sums(type, stat, up, ROWS, FF, true, work, 0));
  void *all[] = {x,     branch, sum, y,    d_sum, up,     act,   gain,   bias, stat,
                 table, place,  low, work, sort,  sorted, id_at, pos_at, mask};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) MUST(cudaFree(all[i]));
}

static void speed_loss(Type type) {
  size_t n = (size_t)ROWS * VOCAB;
  void *logits = fill(type, n), *work = take(kernel_loss_work(ROWS));
  double *loss = take(3 * sizeof *loss);
  int32_t *target = take(ROWS * 4), *id = take(STEP * 11 * 4);
  float *value = take(STEP * 11 * 4), *lse = take(STEP * 4);
  MUST(cudaMemset(target, 0, ROWS * 4));
  MUST(cudaMemset(loss, 0, 3 * sizeof *loss));
  /* Before the loss, which replaces the logits by gradients, most of them equal. */
  TIME("top 11 of 2048 rows", (double)STEP * VOCAB * (double)type_size(type),
       kernel_top_k(type, value, id, lse, logits, STEP, VOCAB, 11, 0));
  TIME("loss", 2 * n * type_size(type),
       kernel_loss(type, logits, loss, target, ROWS, VOCAB, 0.1f, 1e-3f, work, 0));
  MUST(cudaFree(logits));
  MUST(cudaFree(work));
  MUST(cudaFree(loss));
  MUST(cudaFree(target));
  MUST(cudaFree(id));
  MUST(cudaFree(value));
  MUST(cudaFree(lse));
}

/* linear_loss without its two GEMMs of cuBLASLt. Logits have the standard deviation 1, targets are
 * random. */
static void speed_linear_loss(size_t d) {
  int32_t *target = NULL;
  char name[80];
  size_t size = type_size(TYPE_BF16), rows = ROWS + LOSS_EXTRA_ROWS;
  if (!kernel_fuses_loss(TYPE_BF16, ROWS, d, VOCAB)) return;
  float *small = take(POOL * sizeof *small);
  if (mem_alloc(&target, ROWS, sizeof *target)) exit(1);
  for (size_t i = 0; i < ROWS; i++) target[i] = (int32_t)draw_below(VOCAB);
  char *w = take(VOCAB * d * size);
  MUST(cudaMemset(small, 0, POOL * sizeof *small));
  MUST(kernel_add(small, pool, 1 / sqrtf((float)d), POOL, 0));
  for (size_t at = 0; at < VOCAB * d; at += POOL)
    MUST(kernel_cast_to(TYPE_BF16, w + at * size, small, POOL, 0));
  LinearLoss j = {.rows = ROWS, .in = d, .vocab = VOCAB, .smoothing = 0.1f, .scale = 1};
  j.x = fill(TYPE_BF16, ROWS * d);
  j.w = w;
  j.target = device_copy(target, ROWS * sizeof *target);
  j.logits = take(rows * VOCAB * size);
  j.scaled = take(rows * d * size);
  j.dx = take(ROWS * d * size);
  j.loss = take(3 * sizeof *j.loss);
  float *kept = take(kernel_linear_loss_kept(&j));
  MUST(cudaMemset(j.loss, 0, 3 * sizeof *j.loss));
  void *work = take(kernel_linear_loss_work(&j));
  size_t bytes = (ROWS * VOCAB + 2 * ROWS * d + VOCAB * d) * size;
  snprintf(name, sizeof name, "linear_loss before its GEMMs, d %zu", d);
  TIME(name, bytes, kernel_linear_loss(&j, kept, work, 0));
  TIME("  its last pass over dx", 2 * ROWS * d * size, kernel_linear_loss_dx(&j, kept, 0));
  TIME("  column sums of w", VOCAB * d * size,
       kernel_column_sums(TYPE_BF16, kept, w, VOCAB, d, false, work, 0));
  j.smoothing = 0;
  TIME("  without label smoothing", bytes, kernel_linear_loss(&j, kept, work, 0));
  void *all[] = {small, w,   (void *)(uintptr_t)j.x, j.logits, j.scaled, j.dx, j.loss,
                 kept,  work};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) MUST(cudaFree(all[i]));
  mem_free(target);
  arrays_free();
}

/* A decoding step: 512 sentences, beam 4, 30 keys each. Self-attention with keys scattered over
 * the cache; cross-attention with keys that four hypotheses share. */
static void speed_cached(Type type) {
  enum { KEYS = 30, LAYERS = 6 };
  size_t size = type_size(type), ld = LAYERS * 2 * D, n = (size_t)STEP * D;
  int32_t *list = NULL, *len = NULL, *first = NULL, *which = NULL;
  if (mem_alloc(&list, STEP * KEYS, 4) || mem_alloc(&len, STEP, 4) ||
      mem_alloc(&first, STEP, 4) || mem_alloc(&which, STEP, 4))
    exit(1);
  for (int r = 0; r < STEP; r++) {
    len[r] = KEYS;
    first[r] = r / 4 * KEYS;
    which[r] = r;
    for (int j = 0; j < KEYS; j++)
      list[r * KEYS + j] = j * STEP + r / 4 * 4 + (int)(draw_below(4));
  }
  CachedAttention a = {.rows = STEP,
                       .heads = HEADS,
                       .d = D / HEADS,
                       .at = device_copy(list, STEP * KEYS * 4),
                       .at_ld = KEYS,
                       .list = device_copy(which, STEP * 4),
                       .first = device_copy(first, STEP * 4),
                       .len = device_copy(len, STEP * 4),
                       .q_ld = 3 * D,
                       .kv_ld = ld,
                       .o_ld = D};
  mem_free(list);
  mem_free(len);
  mem_free(first);
  mem_free(which);
  char *cache = fill(type, (size_t)STEP * KEYS * ld), *in = fill(type, 3 * n),
       *o = take(n * size);
  double bytes = 2.0 * (double)n * (double)size;
  TIME("attend_cached by list", bytes * KEYS,
       kernel_attend_cached(type, o, in, cache, cache + D * size, &a, 0));
  a.appends = true;
  TIME("attend_cached that appends", bytes * KEYS,
       kernel_attend_cached(type, o, in, cache, cache + D * size, &a, 0));
  a.appends = false;
  a.at = NULL;
  TIME("attend_cached side by side", bytes * KEYS,
       kernel_attend_cached(type, o, in, cache, cache + D * size, &a, 0));
  MUST(cudaFree(cache));
  MUST(cudaFree(in));
  MUST(cudaFree(o));
  arrays_free();
}

/* Updates each range with a launch of its own. */
static cudaError_t adam_by_launches(Type type, float *w, float *m, float *v, const float *g,
                                    const AdamStep *s, const AdamRange *range, size_t ranges) {
  cudaError_t err = cudaSuccess;
  for (size_t i = 0; i < ranges && !err; i++) {
    size_t at = range[i].begin;
    AdamStep one = *s;
    one.low = (char *)s->low + at * type_size(type);
    err = kernel_adam(type, w + at, m + at, v + at, g + at, range[i].end - at, &one, 0);
  }
  return err;
}

static void speed_update(Type type) {
  size_t n = 61000000;
  float *w = fill(TYPE_F32, n), *m = fill(TYPE_F32, n), *v = fill(TYPE_F32, n),
        *g = fill(TYPE_F32, n);
  void *low = take(n * type_size(type));
  double *sums = take((n / 4096 + 1) * sizeof *sums), *loss = take(3 * sizeof *loss);
  StepNumbers now = {.grad_divisor = 1, .lr = 1e-4f, .correction1 = 0.1f, .correction2 = 0.02f};
  StepNumbers *there = take(sizeof now);
  AdamStep s = {.beta1 = 0.9f,
                .beta2 = 0.98f,
                .epsilon = 1e-9f,
                .now = there,
                .lr_factor = 1,
                .low = low};
  MUST(cudaMemcpy(there, &now, sizeof now, cudaMemcpyHostToDevice));
  MUST(cudaMemset(loss, 0, 3 * sizeof *loss));
  TIME("square_sums of 61 M", 4 * n, kernel_square_sums(sums, g, n, 0));
  TIME("clip", n / 512, kernel_clip(there, sums, n / 4096, loss, 0));
  TIME("adam of 61 M", n * (28 + type_size(type)), kernel_adam(type, w, m, v, g, n, &s, 0));
  /* as in BERT: matrices with weight decay, and between them biases without */
  enum { RANGES = 100 };
  AdamRange range[RANGES];
  for (size_t i = 0; i < RANGES; i++) {
    size_t at = i / 2 * 1220000 + i % 2 * 1217000;
    range[i] = (AdamRange){.begin = at,
                           .end = i + 1 < RANGES ? at + (i % 2 ? 3000 : 1217000) : n,
                           .decays = i % 2 == 0,
                           .lr_factor = 1};
  }
  s.range = range;
  s.ranges = RANGES;
  TIME("adam of 61 M in 100 ranges", n * (28 + type_size(type)),
       kernel_adam(type, w, m, v, g, n, &s, 0));
  s.range = NULL;
  TIME("adam of 61 M in 100 launches", n * (28 + type_size(type)),
       adam_by_launches(type, w, m, v, g, &s, range, RANGES));
  TIME("cast of 61 M", n * (4 + type_size(type)), kernel_cast_to(type, low, w, n, 0));
  MUST(cudaFree(w));
  MUST(cudaFree(m));
  MUST(cudaFree(v));
  MUST(cudaFree(g));
  MUST(cudaFree(low));
  MUST(cudaFree(sums));
  MUST(cudaFree(loss));
  MUST(cudaFree(there));
}

static int by_length(const void *a, const void *b) {
  return *(const int32_t *)a - *(const int32_t *)b;
}

/* Draws `pool` and creates what TIME uses. */
static void prepare(void) {
  float *host = NULL;
  if (mem_alloc(&host, POOL, sizeof *host)) exit(1);
  for (size_t i = 0; i < POOL; i++)
    host[i] = (float)(sqrt(-2 * log(draw_even())) * cos(6.283185307179586 * draw_even()));
  pool = take(POOL * sizeof *pool);
  sweep = take(SWEEP);
  MUST(cudaMemcpy(pool, host, POOL * sizeof *pool, cudaMemcpyHostToDevice));
  mem_free(host);
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
}

void speed_output(void) {
  prepare();
  speed_loss(TYPE_BF16);
  speed_linear_loss(512);
  speed_linear_loss(1024);
}

/* A kernel that is loaded while another runs waits for it: set CUDA_MODULE_LOADING=EAGER. */
void speed_rows_beside(int sms) {
  prepare();
  occupied = sms;
  MUST(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
  printf("%d rows; another kernel occupies %d SMs\n", ROWS, sms);
  speed_rows(TYPE_BF16);
}

void speed(bool attention_only) {
  prepare();
  /* Sentence lengths as in news text: 31 on average, some above 150. */
  int32_t length[ROWS], off[ROWS + 1] = {0}, rows = 0;
  size_t sentences = 0;
  while (rows < ROWS) {
    double normal = sqrt(-2 * log(draw_even())) * cos(6.283185307179586 * draw_even());
    int32_t n = (int32_t)exp(3.22 + 0.65 * normal);
    n = n < 1 ? 1 : n > 250 ? 250 : n;
    if (n > ROWS - rows) n = ROWS - rows;
    length[sentences++] = n;
    rows += n;
  }
  printf("%d rows, %zu sentences; times include about 2 us of launch\n", ROWS, sentences);
  for (int sorted = 0; sorted < 2; sorted++) {
    if (sorted) qsort(length, sentences, sizeof *length, by_length);
    for (size_t i = 0; i < sentences; i++) off[i + 1] = off[i] + length[i];
    int32_t *at = take((sentences + 1) * 4);
    MUST(cudaMemcpy(at, off, (sentences + 1) * 4, cudaMemcpyHostToDevice));
    for (int type = attention_only ? TYPE_BF16 : TYPE_F32; type <= TYPE_BF16; type++) {
      printf("-- %s\n", type_name((Type)type));
      const char *way;
      for (int i = 0; (i < 1 || attention_only) && (way = kernel_select_attention(i)); i++)
        speed_attend((Type)type, sorted ? "long last" : "as drawn", at, sentences, way);
      kernel_select_attention(0);
      if (sorted && !attention_only) {
        speed_rows((Type)type);
        speed_loss((Type)type);
        if (type == TYPE_BF16) speed_linear_loss(D);
        speed_cached((Type)type);
        speed_update((Type)type);
      }
    }
    MUST(cudaFree(at));
  }
}
