/* Counts the line breaks of text files. Depends on base, input, ranks. */
#include "data/line_index.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/input.h"

/* Bytes of a chunk. The index has 8 bytes per chunk, and at most one chunk is read to find a
 * line. */
#define CHUNK_BYTES ((size_t)1 << 18)

static Err read_chunk(int fd, const char *path, uint64_t offset, uint8_t *bytes, size_t room,
                      size_t *n) {
  for (*n = 0; *n < room;) {
    ssize_t got = pread(fd, bytes + *n, room - *n, (off_t)(offset + *n));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return err_errno("cannot read", path);
    if (got == 0) break;
    *n += (size_t)got;
  }
  return ERR_OK;
}

static uint64_t count_line_ends(const uint8_t *bytes, size_t n) {
  uint64_t count = 0;
  const uint8_t *end = bytes + n;
  for (const uint8_t *at = bytes; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++)
    count++;
  return count;
}

/* Counts the line breaks of the chunks from `first` up to but not including `last`. */
static Err count_chunks(LineIndex *x, const char *path, size_t first, size_t last) {
  int fd;
  uint64_t size;
  uint8_t *bytes;
  TRY(file_open(path, &fd, &size));
  Err err = mem_alloc(&bytes, x->chunk_bytes, 1);
  for (size_t i = first; i < last && !err; i++) {
    size_t n;
    err = read_chunk(fd, path, (uint64_t)i * x->chunk_bytes, bytes, x->chunk_bytes, &n);
    x->before[i + 1] = count_line_ends(bytes, n);
  }
  mem_free(bytes);
  close(fd);
  return err;
}

/* Sets the number of chunks; 0 for a compressed file, which can only be read from its start. */
static Err divide_file(LineIndex *x, const char *path) {
  Input *in;
  uint64_t bytes;
  TRY(input_open(&in, path));
  bool is_plain = input_is_plain(in);
  input_close(in);
  TRY(file_size(path, &bytes));
  if (is_plain) x->chunks = (size_t)((bytes + x->chunk_bytes - 1) / x->chunk_bytes);
  return ERR_OK;
}

Err line_index_make(LineIndex *x, const char *path, Ranks *r) {
  size_t ranks = (size_t)r->count, rank = (size_t)r->rank, *off = NULL;
  *x = (LineIndex){.chunk_bytes = (size_t)fault_number("chunk", CHUNK_BYTES)};
  TRY(ranks_agree(r, divide_file(x, path)));
  if (x->chunks == 0) return ERR_OK;
  Err err;
  TRY_DONE(mem_alloc(&x->before, x->chunks + 1, sizeof *x->before));
  TRY_DONE(mem_alloc(&off, ranks + 1, sizeof *off));
  for (size_t i = 0; i <= ranks; i++) off[i] = x->chunks * i / ranks;
  TRY_DONE(ranks_agree(r, count_chunks(x, path, off[rank], off[rank + 1])));
  for (size_t i = 0; i <= ranks; i++) off[i] *= sizeof *x->before;
  r->allgather(r->context, "line ends", x->before + 1, off);
  for (size_t i = 0; i < x->chunks; i++) x->before[i + 1] += x->before[i];
done:
  mem_free(off);
  return err;
}

void line_index_free(LineIndex *x) {
  mem_free(x->before);
  *x = (LineIndex){0};
}

uint64_t line_index_find(const LineIndex *x, uint64_t line, uint64_t *before) {
  /* Binary search for the last chunk with before[i] < line. */
  size_t low = 0, high = x->chunks - 1;
  while (low < high) {
    size_t middle = low + (high - low + 1) / 2;
    if (x->before[middle] < line)
      low = middle;
    else
      high = middle - 1;
  }
  *before = x->before[low];
  return (uint64_t)low * x->chunk_bytes;
}
