/* A fixed-size random sample of a stream of pairs of lines: those with the
 * smallest hash of (seed, line number), so it depends on nothing else.
 * Depends on base, ranks. */
#ifndef DATA_SAMPLE_H
#define DATA_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/ranks.h"

typedef struct {
  uint64_t hash, line;
  uint32_t len[2];
  char *text; /* both sides, one behind the other */
} SampleEntry;

typedef struct {
  uint64_t seed;
  size_t most, size, cap;
  SampleEntry *entry; /* a heap with the largest hash on top, until sorted */
  size_t next;        /* for sample_line: entry and side */
} Sample;

void sample_begin(Sample *s, uint64_t seed, size_t most);
NODISCARD Err sample_add(Sample *s, uint64_t line, const char *const text[2],
                         const size_t len[2]);
/* Puts the sample in the order of the input; then sample_line gives its lines,
 * source and target in turn, until it returns false. */
void sample_sort(Sample *s);
bool sample_line(void *sample, const char **line, size_t *len);
/* Gives rank 0 the sample of all pairs, of which each rank has drawn from its part; the samples of
 * the others become empty. With one process it changes nothing. */
NODISCARD Err sample_gather(Sample *s, Ranks *r);
void sample_free(Sample *s);

#endif
