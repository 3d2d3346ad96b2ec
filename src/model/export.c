/* Reads a model and writes it in another form, complete or not at all. Depends on store, out_dir,
 * Jansson. */
#include "model/export.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "model/out_dir.h"

bool export_has_file(const Export *e, const char *name) {
  for (size_t i = 0; i < e->sums.files; i++) {
    if (strcmp(e->sums.file[i].name, name) == 0) return true;
  }
  return false;
}

Err export_copy_tokenizer(const Export *e, const char *dir) {
  char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
  for (size_t i = 0; i < e->sums.files; i++) {
    TRY(file_join(from, e->dir, e->sums.file[i].name));
    TRY(file_join(to, dir, e->sums.file[i].name));
    TRY(place_copy(from, to));
  }
  return ERR_OK;
}

Err export_put_floats(FileWriter *w, const float *data, size_t count, Progress *p) {
  enum { PIECE = 1 << 18 };
  static const float zeros[1024];
  size_t piece = data ? PIECE : sizeof zeros / sizeof *zeros;
  for (size_t i = 0; i < count; i += piece) {
    size_t n = count - i < piece ? count - i : piece;
    TRY(file_put(w, data ? data + i : zeros, n * sizeof *data));
    progress_set(p, w->bytes);
  }
  return ERR_OK;
}

Err export_write_json(json_t *root, const char *dir, const char *name) {
  char path[FILE_PATH_MAX];
  Str out = {0};
  char *text =
      root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(7)) : NULL;
  json_decref(root);
  if (!text) return err_set(ERR_WORK, "cannot write %s/%s: out of memory", dir, name);
  str_addf(&out, "%s\n", text);
  free(text); /* Jansson allocated it with malloc */
  Err err = str_check(&out);
  if (!err) err = file_join(path, dir, name);
  if (!err) err = file_write(path, out.s, out.len);
  str_free(&out);
  return err;
}

Err export_positions(const Export *e, int stack, const float **positions, float **memory) {
  const TransformerConfig *c = &e->translator;
  size_t learned = stack ? e->at.target_positions : e->at.source_positions;
  *memory = NULL;
  if (learned != PARAM_NONE) {
    *positions = e->w + learned;
    return ERR_OK;
  }
  TRY(mem_alloc(memory, (size_t)c->max_positions * (size_t)c->d_model, sizeof **memory));
  transformer_fill_positions(c, *memory);
  *positions = *memory;
  return ERR_OK;
}

static Err open_translator(Export *e, const ExportForm *form, const TransformerConfig *c) {
  e->is_translator = true;
  e->translator = *c;
  TRY(store_open_tokenizer(&e->tokenizer, &e->sums, c->vocab, e->dir));
  TRY(form->check(e));
  return transformer_lay_out(&e->at, &e->params, c);
}

static Err open_bert(Export *e, const ExportForm *form, const BertConfig *c) {
  e->bert = *c;
  for (size_t i = 0; i < e->sums.files; i++)
    TRY(store_check_file(&e->sums, e->dir, e->sums.file[i].name));
  TRY(form->check(e));
  return bert_lay_out(&e->bert_at, &e->params, c);
}

static Err read_model(Export *e, const ExportForm *form) {
  char path[FILE_PATH_MAX];
  TRY(store_load_config(&e->config, &e->sums, e->dir));
  const TransformerConfig *translator = transformer_config(&e->config);
  const BertConfig *bert = bert_config(&e->config);
  if (!translator && !bert)
    return err_set(ERR_WORK,
                   "%s is a model of family %s, which cannot be exported; give a translation "
                   "model or one of the BERT family",
                   e->dir, e->config.family->name);
  TRY(translator ? open_translator(e, form, translator) : open_bert(e, form, bert));
  TRY(file_join(path, e->dir, "weights.safetensors"));
  return store_load_weights(&e->params, &e->sums, path, &e->w);
}

typedef struct {
  const Export *e;
  const ExportForm *form;
} FormOf;

static Err write_form(const void *self, const char *dir) {
  const FormOf *f = self;
  return f->form->write(f->e, dir);
}

Err export_model(const ExportForm *form, const char *dir, const char *out, Exported *exported) {
  char path[FILE_PATH_MAX];
  Export e = {.dir = dir};
  TRY(out_dir_begin(out, path));
  Err err = read_model(&e, form);
  if (!err) err = out_dir_write(path, write_form, &(FormOf){&e, form});
  exported->config = e.config;
  exported->parameters = e.params.total;
  mem_free(e.w);
  tokenizer_close(&e.tokenizer);
  params_free(&e.params);
  transformer_params_free(&e.at);
  bert_params_free(&e.bert_at);
  return err;
}
