/* A model directory: model.json (what it is), weights.safetensors, tokenizer.model.
 * A checkpoint is one, with more files beside. Relies on format, params. */
#ifndef MODEL_STORE_H
#define MODEL_STORE_H

#include "base/file.h"
#include "model/params.h"

NODISCARD Err store_save_config(const ModelConfig *config, const char *dir);
NODISCARD Err store_load_config(ModelConfig *config, const char *dir);
/* One flat array (weights, moments) under the names of the parameters. */
NODISCARD Err store_save_array(const Params *p, const float *array, const char *path);
NODISCARD Err store_write_array(const Params *p, const float *array, FileWriter *w);
/* Every parameter must be there in its shape. */
NODISCARD Err store_load_array(const Params *p, float *array, const char *path);

#endif
