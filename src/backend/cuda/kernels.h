/* Launchers, callable from C, of all CUDA kernels: every operation of the backend except GEMMs,
 * which cuBLASLt computes (matmul.h).
 *
 * Pointers are to device memory. Any alignment of whole elements is correct; 16 bytes is fast.
 * `void *` arrays have the element type `Type`. Arithmetic is in fp32. A launcher only enqueues
 * on its stream and returns the result of the launch: it does not block or allocate, so it can be
 * captured in a CUDA graph. Results are deterministic: no floating-point atomics, and the same
 * shapes give the same bits.
 *
 * `work` is scratch memory, 256-byte aligned, of at least as many bytes as the function of the
 * same name with _work returns. It is free when the launch is done, so launches on one stream may
 * share it. Depends on the CUDA runtime, backend.h, type.h. */
#ifndef BACKEND_CUDA_KERNELS_H
#define BACKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows (rows, n) in fp8 (e4m3): value = element * scale of its row. */
typedef struct {
  uint8_t *x;
  float *scale;
} Fp8Rows;

/* Returns an error if the plug-in was built without code for the current GPU. */
cudaError_t kernel_present(void);

/* Backend.embed; see backend.h. */
cudaError_t kernel_embed(Type, void *x, const void *table, const float *place,
                         const int32_t *id, const int32_t *position, size_t rows, size_t d,
                         float scale, Dropout, cudaStream_t);

/* Sorts the tokens by id; tokens of equal id keep their order. sorted (2, rows): ids, then token
 * indices. Ids are below `limit`. */
size_t kernel_sort_ids_work(size_t rows);
cudaError_t kernel_sort_ids(int32_t *sorted, const int32_t *id, size_t rows, size_t limit,
                            void *work, cudaStream_t);
/* dtable[id] += dropout(dx) * scale, for tokens as kernel_sort_ids sorted them. For learned
 * positions, pass positions as ids and scale 1. */
size_t kernel_embed_backward_work(size_t rows, size_t d);
cudaError_t kernel_embed_backward(Type, float *dtable, const void *dx, const int32_t *sorted,
                                  size_t rows, size_t d, float scale, Dropout, void *work,
                                  cudaStream_t);

/* Backend.add_norm; see backend.h. The statistics are those of `sum` as stored, after rounding.
 * sum may be x. */
cudaError_t kernel_add_norm(Type, void *sum, void *y, float *stat, const void *x,
                            const void *branch, const float *gain, const float *bias,
                            const AddNorm *, cudaStream_t);
/* kernel_add_norm in bf16 that also converts y to fp8, with the bits of kernel_fp8. Returns
 * cudaErrorInvalidValue unless kernel_converts_norm returns true, all arrays are 16-byte
 * aligned and AddNorm.ahead is NULL. */
bool kernel_converts_norm(size_t d);
cudaError_t kernel_add_norm_fp8(Fp8Rows to, void *sum, void *y, float *stat, const void *x,
                                const void *branch, const float *gain, const float *bias,
                                const AddNorm *, cudaStream_t);
/* Backend.add_norm_backward; see backend.h. dx may be `through`, and dbranch may be dy. */
size_t kernel_add_norm_backward_work(size_t rows, size_t d);
cudaError_t kernel_add_norm_backward(Type, void *dx, void *dbranch, float *dgain, float *dbias,
                                     float *dshift, const void *dy, const void *through,
                                     const void *sum, const float *stat, const float *gain,
                                     const AddNorm *, bool add, void *work, cudaStream_t);

#define KERNEL_MAX_HEAD 256 /* maximum number of elements of a head */

/* Backend.attend; see backend.h. Offsets and k_len are in device memory. Sentences without
 * tokens are skipped, so a captured launch may have the maximum number of sentences, with
 * offsets beyond the last sentence equal to its end. The last sentences start first: put the
 * longest there. At most 4096 keys per sentence; heads of more than KERNEL_MAX_HEAD elements
 * return cudaErrorInvalidValue. Tensor cores are used for bf16 from compute capability 8.0 on
 * and for fp16 from 7.5 on, with heads of 32, 64 or 128 and leading dimensions that are
 * multiples of 8. */
cudaError_t kernel_attend(Type, void *o, float *lse, const void *q, const void *k,
                          const void *v, const Attention *, cudaStream_t);
/* For tests and benchmarks: selects the implementation of forward and backward, if the shape
 * allows it. 0 is the default, which selects the fastest. Returns its name, or NULL if there is
 * no such number or this GPU lacks that variant; the default is then selected. Not
 * thread-safe. */
const char *kernel_select_attention(int variant);
/* For tests: returns the implementation of this thread's last launch, forward or backward:
 * "in groups", "direct" or "tight", as kernel_select_attention names them; NULL: the kernels
 * without tensor cores. */
