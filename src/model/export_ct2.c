/* Writes model directories of CTranslate2: model.bin, config.json, shared_vocabulary.json, and the
 * files of the tokenizer. Weights are in fp32; CTranslate2 converts them when it loads them. Depends on
 * export, format/ct2, Jansson. */
#include "model/export_ct2.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "format/ct2.h"

#define REVISION 7 /* of the architecture "TransformerSpec" */
/* Output bias of tokens that the search never selects (pad, bos): its exponential is 0, and it is a
 * number of fp16 too. */
#define NEVER -30000.0f

typedef struct {
  char name[112];
  Ct2Type type;
  int dimensions;
  uint32_t shape[2];
  const float *data; /* of CT2_FLOAT32 */
  int16_t scalar;    /* of the other types, which are scalars */
} Variable;

typedef struct {
  const Export *e;
  Variable *variable;
  size_t count, cap;
  Err err;              /* the first failure */
  char layer[32];       /* prefix of names: "encoder/layer_0" */
  const char *alias[6]; /* alternating aliases and names */
  uint32_t aliases;
  float *output_bias;  /* (vocab) */
  float *positions[2]; /* sinusoidal positions, to be freed */
} VariableList;

static Variable *add_variable(VariableList *v, const char *scope, const char *name) {
  static Variable unused; /* is written after a failure only */
  if (!v->err) v->err = mem_grow(&v->variable, &v->cap, v->count + 1, sizeof *v->variable);
  if (v->err) return &unused;
  Variable *x = &v->variable[v->count++];
  *x = (Variable){.type = CT2_FLOAT32};
  snprintf(x->name, sizeof x->name, "%s/%s", scope, name);
  return x;
}

static void add_scalar(VariableList *v, const char *scope, const char *name, Ct2Type type,
                       int value) {
  Variable *x = add_variable(v, scope, name);
  x->type = type;
  x->scalar = (int16_t)value;
}

static void add_array(VariableList *v, const char *scope, const char *name, const float *data,
                      size_t rows, size_t cols) {
  Variable *x = add_variable(v, scope, name);
  x->dimensions = cols > 1 ? 2 : 1;
  x->shape[0] = (uint32_t)rows;
  x->shape[1] = (uint32_t)cols;
  x->data = data;
}

static void add_norm(VariableList *v, const char *scope, const NormParams *n) {
  char name[80];
  snprintf(name, sizeof name, "%s/layer_norm", scope);
  add_array(v, name, "gamma", v->e->w + n->gain, (size_t)v->e->translator.d_model, 1);
  add_array(v, name, "beta", v->e->w + n->bias, (size_t)v->e->translator.d_model, 1);
}

/* Adds linear_N of a block: weight (rows, cols) and bias (rows), which begin at row `first` of theirs.
 * bias PARAM_NONE: it has none. */
static void add_linear(VariableList *v, const char *scope, int number, size_t weight,
                       size_t bias, size_t first, size_t rows, size_t cols) {
  const float *w = v->e->w;
  char name[80];
  snprintf(name, sizeof name, "%s/linear_%d", scope, number);
  add_array(v, name, "weight", w + weight + first * cols, rows, cols);
  if (bias != PARAM_NONE) add_array(v, name, "bias", w + bias + first, rows, 1);
}

static void add_self_attention(VariableList *v, const LayerParams *l) {
  size_t d = (size_t)v->e->translator.d_model;
  char scope[64];
  snprintf(scope, sizeof scope, "%s/self_attention", v->layer);
  add_norm(v, scope, &l->norm[0]);
  add_linear(v, scope, 0, l->self.in, l->self.in_bias, 0, 3 * d, d);
  add_linear(v, scope, 1, l->self.out, l->self.out_bias, 0, d, d);
}

static void add_cross_attention(VariableList *v, const LayerParams *l, int layer) {
  const TransformerParams *at = &v->e->at;
  size_t d = (size_t)v->e->translator.d_model;
  char scope[64];
  snprintf(scope, sizeof scope, "%s/attention", v->layer);
  add_norm(v, scope, &l->norm[1]);
  add_linear(v, scope, 0, l->cross.in, l->cross.in_bias, 0, d, d);
  add_linear(v, scope, 1, at->cross_kv, at->cross_kv_bias, (size_t)layer * 2 * d, 2 * d, d);
  add_linear(v, scope, 2, l->cross.out, l->cross.out_bias, 0, d, d);
}

static void add_ffn(VariableList *v, const LayerParams *l, const NormParams *norm) {
  size_t d = (size_t)v->e->translator.d_model, ffn = (size_t)v->e->translator.ffn_dim;
  char scope[64];
  snprintf(scope, sizeof scope, "%s/ffn", v->layer);
  add_norm(v, scope, norm);
  add_linear(v, scope, 0, l->ffn.up, l->ffn.up_bias, 0, ffn, d);
  add_linear(v, scope, 1, l->ffn.down, l->ffn.down_bias, 0, d, ffn);
}

