/* Buckets of the flat gradient. Depends on base. */
#include "comm/cut.h"

#include "base/mem.h"

Err cut_open(BucketCut *c, size_t n, size_t unit, size_t bucket) {
  size_t size = bucket / unit * unit;
  *c = (BucketCut){.n = n, .size = size < unit ? unit : size};
  c->buckets = (n + c->size - 1) / c->size;
  TRY(mem_alloc(&c->missing, c->buckets, sizeof *c->missing));
  cut_reset(c);
  return ERR_OK;
}

void cut_close(BucketCut *c) {
  mem_free(c->missing);
  *c = (BucketCut){0};
}

size_t cut_begin(const BucketCut *c, size_t bucket) {
  return bucket * c->size;
}

size_t cut_end(const BucketCut *c, size_t bucket) {
  return bucket + 1 < c->buckets ? (bucket + 1) * c->size : c->n;
}

void cut_reset(BucketCut *c) {
  for (size_t i = 0; i < c->buckets; i++) c->missing[i] = cut_end(c, i) - cut_begin(c, i);
}

void cut_mark(BucketCut *c, size_t begin, size_t end,
              void (*complete)(void *context, size_t bucket), void *context) {
  for (size_t i = begin / c->size; i < c->buckets && cut_begin(c, i) < end; i++) {
    size_t from = begin > cut_begin(c, i) ? begin : cut_begin(c, i);
    size_t to = end < cut_end(c, i) ? end : cut_end(c, i);
    if (c->missing[i] == 0) continue;
    c->missing[i] -= to - from < c->missing[i] ? to - from : c->missing[i];
    if (c->missing[i] == 0 && complete) complete(context, i);
  }
}
