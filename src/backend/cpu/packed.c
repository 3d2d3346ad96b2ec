/* A list of packed weights with linear search: a model has a few tens of matrices, and a GEMM
 * takes much longer than the search. Depends on gemm.h, base/mem. */
#include "backend/cpu/packed.h"

#include "backend/cpu/gemm.h"
#include "base/mem.h"

typedef struct {
  const void *w;
  void *copy;
} Entry;

struct Packed {
  Entry *entry;
  size_t n, cap;
};

static Entry *find_entry(const Packed *p, const void *w) {
  for (size_t i = 0; p && i < p->n; i++) {
    if (p->entry[i].w == w) return &p->entry[i];
  }
  return NULL;
}

const void *packed_find(const Packed *p, const void *w) {
  const Entry *e = find_entry(p, w);
  return e ? e->copy : NULL;
}

Err packed_add(Backend *b, const void *w, size_t in, size_t out) {
  Gemm g = {.n = out,
            .k = in,
            .b = w,
            .ldb = in,
            .tb = true,
            .bf16 = b->bf16,
            .few_rows = b->few_rows};
  if (!b->packed) TRY(mem_alloc(&b->packed, 1, sizeof *b->packed));
  Packed *p = b->packed;
  Entry *e = find_entry(p, w);
  if (!e) {
    void *copy;
    TRY(mem_grow(&p->entry, &p->cap, p->n + 1, sizeof *p->entry));
    TRY(mem_alloc_aligned(&copy, gemm_packed_bytes(&g)));
    e = &p->entry[p->n++];
    *e = (Entry){w, copy};
  }
  gemm_pack(e->copy, &g);
  return ERR_OK;
}

void packed_free(Backend *b) {
  for (size_t i = 0; b->packed && i < b->packed->n; i++) mem_free(b->packed->entry[i].copy);
  if (b->packed) mem_free(b->packed->entry);
  mem_free(b->packed);
  b->packed = NULL;
}