/* Adds positions (max_positions, d); those of the encoder are an alias if they are the same. */
static void add_positions(VariableList *v, int stack) {
  const TransformerConfig *c = &v->e->translator;
  static const char *const name[2] = {"encoder/position_encodings/encodings",
                                      "decoder/position_encodings/encodings"};
  const float *data = NULL;
  if (stack == 0 && c->positions != POSITION_LEARNED) {
    v->alias[2 * v->aliases] = name[0];
    v->alias[2 * v->aliases++ + 1] = name[1];
    return;
  }
  if (!v->err) v->err = export_positions(v->e, stack, &data, &v->positions[stack]);
  add_array(v, stack ? "decoder" : "encoder", "position_encodings/encodings", data,
            (size_t)c->max_positions, (size_t)c->d_model);
}

static int get_activation(Activation activation) {
  enum { RELU = 0, SWISH = 2, GELU = 3 }; /* numbers of CTranslate2; GELU is the exact form */
  return activation == ACT_GELU ? GELU : activation == ACT_SILU ? SWISH : RELU;
}

static void add_form(VariableList *v, const char *stack) {
  const TransformerConfig *c = &v->e->translator;
  add_scalar(v, stack, "num_heads", CT2_INT16, c->heads);
  add_scalar(v, stack, "pre_norm", CT2_INT8, c->pre_norm);
  add_scalar(v, stack, "activation", CT2_INT8, get_activation(c->activation));
  add_scalar(v, stack, "scale_embeddings", CT2_INT8, 1); /* by the square root of d */
}

static void add_stack(VariableList *v, int stack) {
  const TransformerConfig *c = &v->e->translator;
  const char *name = stack ? "decoder" : "encoder";
  add_form(v, name);
  add_positions(v, stack);
  for (int i = 0; i < c->layers[stack]; i++) {
    const LayerParams *l = &v->e->at.layer[stack][i];
    snprintf(v->layer, sizeof v->layer, "%s/layer_%d", name, i);
    add_self_attention(v, l);
    if (stack) add_cross_attention(v, l, i);
    add_ffn(v, l, &l->norm[stack ? 2 : 1]);
  }
  if (c->pre_norm) add_norm(v, name, &v->e->at.final_norm[stack]);
}

/* Adds an embedding (vocab, d), or an alias if it is tied to `first`, whose offset is given too. */
static void add_embedding(VariableList *v, const char *name, size_t offset, const char *first,
                          size_t first_offset) {
  const TransformerConfig *c = &v->e->translator;
  if (offset == first_offset && strcmp(name, first) != 0) {
    v->alias[2 * v->aliases] = name;
    v->alias[2 * v->aliases++ + 1] = first;
    return;
  }
  char scope[64];
  snprintf(scope, sizeof scope, "%s", name);
  *strrchr(scope, '/') = '\0';
  add_array(v, scope, "weight", v->e->w + offset, (size_t)c->vocab, (size_t)c->d_model);
}

static void add_embeddings(VariableList *v) {
  static const char first[] = "decoder/embeddings/weight";
  const TransformerParams *at = &v->e->at;
  add_embedding(v, first, at->target_embedding, first, at->target_embedding);
  add_embedding(v, "decoder/projection/weight", at->output, first, at->target_embedding);
  add_embedding(v, "encoder/embeddings_0/weight", at->source_embedding, first,
                at->target_embedding);
}

/* Adds the output bias, by which pad and bos are never selected. */
static void add_output_bias(VariableList *v) {
  const TransformerConfig *c = &v->e->translator;
  size_t vocab = (size_t)c->vocab;
  if (!v->err) v->err = mem_alloc(&v->output_bias, vocab, sizeof *v->output_bias);
  if (v->err) return;
  if (v->e->at.output_bias != PARAM_NONE)
    memcpy(v->output_bias, v->e->w + v->e->at.output_bias, vocab * sizeof *v->output_bias);
  int never[] = {c->pad, c->bos};
  for (int i = 0; i < 2; i++) {
    if (never[i] >= 0 && never[i] != c->eos) v->output_bias[never[i]] = NEVER;
  }
  add_array(v, "decoder/projection", "bias", v->output_bias, vocab, 1);
}

/* Adds properties that only the encoder or only the decoder has, at the values of the plain Transformer. */
static void add_properties(VariableList *v) {
  add_scalar(v, "encoder", "multi_query_attention", CT2_INT8, 0);
  add_scalar(v, "encoder", "embeddings_merge", CT2_INT8, 0);
  add_scalar(v, "decoder", "alignment_layer", CT2_INT16, -1);
  add_scalar(v, "decoder", "alignment_heads", CT2_INT16, 1);
  add_scalar(v, "decoder", "alibi", CT2_INT8, 0);
  add_scalar(v, "decoder", "alibi_use_positive_positions", CT2_INT8, 0);
  add_scalar(v, "decoder", "scale_alibi", CT2_INT8, 0);
  add_scalar(v, "decoder", "start_from_zero_embedding", CT2_INT8, 0);
}

