/* The CUDA backend: opens a GPU and sets the table of operations. Each operation enqueues kernels
 * or a GEMM on the compute stream; cuda_note() stores the first error for `get` and `sync`.
 * Depends on memory.h, matmul.h, kernels.h, graph.h, nccl.h, output.h. */
#include "backend/cuda/cuda.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/graph.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/nccl.h"
#include "backend/cuda/output.h"
#include "base/mem.h"
#include "base/plugin.h"
#include "base/rng.h"

extern const char trireme_plugin_version[];
const char trireme_plugin_version[] = PLUGIN_VERSION;

static Err reserve(const Backend *b, size_t longest, size_t d) {
  (void)b;
  (void)longest;
  if (d > KERNEL_MAX_HEAD)
    return err_set(
        ERR_USAGE,
        "attention heads of width %zu are not supported on a GPU (at most %d); raise "
        "--heads or use --device cpu",
        d, KERNEL_MAX_HEAD);
  return ERR_OK;
}

static bool uses_fp8(const Backend *b, const Matmul *x) {
  uintptr_t at = (uintptr_t)x->x | (uintptr_t)x->dy | (uintptr_t)x->w;
  return b->fp8 && x->kind != MATMUL_WGRAD && backend_takes_fp8(x->rows, x->in, x->out) &&
         at % 16 == 0;
}

/* Sets *to to the memory for the fp8 rows of the array `of` (rows, n), which the caller is
 * about to write and the next GEMM may read. Returns false if no GEMM reads it in fp8, or not
 * with one scale per row. After the kernel is launched, the caller calls end_fp8_rows. */
static bool begin_fp8_rows(const Backend *b, Fp8Rows *to, const void *of, size_t rows,
                           size_t n) {
  Cuda *c = cuda_peek(b);
  if (!b->fp8 || c->matmul.scales != FP8_ROW_SCALES) return false;
  if ((uintptr_t)of % 16 || !backend_takes_fp8(rows, n, FP8_MIN_DIM)) return false;
  void *work = cuda_scratch(c, &c->fp8, kernel_fp8_work(rows, n, FP8_MIN_DIM));
  if (!work) return false;
  *to = kernel_fp8_rows(work, rows, n);
  return true;
}

/* e: result of the launch. */
static void end_fp8_rows(Cuda *c, const char *what, cudaError_t e, const void *of, size_t rows,
                         size_t n) {
  cuda_note(c, what, e);
  if (!e) c->converted = (Converted){of, rows, n};
}

/* Returns true if the fp8 rows of `of` are in the scratch memory; forgets them, because the
 * caller is about to overwrite it. */
static bool take_fp8_rows(Cuda *c, const void *of, size_t rows, size_t n) {
  Converted is = c->converted;
  c->converted.of = NULL;
  return of && is.of == of && is.rows == rows && is.n == n;
}

/* Converts the operands to fp8 and runs the GEMM on them. With one scale per row, the first
 * operand may have been converted by the operation that wrote it. */
static void multiply_fp8(Cuda *c, const Matmul *x) {
  bool is_dgrad = x->kind == MATMUL_DGRAD;
  const void *rows = is_dgrad ? x->dy : x->x;
  /* If the memory grows, it forgets its fp8 rows. */
  void *work = cuda_scratch(c, &c->fp8, kernel_fp8_work(x->rows, x->in, x->out));
  Fp8 fp8;
  if (!work) return;
  if (take_fp8_rows(c, rows, x->rows, is_dgrad ? x->out : x->in)) rows = NULL;
  cudaError_t e = (c->matmul.scales == FP8_ROW_SCALES ? kernel_fp8 : kernel_fp8_tensor)(
      &fp8, rows, x->w, x->rows, x->in, x->out, is_dgrad, work, c->stream);
  cuda_note(c, "fp8", e);
  Matmul y = *x;
  y.fp8 = &fp8;
  if (!e) cuda_note_err(c, matmul_run(&c->matmul, &y));
}

