/* Computes the sizes of a bucket and the list of contributions that a rank adds. Depends on
 * add. */
#include "comm/bucket.h"

size_t bucket_width(bool bf16) {
  return bf16 ? sizeof(uint16_t) : sizeof(float);
}

bool bucket_is_shared(const CommReduce *r) {
  return r->last && !r->shard;
}

size_t bucket_longest_piece(const CommReduce *r, int ranks) {
  size_t longest = 0;
  for (int i = 0; i < ranks; i++)
    if (r->off[i + 1] - r->off[i] > longest) longest = r->off[i + 1] - r->off[i];
  return longest;
}

int bucket_terms(const CommReduce *r, int rank, const float *own, const char *in, size_t stride,
                 Term *term) {
  for (int i = 0; i < r->active; i++) {
    term[i].x = i == rank ? (const void *)own : in + (size_t)i * stride;
    term[i].kind = !r->bf16 ? TERM_FP32 : i == rank ? TERM_ROUNDED : TERM_BF16;
  }
  return r->active;
}
