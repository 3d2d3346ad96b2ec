/* model.json and flat arrays on disk. Relies on base, format, Jansson. */
#include "model/store.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/safetensors.h"

#define FORMAT 1

static const char *const activations[] = {"relu", "gelu", "silu"};
static const char *const positions[] = {"halves", "interleaved", "learned"};
static const char *const tyings[] = {"all", "decoder", "none"};

Err store_save_config(const ModelConfig *c, const char *dir) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, "model.json"));
  json_t *root = json_pack(
      "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:s, s:s, s:s, s:f, s:f, s:f, "
      "s:f, s:f, s:i, s:i, s:i}",
      "format", "trireme-transformer", "version", FORMAT, "vocab", c->vocab, "d", c->d, "ff",
      c->ff, "heads", c->heads, "encoder_layers", c->layers[0], "decoder_layers", c->layers[1],
      "longest", c->longest, "norm", c->pre_norm ? "pre" : "post", "attention_bias",
      c->attention_bias, "activation", activations[c->activation], "positions",
      positions[c->positions], "tied", tyings[c->tying], "norm_epsilon",
      (double)c->norm_epsilon, "drop_embed", (double)c->drop_embed, "drop_attention",
      (double)c->drop_attention, "drop_activation", (double)c->drop_activation, "drop_residual",
      (double)c->drop_residual, "bos", c->bos, "eos", c->eos, "pad", c->pad);
  char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(root);
  if (!text) return err_set(ERR_WORK, "cannot write %s: out of memory", path);
  Str out = {0};
  str_addf(&out, "%s\n", text);
  free(text); /* Jansson's own memory */
  Err err = str_check(&out);
  if (!err) err = file_write(path, out.s, out.len);
  str_free(&out);
  return err;
}

/* The first wrong value is remembered; what follows is skipped. */
typedef struct {
  const json_t *root;
  const char *path;
  bool failed;
} Reading;

static void wrong(Reading *r, const char *key) {
  if (!r->failed)
    err_set(ERR_WORK, "%s is damaged: '%s' is missing or out of range", r->path, key);
  r->failed = true;
}

static int get_int(Reading *r, const char *key, int min, int max) {
  const json_t *j = json_object_get(r->root, key);
  if (!json_is_integer(j) || json_integer_value(j) < min || json_integer_value(j) > max) {
    wrong(r, key);
    return min;
  }
  return (int)json_integer_value(j);
}

static float get_real(Reading *r, const char *key, double max) {
  const json_t *j = json_object_get(r->root, key);
  double x = json_number_value(j);
  if (!json_is_number(j) || !(x >= 0 && x <= max)) wrong(r, key);
  return (float)x;
}

static int get_choice(Reading *r, const char *key, const char *const *names, int n) {
  const char *text = json_string_value(json_object_get(r->root, key));
  for (int i = 0; i < n && text; i++) {
    if (strcmp(text, names[i]) == 0) return i;
  }
  wrong(r, key);
  return 0;
}

static Err read_config(Reading *r, ModelConfig *c) {
  static const char *const norms[] = {"post", "pre"};
  const char *format = json_string_value(json_object_get(r->root, "format"));
  if (!format || strcmp(format, "trireme-transformer") != 0) wrong(r, "format");
  get_int(r, "version", FORMAT, FORMAT);
  c->vocab = get_int(r, "vocab", 1, 1 << 24);
  c->d = get_int(r, "d", 1, 1 << 16);
  c->ff = get_int(r, "ff", 1, 1 << 18);
  c->heads = get_int(r, "heads", 1, 1 << 10);
  c->layers[0] = get_int(r, "encoder_layers", 1, 250);
  c->layers[1] = get_int(r, "decoder_layers", 1, 250);
  c->longest = get_int(r, "longest", 1, 1 << 16);
  c->pre_norm = get_choice(r, "norm", norms, 2) == 1;
  c->attention_bias = json_is_true(json_object_get(r->root, "attention_bias"));
  c->activation = (Activation)get_choice(r, "activation", activations, 3);
  c->positions = (Positions)get_choice(r, "positions", positions, 3);
  c->tying = (Tying)get_choice(r, "tied", tyings, 3);
  c->norm_epsilon = get_real(r, "norm_epsilon", 1);
  c->drop_embed = get_real(r, "drop_embed", 0.99);
  c->drop_attention = get_real(r, "drop_attention", 0.99);
  c->drop_activation = get_real(r, "drop_activation", 0.99);
  c->drop_residual = get_real(r, "drop_residual", 0.99);
  c->bos = get_int(r, "bos", -1, c->vocab - 1);
  c->eos = get_int(r, "eos", 0, c->vocab - 1);
  c->pad = get_int(r, "pad", -1, c->vocab - 1);
  return r->failed ? ERR_WORK : config_check(c);
}

Err store_load_config(ModelConfig *c, const char *dir) {
  *c = (ModelConfig){0};
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, "model.json"));
  if (!file_exists(path))
    return err_set(ERR_WORK, "%s is not a model: it has no model.json", dir);
  Str text = {0};
  Err err = file_read(path, (size_t)1 << 20, &text);
  if (!err) {
    json_error_t error;
    json_t *root = json_loadb(str_text(&text), text.len, JSON_REJECT_DUPLICATES, &error);
    Reading r = {.root = root, .path = path};
    err = root ? read_config(&r, c)
               : err_set(ERR_WORK, "%s:%d: not JSON: %s", path, error.line, error.text);
    json_decref(root);
  }
  str_free(&text);
  return err;
}

Err store_write_array(const Params *p, const float *array, FileWriter *w) {
  SafeEntry *entry;
  TRY(mem_alloc(&entry, p->count, sizeof *entry));
  for (size_t i = 0; i < p->count; i++) {
    const Param *q = &p->param[i];
    entry[i] = (SafeEntry){.name = q->name,
                           .type = SAFE_F32,
                           .dimensions = q->cols > 1 ? 2 : 1,
                           .shape = {q->rows, q->cols}};
  }
  Err err = safetensors_begin(w, entry, p->count, NULL);
  for (size_t i = 0; i < p->count && !err; i++) {
    err = file_put(w, array + p->param[i].offset,
                   p->param[i].rows * p->param[i].cols * sizeof(float));
  }
  mem_free(entry);
  return err;
}

Err store_save_array(const Params *p, const float *array, const char *path) {
  FileWriter w;
  TRY(file_create(&w, path));
  w.crc_only = true;
  Err err = store_write_array(p, array, &w);
  if (!err) err = file_finish(&w, NULL);
  file_abandon(&w);
  return err;
}

Err store_load_array(const Params *p, float *array, const char *path) {
  SafeFile f;
  TRY(safetensors_open(&f, path));
  Err err = ERR_OK;
  for (size_t i = 0; i < p->count && !err; i++) {
    const Param *q = &p->param[i];
    const SafeTensor *t = safetensors_find(&f, q->name);
    bool fits = t && t->dimensions == (q->cols > 1 ? 2 : 1) && t->shape[0] == q->rows &&
                (t->dimensions == 1 || t->shape[1] == q->cols);
    if (!t)
      err = err_set(ERR_WORK, "%s has no '%s'", path, q->name);
    else if (!fits)
      err = err_set(ERR_WORK, "%s: '%s' has another shape than model.json says", path, q->name);
    else
      err = safetensors_read(&f, t, array + q->offset, q->rows * q->cols);
  }
  safetensors_close(&f);
  return err;
}