static void run_matmul(const Backend *b, const Matmul *x) {
  Cuda *c = cuda_peek(b);
  size_t bytes = kernel_column_sums_work(x->rows, x->out);
  if (!cuda_scratch(c, &c->work, bytes > MATMUL_WORK ? bytes : MATMUL_WORK)) return;
  c->matmul.work = c->work.at;
  if (uses_fp8(b, x)) {
    multiply_fp8(c, x);
    return;
  }
  /* A weight gradient is between the backward of ReLU and the input gradient that reads its fp8
   * rows. */
  if (x->kind == MATMUL_WGRAD) {
    cuda_forget_overwritten(c, x->result, x->in * x->out * sizeof(float));
    cuda_forget_overwritten(c, x->dbias, x->out * sizeof(float));
  } else {
    c->converted.of = NULL;
  }
  cuda_note_err(c, matmul_run(&c->matmul, x));
}

static Matmul describe_linear(void *y, const void *x, const void *w, const void *bias,
                              size_t rows, size_t in, size_t out) {
  return (Matmul){.kind = MATMUL_FPROP,
                  .rows = rows,
                  .in = in,
                  .out = out,
                  .result = y,
                  .x = x,
                  .w = w,
                  .bias = bias};
}

static void linear(const Backend *b, void *y, const void *x, const void *w, const void *bias,
                   size_t rows, size_t in, size_t out) {
  Matmul m = describe_linear(y, x, w, bias, rows, in, out);
  run_matmul(b, &m);
}

static void linear_relu(const Backend *b, void *y, const void *x, const void *w,
                        const void *bias, size_t rows, size_t in, size_t out) {
  Matmul m = describe_linear(y, x, w, bias, rows, in, out);
  m.relu = true;
  run_matmul(b, &m);
}

static void linear_dx(const Backend *b, void *dx, const void *dy, const void *w, size_t rows,
                      size_t in, size_t out, bool accumulate) {
  run_matmul(b, &(Matmul){.kind = MATMUL_DGRAD,
                          .rows = rows,
                          .in = in,
                          .out = out,
                          .result = dx,
                          .w = w,
                          .dy = dy,
                          .accumulate = accumulate});
}

static void linear_dw(const Backend *b, float *dw, float *dbias, const void *dy, const void *x,
                      size_t rows, size_t in, size_t out, bool accumulate) {
  run_matmul(b, &(Matmul){.kind = MATMUL_WGRAD,
                          .rows = rows,
                          .in = in,
                          .out = out,
                          .result = dw,
                          .x = x,
                          .dy = dy,
                          .dbias = dbias,
                          .accumulate = accumulate});
}

static void embed(const Backend *b, void *x, const void *table, const float *place,
                  const int32_t *id, const int32_t *position, size_t rows, size_t d,
                  float scale, Dropout drop) {
  Cuda *c = cuda_of(b);
  cuda_note(
      c, "embed",
      kernel_embed(c->type, x, table, place, id, position, rows, d, scale, drop, c->stream));
}

/* Adds the gradient of one embedding table: sorts the tokens by id, then sums those of each
 * id. */
static void add_table_gradient(Cuda *c, float *dtable, const void *dx, const int32_t *id,
                               size_t limit, size_t rows, size_t d, float scale, Dropout drop) {
  size_t bytes = kernel_sort_ids_work(rows), more = kernel_embed_backward_work(rows, d);
  void *work = cuda_scratch(c, &c->work, more > bytes ? more : bytes);
  int32_t *sorted = cuda_scratch(c, &c->sorted, 2 * rows * sizeof *sorted);
  if (!work || !sorted) return;
  cuda_note(c, "embed_backward", kernel_sort_ids(sorted, id, rows, limit, work, c->stream));
  cuda_note(c, "embed_backward",
            kernel_embed_backward(c->type, dtable, dx, sorted, rows, d, scale, drop, work,
                                  c->stream));
}

static void embed_backward(const Backend *b, float *dtable, float *dplace, const void *dx,
                           const int32_t *id, const int32_t *position, size_t rows, size_t d,
                           size_t words, size_t places, float scale, Dropout drop) {
  Cuda *c = cuda_of(b);
  if (rows == 0) return;
  add_table_gradient(c, dtable, dx, id, words, rows, d, scale, drop);
  if (dplace) add_table_gradient(c, dplace, dx, position, places, rows, d, 1, drop);
}

static void gather_rows(const Backend *b, void *y, const void *x, const int32_t *index,
                        size_t rows, size_t d) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "gather_rows", kernel_gather_rows(c->type, y, x, index, rows, d, c->stream));
}