const char *kernel_last_attention(void);
/* For tests: kernels use as many blocks as on a GPU with so many SMs; 0: with those of this
 * GPU. Not thread-safe. */
void kernel_assume_sms(int sms);
/* Backend.attend_backward. q_rows: tokens in q; work is (q_rows, heads) floats. */
size_t kernel_attend_backward_work(size_t q_rows, size_t heads);
cudaError_t kernel_attend_backward(Type, void *dq, void *dk, void *dv, const void *do_,
                                   const void *o, const float *lse, const void *q,
                                   const void *k, const void *v, const Attention *, void *work,
                                   cudaStream_t);

/* Backend.activate; see backend.h. y may be x, mask may be NULL. */
cudaError_t kernel_activate(Type, void *y, uint8_t *mask, const void *x, const void *bias,
                            size_t rows, size_t width, Activation, Dropout, cudaStream_t);
/* kernel_activate of ReLU in bf16 that also converts y to fp8, with the bits of kernel_fp8.
 * width is a multiple of 8 and at most FP8_MAX_DIM, all arrays except `mask` are 16-byte
 * aligned; otherwise returns cudaErrorInvalidValue. */
cudaError_t kernel_relu_fp8(Fp8Rows to, void *y, uint8_t *mask, const void *x, const void *bias,
                            size_t rows, size_t width, Dropout, cudaStream_t);
/* Backend.activate_backward; see backend.h. dx may be dy. work: as for kernel_column_sums; NULL
 * if dbias is NULL. */
cudaError_t kernel_activate_backward(Type, void *dx, float *dbias, const void *dy,
                                     const void *kept, size_t rows, size_t width, Activation,
                                     Dropout, bool add, void *work, cudaStream_t);

/* kernel_activate_backward of ReLU in bf16 with dbias that also converts dx to fp8, with the
 * bits of kernel_fp8; dbias may be summed in another order. Returns cudaErrorInvalidValue
 * unless kernel_converts_relu_backward returns true and dx and dy are 16-byte aligned. */
bool kernel_converts_relu_backward(size_t width);
size_t kernel_relu_backward_fp8_work(size_t width);
cudaError_t kernel_relu_backward_fp8(Fp8Rows to, void *dx, float *dbias, const void *dy,
                                     const uint8_t *mask, size_t rows, size_t width, Dropout,
                                     bool add, void *work, cudaStream_t);

/* Backend.linear_relu_dropout, only if kernel_fuses_relu(type, rows, out, in) returns true and
 * all arrays are 16-byte aligned; mask holds the bits of dropout. An element of the sum is
 * rounded before the bias is added, and again before it is scaled. */
cudaError_t kernel_linear_relu_dropout(Type, void *y, uint8_t *mask, const void *x,
                                       const void *w, const void *bias, size_t rows, size_t in,
                                       size_t out, Dropout, cudaStream_t);
/* bits (n / 8): bit i of a byte is set if dropout keeps element i of its eight. n is a multiple
 * of 32, and bits is aligned to 4 bytes. */
cudaError_t kernel_draw_bits(uint8_t *bits, size_t n, Dropout, cudaStream_t);

/* Backend.linear_relu_backward, only if kernel_fuses_relu returns true: bf16 and fp16 on Hopper,
 * `in` a multiple of 256, `out` a multiple of 64 and at least 512, all arrays 16-byte aligned.
 * dbias sums dx as stored, after rounding. tile_counter: a number in device memory, 0 before and
 * after the kernel; kernels that run at the same time need one each. */
bool kernel_fuses_relu(Type, size_t rows, size_t in, size_t out);
size_t kernel_linear_relu_backward_work(size_t rows, size_t in);
cudaError_t kernel_linear_relu_backward(Type, void *dx, float *dbias, const void *dy,
                                        const void *w, const uint8_t *mask, size_t rows,
                                        size_t in, size_t out, Dropout, bool add, void *work,
                                        unsigned *tile_counter, cudaStream_t);

/* dbias (n) = column sums of dy (rows, n), + dbias if `add`. */
size_t kernel_column_sums_work(size_t rows, size_t n);
cudaError_t kernel_column_sums(Type, float *dbias, const void *dy, size_t rows, size_t n,
                               bool add, void *work, cudaStream_t);

/* Backend.loss; see backend.h. `loss` is in device memory. */
size_t kernel_loss_work(size_t rows);
cudaError_t kernel_loss(Type, void *logits, double loss[3], const int32_t *target, size_t rows,
                        size_t vocab, float smoothing, float scale, void *work, cudaStream_t);

/* Backend.linear_loss and its gradients, only if kernel_fuses_loss returns true: bf16 on Hopper, vocab
 * a multiple of 256, `in` a multiple of 64 from 512 to 8192; all arrays are 16-byte aligned.
 * kernel_linear_loss adds the losses and writes to `logits` and `scaled` the operands e and h of
 * the two GEMMs (loss_matmul.cu), and what kernel_linear_loss_dx reads to `kept`. Without label
 * smoothing the extra rows are not written. The first GEMM, dx = e · w, is completed by
 * kernel_linear_loss_dx; the second is dw = eᵀ · h, with the extra rows if there is label
 * smoothing. */
