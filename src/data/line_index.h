/* Where lines begin in a plain text file: the number of line ends before each chunk of it. Ranks
 * that share a text count a part of it each, and then read only the lines that are theirs.
 * Depends on base, ranks. */
#ifndef DATA_LINE_INDEX_H
#define DATA_LINE_INDEX_H

#include "data/ranks.h"

typedef struct {
  uint64_t *before; /* (chunks + 1) line ends before chunk i; then, of the file */
  size_t chunks;    /* 0: there is no index, the file is compressed */
  size_t chunk_bytes;
} LineIndex;

/* Every rank: counts the line ends of the file. */
NODISCARD Err line_index_make(LineIndex *x, const char *path, Ranks *r);
void line_index_free(LineIndex *x);
/* A place in the file at which, or behind which, line `line` begins, counted from 0; *before receives
 * the number of line ends before that place. A line that does not exist gives a place near the end. */
uint64_t line_index_find(const LineIndex *x, uint64_t line, uint64_t *before);

#endif