static void scatter_rows(const Backend *b, void *dx, const void *dy, const int32_t *index,
                         size_t rows, size_t tokens, size_t d) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "scatter_rows",
            kernel_scatter_rows(c->type, dx, dy, index, rows, tokens, d, c->stream));
}

static void add_norm(const Backend *b, void *sum, void *y, float *stat, const void *x,
                     const void *branch, const float *gain, const float *bias,
                     const AddNorm *n) {
  Cuda *c = cuda_of(b);
  Fp8Rows to;
  uintptr_t at = (uintptr_t)x | (uintptr_t)branch | (uintptr_t)(branch ? sum : NULL) |
                 (uintptr_t)gain | (uintptr_t)bias;
  /* If the next GEMM has bits drawn ahead, it does not read fp8. */
  if (!n->ahead && at % 16 == 0 && kernel_converts_norm(n->d) &&
      begin_fp8_rows(b, &to, y, n->rows, n->d))
    end_fp8_rows(c, "add_norm",
                 kernel_add_norm_fp8(to, sum, y, stat, x, branch, gain, bias, n, c->stream), y,
                 n->rows, n->d);
  else
    cuda_note(c, "add_norm",
              kernel_add_norm(c->type, sum, y, stat, x, branch, gain, bias, n, c->stream));
}

static void add_norm_backward(const Backend *b, void *dx, void *dbranch, float *dgain,
                              float *dbias, float *dshift, const void *dy, const void *through,
                              const void *sum, const float *stat, const float *gain,
                              const AddNorm *n, bool accumulate) {
  Cuda *c = cuda_of(b);
  void *work = cuda_scratch(c, &c->work, kernel_add_norm_backward_work(n->rows, n->d));
  if (!work) return;
  cuda_note(c, "add_norm_backward",
            kernel_add_norm_backward(c->type, dx, dbranch, dgain, dbias, dshift, dy, through,
                                     sum, stat, gain, n, accumulate, work, c->stream));
}

static void attend(const Backend *b, void *o, float *lse, const void *q, const void *k,
                   const void *v, const Attention *a) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "attend", kernel_attend(c->type, o, lse, q, k, v, a, c->stream));
}

static void attend_backward(const Backend *b, void *dq, void *dk, void *dv, const void *do_,
                            const void *o, const float *lse, const void *q, const void *k,
                            const void *v, const Attention *a) {
  Cuda *c = cuda_of(b);
  void *work = cuda_scratch(c, &c->work, kernel_attend_backward_work(a->q_rows, a->heads));
  if (!work) return;
  cuda_note(
      c, "attend_backward",
      kernel_attend_backward(c->type, dq, dk, dv, do_, o, lse, q, k, v, a, work, c->stream));
}

static void attend_cached(const Backend *b, void *o, const void *q, void *k, void *v,
                          const CachedAttention *a) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "attend_cached", kernel_attend_cached(c->type, o, q, k, v, a, c->stream));
}

static void extend(const Backend *b, int32_t *at, const int32_t *list, const int32_t *parent,
                   const int32_t *len, const int32_t *slot, size_t rows, size_t ld) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "extend", kernel_extend(at, list, parent, len, slot, rows, ld, c->stream));
}

static void top_k(const Backend *b, float *value, int32_t *id, float *lse, const void *logits,
                  size_t rows, size_t vocab, size_t k) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "top_k",
            kernel_top_k(c->type, value, id, lse, logits, rows, vocab, k, c->stream));
}

static void activate(const Backend *b, void *y, uint8_t *mask, const void *x, const void *bias,
                     size_t rows, size_t width, Activation kind, Dropout drop) {
  Cuda *c = cuda_of(b);
  Fp8Rows to;
  uintptr_t at = (uintptr_t)x | (uintptr_t)bias;
  if (kind == ACT_RELU && at % 16 == 0 && begin_fp8_rows(b, &to, y, rows, width))
    end_fp8_rows(c, "activate",
                 kernel_relu_fp8(to, y, mask, x, bias, rows, width, drop, c->stream), y, rows,
                 width);
  else
    cuda_note(c, "activate",
              kernel_activate(c->type, y, mask, x, bias, rows, width, kind, drop, c->stream));
}

