/* model.json and flat arrays on disk. Relies on base, format, Jansson. */
#include "model/store.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "format/safetensors.h"

#define VERSION 2 /* 1 had no checksums */

static const char *const activations[] = {"relu", "gelu", "silu"};
static const char *const positions[] = {"halves", "interleaved", "learned"};
static const char *const tyings[] = {"all", "decoder", "none"};

static const char weights_name[] = "weights.safetensors", tokenizer_name[] = "tokenizer.model";

static json_t *print_sum(FileSum sum) {
  char digits[9];
  snprintf(digits, sizeof digits, "%08" PRIx32, sum.crc);
  return json_pack("{s:I, s:s}", "bytes", (json_int_t)sum.bytes, "crc32", digits);
}

Err store_save_config(const ModelConfig *c, const StoreSums *sums, const char *dir) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, "model.json"));
  json_t *root = json_pack(
      "{s:s, s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:s, s:s, s:s, s:f, s:f, "
      "s:f, "
      "s:f, s:f, s:i, s:i, s:i, s:{s:o, s:o}}",
      "format", "trireme-transformer", "version", VERSION, "checksum", JSONDOC_NO_SUM, "vocab",
      c->vocab, "d", c->d, "ff", c->ff, "heads", c->heads, "encoder_layers", c->layers[0],
      "decoder_layers", c->layers[1], "longest", c->longest, "norm",
      c->pre_norm ? "pre" : "post", "attention_bias", c->attention_bias, "activation",
      activations[c->activation], "positions", positions[c->positions], "tied",
      tyings[c->tying], "norm_epsilon", (double)c->norm_epsilon, "drop_embed",
      (double)c->drop_embed, "drop_attention", (double)c->drop_attention, "drop_activation",
      (double)c->drop_activation, "drop_residual", (double)c->drop_residual, "bos", c->bos,
      "eos", c->eos, "pad", c->pad, "files", weights_name, print_sum(sums->weights),
      tokenizer_name, print_sum(sums->tokenizer));
  char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(root);
  if (!text) return err_set(ERR_WORK, "cannot write %s: out of memory", path);
  Str out = {0};
  str_addf(&out, "%s\n", text);
  free(text); /* Jansson's own memory */
  jsondoc_seal(&out);
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
  get_int(r, "version", 1, VERSION);
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

static FileSum get_sum(Reading *r, const char *name) {
  const json_t *j = json_object_get(json_object_get(r->root, "files"), name);
  const json_t *bytes = json_object_get(j, "bytes");
  const char *digits = json_string_value(json_object_get(j, "crc32"));
  bool fits = json_is_integer(bytes) && json_integer_value(bytes) >= 0 && digits &&
              strlen(digits) == 8 && strspn(digits, "0123456789abcdef") == 8;
  if (!fits) {
    wrong(r, name);
    return (FileSum){0};
  }
  return (FileSum){(uint64_t)json_integer_value(bytes), (uint32_t)strtoul(digits, NULL, 16)};
}

static Err read_sums(Reading *r, const Str *text, StoreSums *sums) {
  sums->known = json_integer_value(json_object_get(r->root, "version")) > 1;
  if (!sums->known) return ERR_OK;
  if (!jsondoc_is_sealed(str_text(text), text->len))
    return err_set(ERR_WORK, "%s is damaged: its checksum is wrong; copy it anew", r->path);
  sums->weights = get_sum(r, weights_name);
  sums->tokenizer = get_sum(r, tokenizer_name);
  return r->failed ? ERR_WORK : ERR_OK;
}

static Err parse_config(ModelConfig *c, StoreSums *sums, const Str *text, const char *path) {
  json_error_t error;
  TRY(jsondoc_check(str_text(text), text->len, path));
  json_t *root = json_loadb(str_text(text), text->len, JSON_REJECT_DUPLICATES, &error);
  if (!root) return err_set(ERR_WORK, "%s:%d: not JSON: %s", path, error.line, error.text);
  Reading r = {.root = root, .path = path};
  Err err = read_config(&r, c);
  if (!err) err = read_sums(&r, text, sums);
  json_decref(root);
  return err;
}

Err store_load_config(ModelConfig *c, StoreSums *sums, const char *dir) {
  StoreSums unused;
  *c = (ModelConfig){0};
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, "model.json"));
  if (!file_exists(path))
    return err_set(ERR_WORK, "%s is not a model: it has no model.json", dir);
  Str text = {0};
  Err err = file_read(path, (size_t)1 << 20, &text);
  if (!err) err = parse_config(c, sums ? sums : &unused, &text, path);
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

