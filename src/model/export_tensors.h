/* The list of tensors of model.safetensors, in the order of their names, in which transformers saves
 * them. Depends on export, format/safetensors. */
#ifndef MODEL_EXPORT_TENSORS_H
#define MODEL_EXPORT_TENSORS_H

#include "model/export.h"

typedef struct {
  char name[160];
  const float *data; /* NULL: zeros */
  size_t rows, cols; /* cols is 1 for vectors */
} ExportTensor;

typedef struct {
  const Export *e;
  ExportTensor *tensor;
  size_t count, cap;
} ExportTensors;

NODISCARD Err export_add_tensor(ExportTensors *list, const char *name, const float *data,
                                size_t rows, size_t cols);
/* Sorts the list and writes DIR/model.safetensors. */
NODISCARD Err export_save_tensors(ExportTensors *list, const char *dir);
void export_free_tensors(ExportTensors *list);

#endif