static void activate_backward(const Backend *b, void *dx, float *dbias, const void *dy,
                              const void *kept, size_t rows, size_t width, Activation kind,
                              Dropout drop, bool accumulate) {
  Cuda *c = cuda_of(b);
  bool converts = dbias && kind == ACT_RELU && kernel_converts_relu_backward(width);
  size_t bytes = kernel_column_sums_work(rows, width);
  if (converts && kernel_relu_backward_fp8_work(width) > bytes)
    bytes = kernel_relu_backward_fp8_work(width);
  void *work = dbias ? cuda_scratch(c, &c->work, bytes) : NULL;
  Fp8Rows to;
  if (dbias && !work) return;
  if (converts && (uintptr_t)dy % 16 == 0 && begin_fp8_rows(b, &to, dx, rows, width))
    end_fp8_rows(c, "activate_backward",
                 kernel_relu_backward_fp8(to, dx, dbias, dy, kept, rows, width, drop,
                                          accumulate, work, c->stream),
                 dx, rows, width);
  else
    cuda_note(c, "activate_backward",
              kernel_activate_backward(c->type, dx, dbias, dy, kept, rows, width, kind, drop,
                                       accumulate, work, c->stream));
}

/* Minimum elements of a result for which the fused kernel is faster: nearly two tiles for each of
 * the 132 SMs of an H100 or H200. */
#define RELU_MIN_ELEMENTS ((size_t)1 << 23)

static bool fuses_relu(const Backend *b, size_t rows, size_t in, size_t out) {
  return rows * in >= RELU_MIN_ELEMENTS && !(b->fp8 && backend_takes_fp8(rows, in, out)) &&
         kernel_fuses_relu(b->type, rows, in, out);
}

static bool fuses_linear_relu_dropout(const Backend *b, size_t rows, size_t in, size_t out) {
  return fuses_relu(b, rows, out, in);
}

static void linear_relu_dropout(const Backend *b, void *y, uint8_t *mask, const void *x,
                                const void *w, const void *bias, size_t rows, size_t in,
                                size_t out, Dropout drop) {
  Cuda *c = cuda_of(b);
  uintptr_t at = (uintptr_t)y | (uintptr_t)mask | (uintptr_t)x | (uintptr_t)w | (uintptr_t)bias;
  if (!bias || at % 16) {
    linear(b, y, x, w, NULL, rows, in, out);
    activate(b, y, mask, y, bias, rows, out, ACT_RELU, drop);
    return;
  }
  cuda_note(
      c, "linear_relu_dropout",
      kernel_linear_relu_dropout(c->type, y, mask, x, w, bias, rows, in, out, drop, c->stream));
}

static void linear_relu_backward(const Backend *b, void *dx, float *dbias, const void *dy,
                                 const void *w, const uint8_t *mask, size_t rows, size_t in,
                                 size_t out, Dropout drop, bool accumulate) {
  Cuda *c = cuda_of(b);
  uintptr_t at = (uintptr_t)dx | (uintptr_t)dy | (uintptr_t)w | (uintptr_t)mask;
  if (at % 16) {
    linear_dx(b, dx, dy, w, rows, in, out, /*accumulate=*/false);
    activate_backward(b, dx, dbias, dx, mask, rows, in, ACT_RELU, drop, accumulate);
    return;
  }
  void *work = cuda_scratch(c, &c->work, kernel_linear_relu_backward_work(rows, in));
  if (!work) return;
  cuda_note(c, "linear_relu_backward",
            kernel_linear_relu_backward(c->type, dx, dbias, dy, w, mask, rows, in, out, drop,
                                        accumulate, work, c->tile_counter, c->stream));
}

static void loss(const Backend *b, void *logits, double *sum, const int32_t *target,
                 size_t rows, size_t vocab, float smoothing, float scale) {
  Cuda *c = cuda_of(b);
  void *work = cuda_scratch(c, &c->work, kernel_loss_work(rows));
  if (!work) return;
  cuda_note(c, "loss",
            kernel_loss(c->type, logits, sum, target, rows, vocab, smoothing, scale, work,
                        c->stream));
}

static void head_loss(const Backend *b, void *logits, double *sum, const float *target,
                      const HeadLoss *h) {
  Cuda *c = cuda_of(b);
  void *work = cuda_scratch(c, &c->work, kernel_loss_work(h->rows));
  if (!work) return;
  cuda_note(c, "head_loss", kernel_head_loss(c->type, logits, sum, target, h, work, c->stream));
}

