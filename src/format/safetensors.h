/* Reads and writes safetensors files: eight bytes of header length, a JSON header with names,
 * types, shapes and offsets, then the data. The reader checks every field of the file. Depends on
 * base, Jansson. */
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
  uint64_t begin, end; /* byte offsets in the data section */
} SafeTensor;

typedef struct {
  PlacePin map;
  const uint8_t *data;
  SafeTensor *tensor; /* tensors in file order */
  size_t tensors, cap;
  char *metadata; /* __metadata__ of the header as JSON text, or NULL */
} SafeFile;

NODISCARD Err safetensors_open(SafeFile *f, const char *path);
void safetensors_close(SafeFile *f);
const SafeTensor *safetensors_find(const SafeFile *f, const char *name);
/* Copies a tensor of `count` elements to an array of floats. Accepts F32, F16, BF16, F64. */
NODISCARD Err safetensors_read(const SafeFile *f, const SafeTensor *t, float *out,
                               uint64_t count);
/* Returns the bytes of an element; 0 for SAFE_OTHER. */
uint64_t safetensors_bytes(SafeType type);
/* Converts `count` elements, of any alignment, to floats. Returns false if the type is not a
 * floating-point one. */
bool safetensors_to_float(SafeType type, const uint8_t *from, float *out, uint64_t count);

/* A tensor of a file to be written. Call safetensors_begin() with all tensors (type, shape), then
 * file_put() with their data in the same order. */
typedef struct {
  const char *name;
  SafeType type;
  int dimensions;
  uint64_t shape[SAFE_DIMENSIONS];
} SafeEntry;
/* Writes the header. `metadata`: alternating keys and values, ending with NULL; or NULL for
 * none. */
NODISCARD Err safetensors_begin(FileWriter *w, const SafeEntry *entry, size_t entries,
                                const char *const *metadata);

#endif
