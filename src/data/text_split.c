/* Systematic sampling: the rows are sorted by stratum and, within a stratum, in random order; every
 * (1 / share)-th row is taken. Depends on base. */
#include "data/text_split.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

typedef struct {
  uint64_t random;
  uint32_t stratum, row;
} Candidate;

static int compare_candidates(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  if (x->stratum != y->stratum) return x->stratum < y->stratum ? -1 : 1;
  if (x->random != y->random) return x->random < y->random ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

/* Removes strata with a single row; returns the number of remaining candidates. */
static size_t remove_singles(Candidate *list, size_t n) {
  size_t kept = 0;
  for (size_t i = 0; i < n; i++) {
    bool is_alone = (i == 0 || list[i - 1].stratum != list[i].stratum) &&
                    (i + 1 == n || list[i + 1].stratum != list[i].stratum);
    if (!is_alone)
      list[kept++] = list[i]; /* kept <= i: does not change what is compared next */
  }
  return kept;
}

Err text_split(const uint32_t *stratum, uint8_t *part, size_t rows, double share, uint64_t seed,
               Split to) {
  Candidate *list;
  size_t n = 0;
  uint64_t key = rng_mix(seed, (uint64_t)to);
  TRY(mem_alloc(&list, rows, sizeof *list));
  for (size_t i = 0; i < rows; i++) {
    if (part[i] != SPLIT_TRAIN) continue;
    list[n++] =
        (Candidate){.random = rng_mix(key, i), .stratum = stratum[i], .row = (uint32_t)i};
  }
  qsort(list, n, sizeof *list, compare_candidates);
  n = remove_singles(list, n);
  uint64_t taken = (uint64_t)llround((double)n * share);
  uint64_t offset = n ? rng_mix(key, UINT64_MAX) % n : 0;
  for (uint64_t i = 0; i < n; i++) {
    bool is_taken = ((i + 1) * taken + offset) / n > (i * taken + offset) / n;
    if (is_taken) part[list[i].row] = (uint8_t)to;
  }
  mem_free(list);
  return ERR_OK;
}