static void square_sums_async(const Backend *b, double *sums, const float *x, size_t n) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "square_sums", kernel_square_sums(sums, x, n, c->stream));
}

static void square_sums(const Backend *b, double *sums, const float *x, size_t n) {
  Cuda *c = cuda_of(b);
  size_t units = norm_units(n);
  double *there = cuda_scratch(c, &c->sums, units * sizeof *there);
  if (there) square_sums_async(b, there, x, n);
  Err err = there ? b->get(b, sums, there, units * sizeof *there) : ERR_WORK;
  for (size_t i = 0; i < units && err; i++) sums[i] = (double)NAN;
}

static void clip(const Backend *b, StepNumbers *now, const double *sums, size_t units,
                 double loss[3]) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "clip", kernel_clip(now, sums, units, loss, c->stream));
}

static void add(const Backend *b, float *x, const float *y, float scale, size_t n) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "add", kernel_add(x, y, scale, n, c->stream));
}

static void adam(const Backend *b, float *w, float *m, float *v, const float *g, size_t n,
                 const AdamStep *s) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "adam", kernel_adam(c->type, w, m, v, g, n, s, c->stream));
}

static void momentum(const Backend *b, float *w, float *m, const float *g, size_t n,
                     const MomentumStep *s) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "momentum", kernel_momentum(c->type, w, m, g, n, s, c->stream));
}

static void ema(const Backend *b, float *e, const float *w, double keep, size_t n,
                const StepNumbers *now) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "ema", kernel_ema(e, w, n, (float)keep, now, c->stream));
}

static void close_gpu(Backend *b) {
  Cuda *c = b->state;
  if (!c) return;
  if (c->stream) cudaStreamSynchronize(c->stream);
  matmul_close(&c->matmul);
  cuda_close_memory(c);
  mem_free(c);
  *b = (Backend){0};
}

static Err open_stream(const Backend *b, Backend *out) {
  const Cuda *first = cuda_of(b);
  Cuda *c;
  TRY(mem_alloc(&c, 1, sizeof *c));
  *out = *b;
  out->state = c;
  out->packed = NULL;
  c->type = first->type;
  memcpy(c->gpu, first->gpu, sizeof c->gpu);
  Err err = cuda_open_memory(c);
  if (!err) err = matmul_join(&c->matmul, &first->matmul, c->stream, c->work.at);
  if (err) {
    ErrRecord kept = err_take(err);
    close_gpu(out);
    return err_give(&kept);
  }
  return ERR_OK;
}

/* Selects the GPU for the calling thread; CUDA would use GPU 0. */
static Err bind_thread(const Backend *b) {
  cudaError_t e = cudaSetDevice(b->device);
  if (!e) return ERR_OK;
  return err_set(ERR_WORK, "GPU %d cannot be used: %s", b->device, cudaGetErrorString(e));
}

static void fill_table(Backend *b) {
  cuda_fill_memory(b);
  cuda_fill_graphs(b);
  cuda_fill_output(b);
  b->reserve = reserve;
  b->linear = linear;
  b->linear_relu = linear_relu;
  b->linear_dx = linear_dx;
  b->linear_dw = linear_dw;
  b->embed = embed;
  b->embed_backward = embed_backward;
  b->gather_rows = gather_rows;
  b->scatter_rows = scatter_rows;
  b->add_norm = add_norm;
  b->add_norm_backward = add_norm_backward;
  b->attend = attend;
  b->attend_backward = attend_backward;
  b->attend_cached = attend_cached;
  b->extend = extend;
  b->top_k = top_k;
  b->max_top_k = KERNEL_MAX_TOP_K;
  b->activate = activate;
  b->activate_backward = activate_backward;
  b->fuses_linear_relu_dropout = fuses_linear_relu_dropout;
  b->linear_relu_dropout = linear_relu_dropout;
  b->fuses_relu = fuses_relu;
  b->linear_relu_backward = linear_relu_backward;
  b->loss = loss;
  b->head_loss = head_loss;
  b->square_sums = square_sums;
  b->square_sums_async = square_sums_async;
  b->clip = clip;
  b->add = add;
  b->adam = adam;
  b->momentum = momentum;
  b->ema = ema;
  b->comm = &nccl_comm;
  b->open_stream = open_stream;
  b->bind_thread = bind_thread;
}