Err store_save_summed(const Params *p, const float *array, const char *path, FileSum *sum) {
  char hex[65];
  FileWriter w;
  TRY(file_create(&w, path));
  w.crc_only = true;
  Err err = store_write_array(p, array, &w);
  sum->bytes = w.bytes;
  if (!err) err = file_finish(&w, hex);
  if (!err) sum->crc = (uint32_t)strtoul(hex, NULL, 16);
  file_abandon(&w);
  return err;
}

Err store_save_array(const Params *p, const float *array, const char *path) {
  FileSum unused;
  return store_save_summed(p, array, path, &unused);
}

/* The tensor of each parameter, in the order of the parameters. */
static Err find_tensors(const Params *p, const SafeFile *f, const SafeTensor **tensor) {
  for (size_t i = 0; i < p->count; i++) {
    const Param *q = &p->param[i];
    const SafeTensor *t = safetensors_find(f, q->name);
    if (!t) return err_set(ERR_WORK, "%s has no '%s'", f->map.path, q->name);
    bool fits = t->dimensions == (q->cols > 1 ? 2 : 1) && t->shape[0] == q->rows &&
                (t->dimensions == 1 || t->shape[1] == q->cols);
    if (!fits)
      return err_set(ERR_WORK, "%s: '%s' has another shape than model.json says", f->map.path,
                     q->name);
    tensor[i] = t;
  }
  if (f->tensors == p->count) return ERR_OK;
  return err_set(ERR_WORK, "%s has %zu tensors where the model of model.json has %zu",
                 f->map.path, f->tensors, p->count);
}

static Err open_array(const Params *p, SafeFile *f, const SafeTensor ***tensor,
                      const char *path) {
  *tensor = NULL;
  TRY(safetensors_open(f, path));
  Err err = mem_alloc(tensor, p->count, sizeof **tensor);
  if (!err) err = find_tensors(p, f, *tensor);
  return err;
}

static Err read_array(const Params *p, const SafeFile *f, const SafeTensor **tensor,
                      float *array) {
  for (size_t i = 0; i < p->count; i++)
    TRY(safetensors_read(f, tensor[i], array + p->param[i].offset,
                         p->param[i].rows * p->param[i].cols));
  return ERR_OK;
}

Err store_load_array(const Params *p, float *array, const char *path) {
  SafeFile f = {0};
  const SafeTensor **tensor;
  Err err = open_array(p, &f, &tensor, path);
  if (!err) err = read_array(p, &f, tensor, array);
  mem_free(tensor);
  safetensors_close(&f);
  return err;
}

/* The exponent of infinities and NaNs is all ones. */
static bool is_finite_array(const float *x, size_t n) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], 4);
    bad |= (bits & 0x7f800000u) == 0x7f800000u;
  }
  return bad == 0;
}

static Err check_finite(const Params *p, const SafeFile *f, const SafeTensor **tensor,
                        const float *array) {
  for (size_t i = 0; i < p->count; i++) {
    const Param *q = &p->param[i];
    size_t n = q->rows * q->cols, k = 0;
    const float *x = array + q->offset;
    if (is_finite_array(x, n)) continue;
    while (k < n && isfinite(x[k])) k++;
    uint64_t element = (tensor[i]->end - tensor[i]->begin) / n;
    uint64_t offset = (uint64_t)(f->data - f->map.bytes) + tensor[i]->begin + k * element;
    return err_set(ERR_WORK,
                   "%s is damaged: number %zu of '%s' (byte %" PRIu64
                   ") is not finite; copy it anew, or take another checkpoint",
                   f->map.path, k, q->name, offset);
  }
  return ERR_OK;
}

Err store_load_weights(const Params *p, const StoreSums *sums, const char *path,
                       float **array) {
  SafeFile f = {0};
  const SafeTensor **tensor;
  *array = NULL;
  Err err;
  TRY_DONE(open_array(p, &f, &tensor, path));
  if (sums->known)
    TRY_DONE(filesum_compare(path, filesum_bytes(f.map.bytes, f.map.size), sums->weights));
  TRY_DONE(mem_alloc_aligned(array, p->padded * sizeof **array));
  TRY_DONE(read_array(p, &f, tensor, *array));
  err = check_finite(p, &f, tensor, *array);
done:
  mem_free(tensor);
  safetensors_close(&f);
  return err;
}
