/* The GEMM algorithm cache stores on disk which cuBLASLt algorithm is fastest for each shape, so
 * that each shape is timed once per machine. Contains no CUDA code. Depends on base/file,
 * base/mem. */
#ifndef BACKEND_CUDA_ALGO_CACHE_H
#define BACKEND_CUDA_ALGO_CACHE_H

#include "base/file.h"

#define ALGO_WORDS 8 /* 64-bit words of the opaque cublasLtMatmulAlgo_t */

/* The shape and type of a GEMM; bias: 1 if it has one, + 2 for ReLU; sms: the SMs that it may use,
 * 0: all. Integers without padding, so that keys can be compared with memcmp. */
typedef struct {
  uint32_t kind, type, tf32, bias, add, aligned, rows, in, out, sms;
} AlgoKey;

typedef struct {
  AlgoKey key;
  uint32_t fused; /* the epilogue of the GEMM computes the bias gradient */
  uint64_t algorithm[ALGO_WORDS];
  /* number of rows for which cuBLASLt last accepted the algorithm; not on disk */
  size_t checked;
} AlgoEntry;

typedef struct {
  AlgoEntry *entry; /* (count) entries */
  size_t count, cap;
  char head[256];           /* first line of the file: format, cuBLASLt version, GPU */
  char path[FILE_PATH_MAX]; /* path of the file; "": the cache is not stored on disk */
  bool warned;              /* a warning has been printed that the file is not used */
} AlgoCache;

/* Reads the entries for this GPU and version of cuBLASLt. A file that is missing, damaged or for
 * another GPU or version counts as empty; a file that cannot be read or has more than 4096 entries
 * counts as empty too, with a warning. */
NODISCARD Err algo_cache_open(AlgoCache *p, const char *gpu, size_t version);
/* Adds the entries that other processes have written since the last read; entries in memory take
 * precedence. */
NODISCARD Err algo_cache_read(AlgoCache *p);
void algo_cache_free(AlgoCache *p);
/* Returns the entry, valid until the next algo_cache_add; NULL if there is none. */
AlgoEntry *algo_cache_find(const AlgoCache *p, const AlgoKey *key);
/* Adds a copy of `entry`; replaces the one with the same key. */
NODISCARD Err algo_cache_add(AlgoCache *p, const AlgoEntry *entry);
/* Replaces the file atomically with the last 4096 entries; does nothing if `path` is empty. */
NODISCARD Err algo_cache_save(const AlgoCache *p);

#endif