static int compare_names(const void *a, const void *b) {
  const Variable *x = a, *y = b;
  return strcmp(x->name, y->name);
}

static Err list_variables(VariableList *v) {
  add_embeddings(v);
  add_stack(v, 1);
  add_stack(v, 0);
  add_output_bias(v);
  add_properties(v);
  if (!v->err) qsort(v->variable, v->count, sizeof *v->variable, compare_names);
  return v->err;
}

static Err put_variable(FileWriter *w, const Variable *x, Progress *progress) {
  Ct2Entry entry = {
      .name = x->name, .type = x->type, .dimensions = x->dimensions, .shape = {0, 0}};
  memcpy(entry.shape, x->shape, sizeof entry.shape);
  TRY(ct2_put_entry(w, &entry));
  if (x->type == CT2_FLOAT32)
    return export_put_floats(w, x->data, (size_t)(ct2_bytes(&entry) / 4), progress);
  uint16_t bits = (uint16_t)x->scalar;
  uint8_t bytes[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
  return file_put(w, bytes, (size_t)ct2_bytes(&entry));
}

static Err put_variables(FileWriter *w, const VariableList *v) {
  Progress progress;
  progress_begin(&progress, "write weights", "bytes", v->e->params.total * sizeof(float));
  TRY(ct2_begin(w, "TransformerSpec", REVISION, (uint32_t)v->count));
  for (size_t i = 0; i < v->count; i++) TRY(put_variable(w, &v->variable[i], &progress));
  TRY(ct2_put_aliases(w, v->alias, v->aliases));
  progress_end(&progress);
  return ERR_OK;
}

static Err save_variables(const VariableList *v, const char *dir) {
  char path[FILE_PATH_MAX];
  FileWriter w;
  TRY(file_join(path, dir, "model.bin"));
  TRY(file_create(&w, path));
  w.crc_only = true;
  Err err = put_variables(&w, v);
  if (!err) err = file_finish(&w, NULL);
  file_abandon(&w);
  return err;
}

static Err write_weights(const Export *e, const char *dir) {
  VariableList v = {.e = e};
  Err err = list_variables(&v);
  if (!err) err = save_variables(&v, dir);
  mem_free(v.variable);
  mem_free(v.output_bias);
  mem_free(v.positions[0]);
  mem_free(v.positions[1]);
  return err;
}

/* Returns the text of a token; ids without a piece get a name, as every token of CTranslate2 has
 * one. */
static const char *name_token(const Export *e, int id, char memory[32]) {
  const char *piece = tokenizer_piece(&e->tokenizer, id);
  if (piece) return piece;
  snprintf(memory, 32, "<unused-%d>", id);
  return memory;
}

static Err write_vocabulary(const Export *e, const char *dir) {
  json_t *list = json_array();
  bool is_complete = list != NULL;
  for (int id = 0; id < e->translator.vocab && is_complete; id++) {
    char memory[32];
    is_complete = json_array_append_new(list, json_string(name_token(e, id, memory))) == 0;
  }
  if (!is_complete) {
    json_decref(list);
    list = NULL;
  }
  return export_write_json(list, dir, "shared_vocabulary.json");
}

static Err write_config(const Export *e, const char *dir) {
  const TransformerConfig *c = &e->translator;
  char memory[3][32];
  const char *start = name_token(e, c->bos >= 0 ? c->bos : c->eos, memory[0]);
  return export_write_json(
      json_pack("{s:b, s:b, s:b, s:s, s:s, s:s, s:s, s:f}", "add_source_bos", 0,
                "add_source_eos", 1, "multi_query_attention", 0, "bos_token", start,
                "decoder_start_token", start, "eos_token", name_token(e, c->eos, memory[1]),
                "unk_token", name_token(e, e->tokenizer.unk, memory[2]), "layer_norm_epsilon",
                (double)c->norm_epsilon),
      dir, "config.json");
}

static Err check_form(const Export *e) {
  if (e->is_translator) return ERR_OK; /* CTranslate2 has every form of the Transformer */
  return err_set(ERR_WORK,
                 "%s is a model of family %s; only translation models can be exported to "
                 "CTranslate2: pass --to hf",
                 e->dir, e->config.family->name);
}

static Err write_files(const Export *e, const char *dir) {
  TRY(export_copy_tokenizer(e, dir));
  TRY(write_vocabulary(e, dir));
  TRY(write_config(e, dir));
  return write_weights(e, dir);
}

const ExportForm export_ct2 = {
    .name = "ctranslate2", .check = check_form, .write = write_files};