/* Selects the GPU. Checks the driver, the compute capability, the requested precision, and that
 * the plug-in has code for this GPU. */
static Err select_gpu(const CudaSpec *spec, int *device, struct cudaDeviceProp *gpu) {
  int count = 0;
  cudaError_t e = cudaGetDeviceCount(&count);
  if (e == cudaErrorInsufficientDriver)
    return err_set(
        ERR_WORK, "the NVIDIA driver is missing or too old for CUDA %d.%d; install a newer one",
        CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  if (e == cudaErrorNoDevice || (!e && count == 0))
    return err_set(ERR_WORK,
                   "CUDA finds no NVIDIA GPU; check nvidia-smi and "
                   "CUDA_VISIBLE_DEVICES");
  *device = !e && spec->any ? spec->device % count : spec->device;
  if (!e && *device >= count)
    return err_set(ERR_WORK, "there is no GPU %d; use one of 0 to %d", *device, count - 1);
  if (!e) e = cudaSetDevice(*device);
  if (!e) e = cudaGetDeviceProperties(gpu, *device);
  if (e) return err_set(ERR_WORK, "GPU %d cannot be used: %s", *device, cudaGetErrorString(e));
  if (gpu->major * 10 + gpu->minor < 72)
    return err_set(
        ERR_WORK,
        "%s has compute capability %d.%d, but 7.2 or later is needed; use another GPU "
        "(CUDA_VISIBLE_DEVICES), or --device cpu",
        gpu->name, gpu->major, gpu->minor);
  if (gpu->major < 8 && (spec->type == TYPE_BF16 || spec->tf32))
    return err_set(
        ERR_USAGE,
        "%s (compute capability %d.%d) cannot compute in %s, which needs 8.0 or later; pass "
        "--precision fp32 or fp16",
        gpu->name, gpu->major, gpu->minor, spec->tf32 ? "tf32" : "bf16");
  if (kernel_present()) {
    (void)cudaGetLastError();
    return err_set(ERR_WORK,
                   "the plug-in has no code for %s; build it with make CUDA_ARCH=%d%d",
                   gpu->name, gpu->major, gpu->minor);
  }
  return ERR_OK;
}

Err trireme_backend_cuda(Backend *b, const CudaSpec *spec) {
  if (spec->table != sizeof *b)
    return err_set(ERR_WORK,
                   "the CUDA plug-in and the program are not from the same build; install both "
                   "from one");
  static const char *const names[] = {"fp32", "bf16", "fp16"};
  struct cudaDeviceProp gpu;
  int device = 0;
  Cuda *c;
  TRY(select_gpu(spec, &device, &gpu));
  TRY(mem_alloc(&c, 1, sizeof *c));
  *b = (Backend){.name = "cuda",
                 .type = spec->type,
                 .fp8 = spec->fp8,
                 .threads = 1,
                 .device = device,
                 .device_id = rng_hash(&gpu.uuid, sizeof gpu.uuid, 1) | 1,
                 .state = c,
                 .close = close_gpu};
  c->type = spec->type;
  snprintf(c->gpu, sizeof c->gpu, "%s", gpu.name);
  fill_table(b);
  Err err = cuda_open_memory(c);
  if (!err)
    err = matmul_open(&c->matmul, c->stream, spec->type, spec->tf32, c->work.at, c->gpu);
  if (!err && spec->fp8)
    err = matmul_choose_scales(&c->matmul, c->gpu, gpu.major * 10 + gpu.minor);
  bool per_row = c->matmul.scales == FP8_ROW_SCALES;
  snprintf(b->about, sizeof b->about, "cuda:%d: %.64s, %.0f GB, %s, cuBLASLt %zu", device,
           gpu.name, (double)gpu.totalGlobalMem / 1e9,
           spec->tf32  ? "tf32"
           : spec->fp8 ? (per_row ? "fp8" : "fp8 with one scale per tensor")
                       : names[spec->type],
           cublasLtGetVersion());
  if (err) {
    ErrRecord kept = err_take(err);
    close_gpu(b);
    return err_give(&kept);
  }
  return ERR_OK;
}
