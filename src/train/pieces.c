/* Lists the pieces of every bucket, and cuts the weights that are read in fp32 as the pieces
 * are cut. Depends on comm/reduce, params. */
#include "train/pieces.h"

#include "base/mem.h"

typedef struct {
  size_t begin, end;
} Span;

/* Sets *span to the next run of adjacent weights that are read in fp32, from weight *at on. The
 * gaps between weights, which only align them, belong to the run. Returns false after the
 * last. */
static bool next_full_span(const Params *p, size_t *at, Span *span) {
  while (*at < p->count && !p->param[*at].is_full) ++*at;
  if (*at == p->count) return false;
  *span = (Span){p->param[*at].offset, p->param[*at].offset};
  while (*at < p->count && p->param[*at].is_full) {
    const Param *q = &p->param[(*at)++];
    span->end = q->offset + q->rows * q->cols;
  }
  return true;
}

static size_t clamp_offset(size_t x, size_t least, size_t most) {
  return x < least ? least : x > most ? most : x;
}

/* Appends the part of the span that is in bucket i, if there is one. out: NULL: only counts
 * it. */
static void add_part(Pieces *p, size_t i, const Span *span, size_t ranks, size_t *out) {
  const size_t *off = p->all + i * (ranks + 1);
  if (span->end <= off[0] || span->begin >= off[ranks]) return;
  for (size_t r = 0; out && r <= ranks; r++)
    out[p->full_count * (ranks + 1) + r] = clamp_offset(off[r], span->begin, span->end);
  p->full_count++;
}

/* Cuts all spans at the ends of buckets and pieces. */
static void cut_full(Pieces *p, const Params *params, size_t ranks, size_t *out) {
  Span span = {0};
  size_t at = 0;
  p->full_count = 0;
  while (next_full_span(params, &at, &span))
    for (size_t i = 0; i < p->count; i++) add_part(p, i, &span, ranks, out);
}

Err pieces_open(Pieces *p, const Reducer *reducer, int rank, int ranks, const Params *params) {
  size_t stride = (size_t)ranks + 1;
  *p = (Pieces){.count = reducer_pieces(reducer)};
  TRY(mem_alloc(&p->own, p->count, sizeof *p->own));
  TRY(mem_alloc(&p->all, p->count, stride * sizeof *p->all));
  for (size_t i = 0; i < p->count; i++) {
    size_t *off = p->all + i * stride;
    reducer_bucket(reducer, i, off);
    p->own[i] = (PassPiece){off[rank], off[rank + 1]};
  }
  cut_full(p, params, (size_t)ranks, NULL);
  TRY(mem_alloc(&p->full, p->full_count + 1, stride * sizeof *p->full));
  cut_full(p, params, (size_t)ranks, p->full);
  return ERR_OK;
}

void pieces_close(Pieces *p) {
  mem_free(p->own);
  mem_free(p->all);
  mem_free(p->full);
  *p = (Pieces){0};
}

GatheredWeights pieces_gathered(const Params *params, Type type, bool is_nccl) {
  bool is_low = is_nccl && type != TYPE_F32;
  return (GatheredWeights){.width = type_size(is_low ? type : TYPE_F32),
                           .full_elements = is_low ? params_count_full(params) : 0};
}

DeviceGather pieces_gather_all(const Pieces *p, size_t width) {
  return (DeviceGather){.width = width, .ranges = p->count, .off = p->all};
}

DeviceGather pieces_gather_full(const Pieces *p) {
  return (DeviceGather){.width = sizeof(float), .ranges = p->full_count, .off = p->full};
}
