/* A model directory: model.json (what it is), weights.safetensors, tokenizer.model.
 * A checkpoint is one, with more files beside. Depends on format, model.h. */
#ifndef MODEL_STORE_H
#define MODEL_STORE_H

#include "base/file.h"
#include "base/filesum.h"
#include "model/model.h"

/* Checksums and sizes of a model's other files, from when they were written. */
typedef struct {
  bool known; /* not in a model.json of version 1 */
  FileSum weights, tokenizer;
} StoreSums;

/* Last of the files, as it holds the sums of the others. */
NODISCARD Err store_save_config(const ModelConfig *config, const StoreSums *sums,
                                const char *dir);
/* sums: or NULL. */
NODISCARD Err store_load_config(ModelConfig *config, StoreSums *sums, const char *dir);
/* One flat array (weights, moments) under the names of the parameters. */
NODISCARD Err store_save_array(const Params *p, const float *array, const char *path);
NODISCARD Err store_write_array(const Params *p, const float *array, FileWriter *w);
NODISCARD Err store_save_summed(const Params *p, const float *array, const char *path,
                                FileSum *sum);
/* Every parameter must be there in its shape, and nothing else. */
NODISCARD Err store_load_array(const Params *p, float *array, const char *path);
/* For use, not for training: memory is taken once the file is seen to hold what model.json
 * promises, its sum is compared where `sums` knows it, and every number must be finite. */
NODISCARD Err store_load_weights(const Params *p, const StoreSums *sums, const char *path,
                                 float **array);

#endif
