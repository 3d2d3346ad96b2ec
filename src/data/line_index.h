/* An index of the lines of a plain text file: the number of line breaks before each chunk of the
 * file. Ranks that share a text each count the line breaks of a part of it, and then read only
 * their own lines. Depends on base, ranks. */
#ifndef DATA_LINE_INDEX_H
#define DATA_LINE_INDEX_H

#include "data/ranks.h"

typedef struct {
  /* (chunks + 1) line breaks before chunk i; last element: in the whole file */
  uint64_t *before;
  size_t chunks; /* 0: no index, because the file is compressed */
  size_t chunk_bytes;
} LineIndex;

/* Builds the index of a file. Collective: every rank must call it. */
NODISCARD Err line_index_make(LineIndex *x, const char *path, Ranks *r);
void line_index_free(LineIndex *x);
/* Returns a file offset at or before the start of line `line`, counted from 0; *before receives
 * the number of line breaks before that offset. For a line that does not exist the offset is near
 * the end. */
uint64_t line_index_find(const LineIndex *x, uint64_t line, uint64_t *before);

#endif
