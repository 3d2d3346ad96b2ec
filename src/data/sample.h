/* A random sample of fixed size of a stream of line pairs: the pairs with the smallest hash of
 * (seed, line number). The sample therefore depends only on the seed and the input. Depends on
 * base, ranks. */
#ifndef DATA_SAMPLE_H
#define DATA_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/ranks.h"

typedef struct {
  uint64_t hash, line;
  uint32_t len[2];
  char *text; /* source text, directly followed by the target text */
} SampleEntry;

typedef struct {
  uint64_t seed;
  size_t most, size, cap;
  SampleEntry *entry; /* a heap with the largest hash on top, until sample_sort */
  size_t next;        /* position of sample_line: 2 * entry + side */
} Sample;

void sample_begin(Sample *s, uint64_t seed, size_t most);
NODISCARD Err sample_add(Sample *s, uint64_t line, const char *const text[2],
                         const size_t len[2]);
/* Sorts the sample by line number. After that sample_line returns its lines, alternating source
 * and target, until it returns false. */
void sample_sort(Sample *s);
bool sample_line(void *sample, const char **line, size_t *len);
/* Gathers the sample of all pairs on rank 0, after each rank has sampled its part; the samples of
 * the other ranks become empty. Does nothing with one process. */
NODISCARD Err sample_gather(Sample *s, Ranks *r);
void sample_free(Sample *s);

#endif
