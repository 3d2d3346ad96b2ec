/* Backend.linear_loss: the kernels of loss_matmul.cu and two GEMMs of cuBLASLt. Depends on
 * memory.h, kernels.h. */
#include "backend/cuda/output.h"

#include "backend/cuda/kernels.h"
#include "backend/cuda/memory.h"

/* Minimum number of logits for which the fused operation is faster: nearly two tiles for each of
 * the 132 SMs of an H100 or H200. */
#define LOSS_MIN_ELEMENTS ((size_t)1 << 23)

static bool fuses_loss(const Backend *b, size_t rows, size_t in, size_t vocab) {
  return rows * vocab >= LOSS_MIN_ELEMENTS && !(b->fp8 && backend_takes_fp8(rows, in, vocab)) &&
         kernel_fuses_loss(b->type, rows, in, vocab);
}

/* The same in four operations, for arrays that are not aligned. */
static void run_separately(const Backend *b, const LinearLoss *j) {
  b->linear(b, j->logits, j->x, j->w, NULL, j->rows, j->in, j->vocab);
  b->loss(b, j->logits, j->loss, j->target, j->rows, j->vocab, j->smoothing, j->scale);
  b->linear_dx(b, j->dx, j->logits, j->w, j->rows, j->in, j->vocab, /*accumulate=*/false);
  b->linear_dw(b, j->dw, NULL, j->logits, j->x, j->rows, j->in, j->vocab, j->accumulate);
}

static void linear_loss(const Backend *b, const LinearLoss *j) {
  Cuda *c = cuda_of(b);
  uintptr_t at = (uintptr_t)j->x | (uintptr_t)j->w | (uintptr_t)j->logits |
                 (uintptr_t)j->scaled | (uintptr_t)j->dx;
  if (at % 16) {
    run_separately(b, j);
    return;
  }
  void *work = cuda_scratch(c, &c->work, kernel_linear_loss_work(j));
  float *kept = cuda_scratch(c, &c->loss, kernel_linear_loss_kept(j));
  if (!work || !kept) return;
  cuda_note(c, "linear_loss", kernel_linear_loss(j, kept, work, c->stream));
  b->linear_dx(b, j->dx, j->logits, j->w, j->rows, j->in, j->vocab, /*accumulate=*/false);
  cuda_note(c, "linear_loss", kernel_linear_loss_dx(j, kept, c->stream));
  size_t rows = j->rows + (j->smoothing != 0 ? LOSS_EXTRA_ROWS : 0);
  b->linear_dw(b, j->dw, NULL, j->logits, j->scaled, rows, j->in, j->vocab, j->accumulate);
}

void cuda_fill_output(Backend *b) {
  b->fuses_loss = fuses_loss;
  b->linear_loss = linear_loss;
}
