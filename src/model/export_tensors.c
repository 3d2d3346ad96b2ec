/* Writes model.safetensors. Depends on export, format/safetensors. */
#include "model/export_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/safetensors.h"

Err export_add_tensor(ExportTensors *list, const char *name, const float *data, size_t rows,
                      size_t cols) {
  TRY(mem_grow(&list->tensor, &list->cap, list->count + 1, sizeof *list->tensor));
  ExportTensor *t = &list->tensor[list->count++];
  *t = (ExportTensor){.data = data, .rows = rows, .cols = cols};
  snprintf(t->name, sizeof t->name, "%s", name);
  return ERR_OK;
}

void export_free_tensors(ExportTensors *list) {
  mem_free(list->tensor);
}

static int compare_names(const void *a, const void *b) {
  const ExportTensor *x = a, *y = b;
  return strcmp(x->name, y->name);
}

static Err put_tensors(FileWriter *w, const ExportTensors *list) {
  static const char *const metadata[] = {"format", "pt", NULL};
  SafeEntry *entry;
  Progress progress;
  uint64_t total = 0;
  TRY(mem_alloc(&entry, list->count, sizeof *entry));
  for (size_t i = 0; i < list->count; i++) {
    const ExportTensor *t = &list->tensor[i];
    bool is_matrix = t->cols > 1;
    entry[i] = (SafeEntry){.name = t->name,
                           .type = SAFE_F32,
                           .dimensions = is_matrix ? 2 : 1,
                           .shape = {t->rows, t->cols}};
    total += (uint64_t)t->rows * t->cols * sizeof *t->data;
  }
  progress_begin(&progress, "write weights", "bytes", total);
  Err err = safetensors_begin(w, entry, list->count, metadata);
  for (size_t i = 0; i < list->count && !err; i++) {
    const ExportTensor *t = &list->tensor[i];
    err = export_put_floats(w, t->data, t->rows * t->cols, &progress);
  }
  progress_end(&progress);
  mem_free(entry);
  return err;
}

Err export_save_tensors(ExportTensors *list, const char *dir) {
  char path[FILE_PATH_MAX];
  FileWriter w;
  TRY(file_join(path, dir, "model.safetensors"));
  qsort(list->tensor, list->count, sizeof *list->tensor, compare_names);
  TRY(file_create(&w, path));
  w.crc_only = true;
  Err err = put_tensors(&w, list);
  if (!err) err = file_finish(&w, NULL);
  file_abandon(&w);
  return err;
}
