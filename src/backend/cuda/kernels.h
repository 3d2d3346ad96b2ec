/* The CUDA kernels of the table of operations, all but cuBLASLt's matrix products, as
 * launchers that C can call. Depends on the CUDA runtime, backend.h, type.h.
 *
 * Every pointer is to device memory, 16 bytes aligned for speed (any alignment of
 * whole elements is right). `void *` arrays are of the launch's Type; float and
 * double arrays are what they say. Arithmetic is in fp32. A launcher only queues
 * work on its stream and returns what the launch said; nothing waits, nothing is
 * allocated, so all of it can be captured. Results do not depend on timing: no
 * floating-point sum is made with atomics, and the same shapes give the same bits.
 *
 * Where a launcher takes `work`, it is scratch memory of at least as many bytes as
 * the function of the same name with _work says, aligned to 256 bytes; it is free
 * again when the launch is done, so launches on one stream may share it. */
#ifndef BACKEND_CUDA_KERNELS_H
#define BACKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An error if the plug-in was built without code for the GPU in use. */
cudaError_t kernel_present(void);

/* x (rows, d) = drop(table[id] * scale + place[position]). */
cudaError_t kernel_embed(Type, void *x, const void *table, const float *place,
                         const int32_t *id, const int32_t *position, size_t rows, size_t d,
                         float scale, Dropout, cudaStream_t);

/* The rows in the order of their ids, equal ids in the order of the rows. It needs
 * the ids alone, so it can run long before the gradient is there. sorted (2, rows):
 * ids, then rows. ids are below `limit`. */
size_t kernel_sort_ids_work(size_t rows);
cudaError_t kernel_sort_ids(int32_t *sorted, const int32_t *id, size_t rows, size_t limit,
                            void *work, cudaStream_t);
/* table[id] += drop(dx) * scale for the rows as kernel_sort_ids left them. For the
 * gradient of learned positions: positions for ids, and scale 1. */
size_t kernel_embed_back_work(size_t rows, size_t d);
cudaError_t kernel_embed_back(Type, float *dtable, const void *dx, const int32_t *sorted,
                              size_t rows, size_t d, float scale, Dropout, void *work,
                              cudaStream_t);

/* As in backend.h; the statistics are those of the sum as it is stored. sum may be
 * x; branch NULL: sum = x and is not written. */
cudaError_t kernel_add_norm(Type, void *sum, void *y, float *stat, const void *x,
                            const void *branch, const float *gain, const float *bias,
                            const AddNorm *, cudaStream_t);
/* dx may be `through`, and dbranch may be dy. dgain and dbias are added when `add`. */
size_t kernel_add_norm_back_work(size_t rows, size_t d);
cudaError_t kernel_add_norm_back(Type, void *dx, void *dbranch, float *dgain, float *dbias,
                                 float *dshift, const void *dy, const void *through,
                                 const void *sum, const float *stat, const float *gain,
                                 const AddNorm *, bool add, void *work, cudaStream_t);

#define KERNEL_WIDEST_HEAD 256 /* columns */

/* As in backend.h; the offsets and k_len lie in device memory. Sentences without
 * rows are skipped, so a captured launch may be made for the most sentences there
 * can be, the offsets beyond the last one equal to it; those with rows on one side
 * alone are as in backend.h. The last sentences are the first to be begun: best that
 * those are long. At most 4096 keys a sentence, and heads up to KERNEL_WIDEST_HEAD:
 * wider ones are cudaErrorInvalidValue. Fast: bf16 and fp16 from compute capability
 * 8.0, heads of 32, 64 or 128, steps that are multiples of 8. */
cudaError_t kernel_attend(Type, void *o, float *lse, const void *q, const void *k,
                          const void *v, const Attention *, cudaStream_t);
/* For tests and times: the way that both take from now on, where the shape allows it;
 * 0, as at first, is the one for use. Returns its name, or NULL beyond the last way. */
const char *kernel_attend_way(int way);
/* q_rows: rows the queries' arrays have; work is (q_rows, heads) floats. */
size_t kernel_attend_back_work(size_t q_rows, size_t heads);
cudaError_t kernel_attend_back(Type, void *dq, void *dk, void *dv, const void *do_,
                               const void *o, const float *lse, const void *q, const void *k,
                               const void *v, const Attention *, void *work, cudaStream_t);

