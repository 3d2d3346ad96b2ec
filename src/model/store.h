/* A model directory: model.json (configuration and checksums), weights.safetensors,
 * tokenizer.model. A checkpoint directory has these files and others. Depends on format,
 * model.h. */
#ifndef MODEL_STORE_H
#define MODEL_STORE_H

#include "base/file.h"
#include "base/filesum.h"
#include "model/model.h"

/* Checksums and sizes of a model's other files, as written into model.json. */
typedef struct {
  bool known; /* false for a model.json of version 1, which has no checksums */
  FileSum weights, tokenizer;
} StoreSums;

/* Writes model.json. Must be called after the other files are written, whose checksums it
 * contains. */
NODISCARD Err store_save_config(const ModelConfig *config, const StoreSums *sums,
                                const char *dir);
/* Reads model.json. `sums` may be NULL. */
NODISCARD Err store_load_config(ModelConfig *config, StoreSums *sums, const char *dir);
/* Write a flat array (weights or optimizer state) as a safetensors file with the names of the
 * parameters. store_save_summed also returns the checksum of the file. */
NODISCARD Err store_save_array(const Params *p, const float *array, const char *path);
NODISCARD Err store_write_array(const Params *p, const float *array, FileWriter *w);
NODISCARD Err store_save_summed(const Params *p, const float *array, const char *path,
                                FileSum *sum);
/* Reads a flat array. The file must contain every parameter in its shape and no other
 * tensor. */
NODISCARD Err store_load_array(const Params *p, float *array, const char *path);
/* Reads weights for inference into a new array. Checks names and shapes before it allocates
 * memory, compares the checksum if `sums` has one, and fails if a weight is not finite. */
NODISCARD Err store_load_weights(const Params *p, const StoreSums *sums, const char *path,
                                 float **array);

#endif
