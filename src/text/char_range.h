/* A class of characters as a sorted table of ranges. Depends on nothing. */
#ifndef TEXT_CHAR_RANGE_H
#define TEXT_CHAR_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint32_t first, last;
} CharRange;

/* Returns true if the code point is in one of the `count` ranges. */
static inline bool char_range_has(const CharRange *range, size_t count, uint32_t code) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (code > range[middle].last)
      low = middle + 1;
    else if (code < range[middle].first)
      high = middle;
    else
      return true;
  }
  return false;
}

#endif
