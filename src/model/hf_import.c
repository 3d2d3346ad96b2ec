/* Imports models of Hugging Face: selects the reader of the form, and writes the model directory.
 * Depends on hf_import_internal.h, store, out_dir. */
#include "model/hf_import.h"

#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "model/bert.h"
#include "model/hf_import_internal.h"
#include "model/out_dir.h"

static const struct {
  const char *type; /* value of "model_type" */
  Err (*read)(HfImport *m, const HfConfig *hf);
} readers[] = {
    {"marian", hf_import_marian},
    {"bert", hf_import_bert},
    {"distilbert", hf_import_bert},
    {"roberta", hf_import_bert},
};

/* Calls the reader of the model's type. */
static Err read_type(HfImport *m, const HfConfig *hf) {
  const char *type;
  TRY(hf_text(hf, "model_type", "(none)", &type));
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
    if (strcmp(readers[i].type, type) == 0) return readers[i].read(m, hf);
  }
  return err_set(ERR_WORK,
                 "%s: \"model_type\" is '%s'; this version imports marian (MarianMT, "
                 "Opus-MT), bert, distilbert and roberta",
                 hf->path, type);
}

static Err read_model(HfImport *m) {
  HfConfig hf;
  TRY(hf_open(&hf, m->from));
  Err err = read_type(m, &hf);
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

static Err write_model(const void *self, const char *dir) {
  const HfImport *m = self;
  char path[FILE_PATH_MAX];
  StoreSums sums = {.known = true};
  for (size_t i = 0; i < m->files; i++) TRY(write_file(m, &m->file[i], dir, &sums));
  TRY(file_join(path, dir, "weights.safetensors"));
  TRY(store_save_summed(&m->params, m->w, path, &sums.weights));
  return store_save_config(&m->config, &sums, dir);
}

static Err set_pairs(HfImport *m) {
  const BertConfig *config = bert_config(&m->config);
  if (!config || !bert_is_classifier(config))
    return err_set(ERR_USAGE, "--pairs is for classifiers, and %s is none: leave it out",
                   m->from);
  BertConfig changed = *config;
  changed.has_pairs = true;
  m->config = bert_model_config(&changed);
  return ERR_OK;
}

static Err import_model(const char *from, const char *out, bool has_pairs,
                        HfImported *imported) {
  HfImport m = {.from = from};
  char path[FILE_PATH_MAX];
  TRY(out_dir_begin(out, path));
  Err err = read_model(&m);
  if (!err && has_pairs) err = set_pairs(&m);
  if (!err) err = out_dir_write(path, write_model, &m);
  imported->config = m.config;
  imported->parameters = m.params.total;
  for (size_t i = 0; i < m.files; i++) str_free(&m.file[i].text);
  mem_free(m.w);
  mem_free(m.is_used);
  params_free(&m.params);
  tensors_close(&m.source);
  return err;
}

Err hf_import(const char *from, const char *out, HfImported *imported) {
  return import_model(from, out, /*has_pairs=*/false, imported);
}

Err hf_import_pairs(const char *from, const char *out, HfImported *imported) {
  return import_model(from, out, /*has_pairs=*/true, imported);
}
