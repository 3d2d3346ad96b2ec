/* Imports models of Hugging Face: selects the reader of the form, and writes the model directory.
 * Depends on hf_import_internal.h, store. */
#include "model/hf_import.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "model/hf_import_internal.h"

static const struct {
  const char *type; /* value of "model_type" */
  Err (*read)(HfImport *m, const HfConfig *hf);
} readers[] = {
    {"marian", hf_import_marian},
    {"bert", hf_import_bert},
    {"distilbert", hf_import_bert},
    {"roberta", hf_import_bert},
};

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

static Err read_model(HfImport *m) {
  HfConfig hf;
  TRY(hf_open(&hf, m->from));
  const char *type = hf_text(&hf, "model_type", "(none)");
  size_t i = 0, n = sizeof readers / sizeof *readers;
  while (i < n && strcmp(readers[i].type, type) != 0) i++;
  Err err = i < n
                ? readers[i].read(m, &hf)
                : err_set(ERR_WORK,
                          "%s: \"model_type\" is '%s'; this version imports marian (MarianMT, "
                          "Opus-MT), bert, distilbert and roberta",
                          hf.path, type);
  hf_close(&hf);
  return err;
}

static Err write_file(const HfImport *m, const HfFile *file, const char *dir, StoreSums *sums) {
  char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
  FileSum sum;
  TRY(file_join(from, m->from, file->name));
  TRY(file_join(to, dir, file->name));
  TRY(file->is_copied ? place_copy(from, to)
                      : file_write(to, str_text(&file->text), file->text.len));
  TRY(filesum_file(to, &sum));
  store_add_file(sums, file->name, sum);
  return ERR_OK;
}

static Err write_model(const HfImport *m, const char *dir) {
  char path[FILE_PATH_MAX];
  StoreSums sums = {.known = true};
  TRY(file_mkdirs(dir));
  for (size_t i = 0; i < m->files; i++) TRY(write_file(m, &m->file[i], dir, &sums));
  TRY(file_join(path, dir, "weights.safetensors"));
  TRY(store_save_summed(&m->params, m->w, path, &sums.weights));
  return store_save_config(&m->config, &sums, dir);
}

/* Writes OUT.partial and renames it, so that OUT is always complete. */
static Err write_directory(const HfImport *m, const char *out) {
  char partial[FILE_PATH_MAX];
  int len = snprintf(partial, sizeof partial, "%s.partial", out);
  if (len < 0 || (size_t)len >= sizeof partial)
    return err_set(ERR_USAGE, "--out %s: the path is too long", out);
  if (file_exists(partial)) TRY(file_remove_all(partial));
  TRY(write_model(m, partial));
  return file_rename(partial, out);
}

Err hf_import(const char *from, const char *out, HfImported *imported) {
  HfImport m = {.from = from};
  if (file_exists(out))
    return err_set(ERR_USAGE, "--out %s exists; pass the path of a new directory", out);
  Err err = read_model(&m);
  if (!err) err = write_directory(&m, out);
  imported->config = m.config;
  imported->parameters = m.params.total;
  for (size_t i = 0; i < m.files; i++) str_free(&m.file[i].text);
  mem_free(m.w);
  mem_free(m.is_used);
  params_free(&m.params);
  tensors_close(&m.source);
  return err;
}
