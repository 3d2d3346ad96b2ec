/* Copies weights to a backend. Depends on backend. */
#include "model/weights.h"

Err weights_new(Weights *out, const Backend *b, const float *w, size_t n) {
  float *full = NULL;
  void *low = NULL;
  *out = (Weights){0};
  if (b->host) {
    *out = (Weights){w, w};
    return ERR_OK;
  }
  TRY(b->alloc(b, &full, n * sizeof *full));
  out->full = full;
  out->low = full;
  b->put(b, full, w, n * sizeof *full);
  if (b->type != TYPE_F32) {
    Err err = b->alloc(b, &low, n * type_size(b->type));
    if (err) {
      weights_free(out, b);
      return err;
    }
    out->low = low;
    b->lower(b, low, full, n);
  }
  return b->sync(b);
}

void weights_free(Weights *w, const Backend *b) {
  if (w->full && !b->host) {
    if (w->low != w->full) b->release(b, (void *)(uintptr_t)w->low);
    b->release(b, (void *)(uintptr_t)w->full);
  }
  *w = (Weights){0};
}
