/* The tensors of a directory that Hugging Face transformers wrote, whatever files they are in:
 * model.safetensors, several of them with model.safetensors.index.json, pytorch_model.bin, or
 * several of those with pytorch_model.bin.index.json. The first of these that exists is used. All
 * bytes are untrusted. Depends on safetensors, torch_file. */
#ifndef FORMAT_TENSORS_H
#define FORMAT_TENSORS_H

#include "format/safetensors.h"

/* A tensor of the source. The texts belong to the source. */
typedef struct {
  const char *name, *path; /* path: the file that has it */
  SafeType type;
  int dimensions;
  uint64_t shape[SAFE_DIMENSIONS];
  size_t file, index; /* where it is, for tensors.c */
} TensorEntry;

typedef struct TensorFile TensorFile;

typedef struct {
  TensorFile *file;
  size_t files;
  TensorEntry *entry; /* sorted by name; no two have the same name */
  size_t entries, cap;
} TensorSource;

/* Opens the weights of a directory. After an error there is nothing to close. */
NODISCARD Err tensors_open(TensorSource *s, const char *dir);
void tensors_close(TensorSource *s);
/* Returns the tensor with this name, or NULL. */
const TensorEntry *tensors_find(const TensorSource *s, const char *name);
/* Copies a tensor of `count` elements to an array of floats, in row-major order. Accepts F32, F16,
 * BF16 and F64. */
NODISCARD Err tensors_read(const TensorSource *s, const TensorEntry *e, float *out,
                           uint64_t count);

#endif
