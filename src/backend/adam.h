/* Divides a call of Backend.adam into parts that are in one range. Depends on backend. */
#ifndef BACKEND_ADAM_H
#define BACKEND_ADAM_H

#include "backend/backend.h"

/* Returns the range that contains element `at` of the flat array; the ranges are in order and contain
 * it. */
static inline const AdamRange *adam_find_range(const AdamRange *range, size_t ranges,
                                               size_t at) {
  size_t low = 0, high = ranges - 1; /* binary search: the range is in low … high */
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (at < range[middle].end)
      high = middle;
    else
      low = middle + 1;
  }
  return &range[low];
}

/* Sets *part to the settings of element `at` of the call, and returns how many of the next n elements
 * have them. *is_frozen: they are not updated. */
static inline size_t adam_cut(const AdamStep *s, size_t at, size_t n, AdamStep *part,
                              bool *is_frozen) {
  *part = *s;
  *is_frozen = false;
  if (!s->range) return n;
  const AdamRange *r = adam_find_range(s->range, s->ranges, s->begin + at);
  size_t rest = r->end - s->begin - at;
  part->decay = r->decays ? s->decay : 0;
  part->lr_factor = r->lr_factor;
  *is_frozen = r->is_frozen;
  return rest < n ? rest : n;
}

#endif