bool kernel_fuses_loss(Type, size_t rows, size_t in, size_t vocab);
size_t kernel_linear_loss_work(const LinearLoss *);
size_t kernel_linear_loss_kept(const LinearLoss *);
cudaError_t kernel_linear_loss(const LinearLoss *, float *kept, void *work, cudaStream_t);
cudaError_t kernel_linear_loss_dx(const LinearLoss *, const float *kept, cudaStream_t);

/* Backend.gather_rows and scatter_rows; see backend.h. */
cudaError_t kernel_gather_rows(Type, void *y, const void *x, const int32_t *index, size_t rows,
                               size_t d, cudaStream_t);
cudaError_t kernel_scatter_rows(Type, void *dx, const void *dy, const int32_t *index,
                                size_t rows, size_t tokens, size_t d, cudaStream_t);
/* Backend.head_loss; see backend.h. work: as for kernel_loss. */
cudaError_t kernel_head_loss(Type, void *logits, double loss[3], const float *target,
                             const HeadLoss *, void *work, cudaStream_t);

/* Computes the sum of squares of each NORM_UNIT elements: sums (norm_units(n)). */
cudaError_t kernel_square_sums(double *sums, const float *x, size_t n, cudaStream_t);
/* Backend.clip; see backend.h. now, sums and loss are in device memory. */
cudaError_t kernel_clip(StepNumbers *now, const double *sums, size_t n, double loss[3],
                        cudaStream_t);

/* Updates n parameters, and the copy step->low if not NULL; step->now is in device memory. */
cudaError_t kernel_adam(Type, float *w, float *m, float *v, const float *g, size_t n,
                        const AdamStep *step, cudaStream_t);
/* m = beta m + (scale g + decay w); w -= lr m. */
cudaError_t kernel_momentum(Type, float *w, float *m, const float *g, size_t n,
                            const MomentumStep *step, cudaStream_t);
/* e += (1 - keep) (w - e) */
cudaError_t kernel_ema(float *e, const float *w, size_t n, float keep, const StepNumbers *now,
                       cudaStream_t);
/* x += scale * y */
cudaError_t kernel_add(float *x, const float *y, float scale, size_t n, cudaStream_t);

/* Convert n elements from and to float. */
cudaError_t kernel_cast_to(Type, void *low, const float *x, size_t n, cudaStream_t);
cudaError_t kernel_cast_from(Type, float *x, const void *low, size_t n, cudaStream_t);

/* The operands of a GEMM in fp8, row-major along the summed dimension: value = element * scale of
 * its row or of the tensor. The pointers are into `work`. */
typedef struct {
  uint8_t *x, *w;
  float *x_scale, *w_scale;
} Fp8;
/* Converts the operands of a GEMM from bf16, 16-byte aligned, to e4m3 with one scale per row; in
 * and out are multiples of FP8_MULTIPLE and at most FP8_MAX_DIM. Forward (y = x · wᵀ): rows of x
 * (rows, in) and of w (out, in). `back` (dgrad, dx = dy · w): x is dy (rows, out), and w is
 * transposed. x NULL: its rows have been written to kernel_fp8_rows(work, rows, n), n columns
 * each. */
Fp8Rows kernel_fp8_rows(void *work, size_t rows, size_t n);
size_t kernel_fp8_work(size_t rows, size_t in, size_t out);
cudaError_t kernel_fp8(Fp8 *to, const void *x, const void *w, size_t rows, size_t in,
                       size_t out, bool back, void *work, cudaStream_t);
/* The same with one scale per tensor, x_scale[0] and w_scale[0], and with dy in e5m2. x must not be
 * NULL. */
cudaError_t kernel_fp8_tensor(Fp8 *to, const void *x, const void *w, size_t rows, size_t in,
                              size_t out, bool back, void *work, cudaStream_t);

/* Decoding operations of backend.h; heads of at most KERNEL_MAX_HEAD elements; lists, lengths and
 * parents are in device memory; k is at most KERNEL_MAX_TOP_K and at most vocab. */
cudaError_t kernel_extend(int32_t *at, const int32_t *list, const int32_t *parent,
                          const int32_t *len, const int32_t *slot, size_t rows, size_t ld,
                          cudaStream_t);
cudaError_t kernel_attend_cached(Type, void *o, const void *q, void *k, void *v,
                                 const CachedAttention *, cudaStream_t);
#define KERNEL_MAX_TOP_K 1024
cudaError_t kernel_top_k(Type, float *value, int32_t *id, float *lse, const void *logits,
                         size_t rows, size_t vocab, size_t k, cudaStream_t);

#ifdef __cplusplus
}
#endif

#endif
