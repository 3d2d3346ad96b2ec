/* Backend.linear_loss and its gradients: the kernels of loss_matmul.cu and two GEMMs of
 * cuBLASLt. Depends on memory.h, kernels.h. */
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

/* Returns true if the arrays are aligned as the kernels need; otherwise separate operations are
 * called. */
static bool is_aligned(const LinearLoss *j) {
  uintptr_t at = (uintptr_t)j->x | (uintptr_t)j->w | (uintptr_t)j->logits |
                 (uintptr_t)j->scaled | (uintptr_t)j->dx;
  return at % 16 == 0;
}

static void linear_loss(const Backend *b, const LinearLoss *j) {
  Cuda *c = cuda_of(b);
  if (!is_aligned(j)) {
    b->linear(b, j->logits, j->x, j->w, NULL, j->rows, j->in, j->vocab);
    b->loss(b, j->logits, j->loss, j->target, j->rows, j->vocab, j->smoothing, j->scale);
    return;
  }
  void *work = cuda_scratch(c, &c->work, kernel_linear_loss_work(j));
  float *kept = cuda_scratch(c, &c->loss, kernel_linear_loss_kept(j));
  if (work && kept) cuda_note(c, "linear_loss", kernel_linear_loss(j, kept, work, c->stream));
}

static void linear_loss_dx(const Backend *b, const LinearLoss *j) {
  Cuda *c = cuda_of(b);
  b->linear_dx(b, j->dx, j->logits, j->w, j->rows, j->in, j->vocab, /*accumulate=*/false);
  if (is_aligned(j) && c->loss.at)
    cuda_note(c, "linear_loss_dx", kernel_linear_loss_dx(j, c->loss.at, c->stream));
}

static void linear_loss_dw(const Backend *b, const LinearLoss *j) {
  bool fused = is_aligned(j);
  size_t rows = j->rows + (fused && j->smoothing != 0 ? LOSS_EXTRA_ROWS : 0);
  b->linear_dw(b, j->dw, NULL, j->logits, fused ? j->scaled : j->x, rows, j->in, j->vocab,
               j->accumulate);
}

void cuda_fill_output(Backend *b) {
  b->fuses_loss = fuses_loss;
  b->linear_loss = linear_loss;
  b->linear_loss_dx = linear_loss_dx;
  b->linear_loss_dw = linear_loss_dw;
}
