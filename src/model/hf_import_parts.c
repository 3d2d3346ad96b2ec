/* Reads tensors of a model that is being imported. Depends on hf_import_internal.h. */
#include <math.h>

#include "base/mem.h"
#include "model/hf_import_internal.h"

Err hf_open_tensors(HfImport *m) {
  TRY(tensors_open(&m->source, m->from));
  return mem_alloc(&m->is_used, m->source.entries, sizeof *m->is_used);
}

Err hf_find_tensor(const HfImport *m, const char *name, size_t rows, size_t cols,
                   const TensorEntry **entry) {
  const TensorEntry *e = tensors_find(&m->source, name);
  if (!e)
    return err_set(ERR_WORK, "%s: the weights lack the tensor '%s'; copy the model again",
                   m->from, name);
  bool is_row = cols == 1 && e->dimensions == 2 && e->shape[0] == 1 && e->shape[1] == rows;
  bool fits = e->dimensions == (cols > 1 ? 2 : 1) && e->shape[0] == rows &&
              (cols == 1 || e->shape[1] == cols);
  if (!fits && !is_row)
    return err_set(ERR_WORK,
                   "%s: tensor '%s' has %d dimensions (%llu, %llu), while config.json requires "
                   "(%zu, %zu); use the config.json of this model",
                   e->path, name, e->dimensions,
                   (unsigned long long)(e->dimensions > 0 ? e->shape[0] : 0),
                   (unsigned long long)(e->dimensions > 1 ? e->shape[1] : 1), rows, cols);
  *entry = e;
  return ERR_OK;
}

Err hf_read_tensor(HfImport *m, const char *name, size_t offset, size_t rows, size_t cols) {
  const TensorEntry *e = NULL;
  TRY(hf_find_tensor(m, name, rows, cols, &e));
  TRY(tensors_read(&m->source, e, m->w + offset, rows * cols));
  for (size_t i = 0; i < rows * cols; i++) {
    if (isfinite(m->w[offset + i])) continue;
    return err_set(ERR_WORK, "%s: number %zu of '%s' is not finite; copy the model again",
                   e->path, i, name);
  }
  m->is_used[e - m->source.entry] = true;
  return ERR_OK;
}

HfFile *hf_add_file(HfImport *m, const char *name, bool is_copied) {
  HfFile *file = &m->file[m->files++];
  *file = (HfFile){.name = name, .is_copied = is_copied};
  return file;
}