/* As in backend.h: y may be x, mask may be NULL. */
cudaError_t kernel_activate(Type, void *y, uint8_t *mask, const void *x, const void *bias,
                            size_t rows, size_t width, Activation, Dropout, cudaStream_t);
/* kept: ReLU's mask, or x. dx may be dy. work is that of the column sums, and may be
 * NULL with dbias. */
cudaError_t kernel_activate_back(Type, void *dx, float *dbias, const void *dy, const void *kept,
                                 size_t rows, size_t width, Activation, Dropout, bool add,
                                 void *work, cudaStream_t);

/* linear_relu_backward of backend.h, where kernel_takes_relu_back: in bf16 and fp16 on Hopper, `in`
 * a multiple of 256 and `out` of 64, at least 512; all arrays 16 bytes aligned. dbias is made
 * of dx as it is stored. */
bool kernel_takes_relu_back(Type, size_t rows, size_t in, size_t out);
size_t kernel_relu_back_work(size_t rows, size_t in);
cudaError_t kernel_linear_relu_back(Type, void *dx, float *dbias, const void *dy, const void *w,
                                    const uint8_t *mask, size_t rows, size_t in, size_t out,
                                    Dropout, bool add, void *work, cudaStream_t);

/* dbias (n) = column sums of dy (rows, n), added when `add`. */
size_t kernel_column_sums_work(size_t rows, size_t n);
cudaError_t kernel_column_sums(Type, float *dbias, const void *dy, size_t rows, size_t n,
                               bool add, void *work, cudaStream_t);

/* As in backend.h; loss is in device memory. */
size_t kernel_loss_work(size_t rows);
cudaError_t kernel_loss(Type, void *logits, double loss[3], const int32_t *target, size_t rows,
                        size_t vocab, float smoothing, float scale, void *work, cudaStream_t);

/* sums (n / NORM_UNIT, rounded up): the sum of squares of each NORM_UNIT elements. */
cudaError_t kernel_norm2(double *sums, const float *x, size_t n, cudaStream_t);
/* As in backend.h; now, sums and loss lie in device memory. */
cudaError_t kernel_clip(StepNumbers *now, const double *sums, size_t n, double loss[3],
                        cudaStream_t);

/* An update of n parameters, and of the copy step->low where it is not NULL; the numbers
 * of the step lie in device memory. */
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

cudaError_t kernel_cast_to(Type, void *low, const float *x, size_t n, cudaStream_t);
cudaError_t kernel_cast_from(Type, float *x, const void *low, size_t n, cudaStream_t);

/* The operands of a product in fp8 (e4m3), in rows along what is summed over; a row's
 * elements are times its scale. Laid out in `work`. */
typedef struct {
  uint8_t *x, *w;
  float *x_scale, *w_scale;
} Fp8;
/* From bf16, 16 bytes aligned; columns are multiples of FP8_MULTIPLE, and at most FP8_MAX_DIM.
 * y = x · wᵀ: the rows of x (rows, in) and of w (out, in). back, dx = dy · w: the rows of dy
 * (rows, out), for x, and the columns of w. */
size_t kernel_fp8_work(size_t rows, size_t in, size_t out);
cudaError_t kernel_fp8(Fp8 *to, const void *x, const void *w, size_t rows, size_t in,
                       size_t out, bool back, void *work, cudaStream_t);

/* As in backend.h; heads of at most 256 elements. Lists, lengths and parents lie in
 * device memory. k is at most KERNEL_TOP_MOST and at most vocab. */
cudaError_t kernel_copy_rows(Type, void *to, size_t to_ld, const void *from, size_t from_ld,
                             size_t rows, size_t width, cudaStream_t);
cudaError_t kernel_extend(int32_t *to, const int32_t *from, const int32_t *parent, size_t rows,
                          size_t ld, size_t n, int32_t first, cudaStream_t);
cudaError_t kernel_attend_cached(Type, void *o, const void *q, const void *k, const void *v,
                                 const CachedAttention *, cudaStream_t);
#define KERNEL_TOP_MOST 1024
cudaError_t kernel_top(Type, float *value, int32_t *id, float *lse, const void *logits,
                       size_t rows, size_t vocab, size_t k, cudaStream_t);

#ifdef __cplusplus
}
#endif

#endif
