/* Reads and writes safetensors files: eight bytes of header length, a JSON header with names, types,
 * shapes and offsets, then the data. The reader trusts nothing in the file. Depends on base, Jansson. */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include <stdint.h>

#include "base/file.h"
#include "base/place.h"

#define SAFE_DIMENSIONS 8

typedef enum {
  SAFE_F32,
  SAFE_F16,
  SAFE_BF16,
  SAFE_F64,
  SAFE_I64,
  SAFE_I32,
  SAFE_U8,
  SAFE_OTHER
} SafeType;

typedef struct {
  char *name;
  SafeType type;
  int dimensions;
  uint64_t shape[SAFE_DIMENSIONS];
  uint64_t begin, end; /* in the data */
} SafeTensor;

typedef struct {
  PlacePin map;
  const uint8_t *data;
  SafeTensor *tensor; /* in the order of the file */
  size_t tensors, cap;
  char *metadata; /* the header's __metadata__ as JSON text, or NULL */
} SafeFile;

NODISCARD Err safetensors_open(SafeFile *f, const char *path);
void safetensors_close(SafeFile *f);
const SafeTensor *safetensors_find(const SafeFile *f, const char *name);
/* Copies a tensor of `count` elements to single precision. Types: F32, F16, BF16, F64. */
NODISCARD Err safetensors_read(const SafeFile *f, const SafeTensor *t, float *out,
                               uint64_t count);

/* Writing: safetensors_begin() with all tensors (type, shape), then file_put() of their data in the
 * same order. */
typedef struct {
  const char *name;
  SafeType type;
  int dimensions;
  uint64_t shape[SAFE_DIMENSIONS];
} SafeEntry;
/* metadata: alternating keys and values, ending with NULL; or NULL. */
NODISCARD Err safetensors_begin(FileWriter *w, const SafeEntry *entry, size_t entries,
                                const char *const *metadata);

#endif
