/* Reads and writes model.json and files of weights. Depends on base, format, Jansson. */
#include "model/store.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/place.h"
#include "format/safetensors.h"

#define VERSION  2 /* version of model.json; version 1 had no checksums */
#define VERSIONS "an integer from 1 to 2"

static const char weights_name[] = "weights.safetensors";

bool store_is_name(const char *name) {
  return *name && strlen(name) < STORE_NAME && !strchr(name, '/') && strcmp(name, ".") != 0 &&
         strcmp(name, "..") != 0;
}

void store_add_file(StoreSums *sums, const char *name, FileSum sum) {
  StoreFile *file = &sums->file[sums->files++];
  snprintf(file->name, sizeof file->name, "%s", name);
  file->sum = sum;
}

Err store_check_file(const StoreSums *sums, const char *dir, const char *name) {
  char path[FILE_PATH_MAX];
  FileSum now;
  if (!sums->known) return ERR_OK;
  for (size_t i = 0; i < sums->files; i++) {
    if (strcmp(sums->file[i].name, name) != 0) continue;
    TRY(file_join(path, dir, name));
    TRY(filesum_file(path, &now));
    return filesum_compare(path, now, sums->file[i].sum);
  }
  TRY(file_join(path, dir, "model.json"));
  return err_set(ERR_WORK, "%s is damaged: 'files' has no '%s'; copy the model again", path,
                 name);
}

bool store_has_file(const StoreSums *sums, const char *name) {
  for (size_t i = 0; i < sums->files; i++) {
    if (strcmp(sums->file[i].name, name) == 0) return true;
  }
  return false;
}

static Err open_pair(Tokenizer *t, const StoreSums *sums, int vocab, const char *dir) {
  static const char *const files[] = {"source.spm", "target.spm", "vocab.json"};
  for (size_t i = 0; i < 3; i++) TRY(store_check_file(sums, dir, files[i]));
  TRY(tokenizer_open_pair(t, dir));
  if (t->vocab <= vocab) return ERR_OK; /* the last ids may have no piece */
  int ids = t->vocab;
  tokenizer_close(t);
  return err_set(ERR_WORK,
                 "%s/vocab.json has ids up to %d, but the model has %d tokens: it is the "
                 "vocabulary of another model; copy the model again",
                 dir, ids - 1, vocab);
}

Err store_open_tokenizer(Tokenizer *t, const StoreSums *sums, int vocab, const char *dir) {
  char path[FILE_PATH_MAX];
  if (store_has_file(sums, "vocab.json")) return open_pair(t, sums, vocab, dir);
  TRY(store_check_file(sums, dir, "tokenizer.model"));
  TRY(file_join(path, dir, "tokenizer.model"));
  TRY(tokenizer_open(t, path));
  if (t->vocab == vocab) return ERR_OK;
  int pieces = t->vocab;
  tokenizer_close(t);
  return err_set(
      ERR_WORK,
      "%s has %d pieces, but the model has %d: it is the tokenizer of another model; "
      "copy the model again",
      path, pieces, vocab);
}

static json_t *print_sum(FileSum sum) {
  char digits[9];
  snprintf(digits, sizeof digits, "%08" PRIx32, sum.crc);
  return json_pack("{s:I, s:s}", "bytes", (json_int_t)sum.bytes, "crc32", digits);
}

/* Returns NULL if out of memory. */
static json_t *print_files(const StoreSums *sums) {
  json_t *files = json_object();
  bool is_done = json_object_set_new(files, weights_name, print_sum(sums->weights)) == 0;
  for (size_t i = 0; i < sums->files && is_done; i++)
    is_done = json_object_set_new(files, sums->file[i].name, print_sum(sums->file[i].sum)) == 0;
  if (is_done) return files;
  json_decref(files);
  return NULL;
}

/* Returns NULL if out of memory. */
static json_t *print_model(const ModelConfig *c, const StoreSums *sums) {
  json_t *root = json_pack("{s:s, s:i, s:s}", "format", c->family->format, "version", VERSION,
                           "checksum", JSONDOC_NO_SUM);
  if (root && config_write(c, root) &&
      json_object_set_new(root, "files", print_files(sums)) == 0)
    return root;
  json_decref(root);
  return NULL;
}

Err store_save_config(const ModelConfig *c, const StoreSums *sums, const char *dir) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, "model.json"));
  json_t *root = print_model(c, sums);
  char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(root);
  if (!text) return err_set(ERR_WORK, "cannot write %s: out of memory", path);
  Str out = {0};
  str_addf(&out, "%s\n", text);
  free(text); /* Jansson allocated it with malloc */
  jsondoc_seal(&out);
  Err err = str_check(&out);
  if (!err) err = file_write(path, out.s, out.len);
  str_free(&out);
  return err;
}

/* Writes the "format" names of all families, separated by commas. */
static const char *list_formats(char out[256]) {
  size_t at = 0;
  *out = '\0';
  for (const ModelFamily *const *f = model_families; *f && at < 256; f++) {
    int n = snprintf(out + at, 256 - at, "%s%s", at ? ", " : "", (*f)->format);
    at += n > 0 ? (size_t)n : 0;
  }
  return out;
}

/* Returns the family whose models have this "format" in model.json, or NULL. */
static const ModelFamily *find_family(const char *format) {
  for (const ModelFamily *const *f = model_families; *f; f++)
    if (strcmp((*f)->format, format) == 0) return *f;
  return NULL;
}

static Err read_config(const json_t *root, const char *path, ModelConfig *c) {
  char formats[256];
  const char *format = json_string_value(json_object_get(root, "format"));
  if (!format) return config_damaged(path, "format", "a string");
  c->family = find_family(format);
  if (!c->family)
    return err_set(ERR_WORK,
                   "%s: unknown model format '%s'; this trireme reads %s: use the program that "
                   "wrote the model, or a newer one",
                   path, format, list_formats(formats));
  const json_t *version = json_object_get(root, "version");
  json_int_t n = json_integer_value(version);
  if (!json_is_integer(version) || n < 1) return config_damaged(path, "version", VERSIONS);
  if (n > VERSION)
    return err_set(ERR_WORK,
                   "%s has version %lld, this trireme reads 1 and 2; it was written by a newer "
                   "version of trireme: use that version",
                   path, (long long)n);
  return config_read(c, root, path);
}

static Err read_sum(const json_t *j, const char *path, const char *name, FileSum *sum) {
  const json_t *bytes = json_object_get(j, "bytes");
  const char *digits = json_string_value(json_object_get(j, "crc32"));
  bool fits = json_is_integer(bytes) && json_integer_value(bytes) >= 0 && digits &&
              strlen(digits) == 8 && strspn(digits, "0123456789abcdef") == 8;
  if (!fits)
    return config_damaged(path, name,
                          "an object with \"bytes\", an integer, and \"crc32\", 8 hexadecimal "
                          "digits");
  sum->bytes = (uint64_t)json_integer_value(bytes);
  sum->crc = (uint32_t)strtoul(digits, NULL, 16);
  return ERR_OK;
}

static Err read_files(json_t *files, const char *path, StoreSums *sums) {
  char expected[48];
  const char *name;
  json_t *j;
  snprintf(expected, sizeof expected, "an object with names of 1 to %d files", STORE_FILES + 1);
  if (!json_is_object(files)) return config_damaged(path, "files", expected);
  TRY(read_sum(json_object_get(files, weights_name), path, weights_name, &sums->weights));
  json_object_foreach(files, name, j) {
    FileSum sum;
    if (strcmp(name, weights_name) == 0) continue;
    if (!store_is_name(name) || sums->files == STORE_FILES)
      return config_damaged(path, "files", expected);
    TRY(read_sum(j, path, name, &sum));
    store_add_file(sums, name, sum);
  }
  return ERR_OK;
}

static Err read_sums(const json_t *root, const char *path, const Str *text, StoreSums *sums) {
  *sums = (StoreSums){.known = json_integer_value(json_object_get(root, "version")) > 1};
  if (!sums->known) { /* version 1 does not list files; its models always have a tokenizer */
    store_add_file(sums, "tokenizer.model", (FileSum){0});
    return ERR_OK;
  }
  if (!jsondoc_is_sealed(str_text(text), text->len))
    return err_set(ERR_WORK, "%s is damaged: its checksum is wrong; copy the model again",
                   path);
  return read_files(json_object_get(root, "files"), path, sums);
}

static Err parse_config(ModelConfig *c, StoreSums *sums, const Str *text, const char *path) {
  json_error_t error;
  TRY(jsondoc_check(str_text(text), text->len, path));
  json_t *root = json_loadb(str_text(text), text->len, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    return err_set(ERR_WORK, "%s:%d: not JSON: %s; copy the model again", path, error.line,
                   error.text);
  Err err = read_config(root, path, c);
  if (!err) err = read_sums(root, path, text, sums);
  json_decref(root);
  return err;
}

Err store_load_config(ModelConfig *c, StoreSums *sums, const char *dir) {
  StoreSums unused;
  *c = (ModelConfig){0};
  char path[FILE_PATH_MAX];
  TRY(place_check(dir));
  TRY(file_join(path, dir, "model.json"));
  if (!place_exists(path))
    return err_set(ERR_WORK,
                   "%s is not a model: it has no model.json; pass the directory of a model or "
                   "of a checkpoint",
                   dir);
  Str text = {0};
  Err err = place_read_all(path, (size_t)1 << 20, &text);
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

/* Finds the tensor of each parameter and checks names and shapes. */
static Err find_tensors(const Params *p, const SafeFile *f, const SafeTensor **tensor) {
  for (size_t i = 0; i < p->count; i++) {
    const Param *q = &p->param[i];
    const SafeTensor *t = safetensors_find(f, q->name);
    if (!t)
      return err_set(ERR_WORK,
                     "%s has no tensor '%s', which model.json requires; copy the model again",
                     f->map.path, q->name);
    bool fits = t->dimensions == (q->cols > 1 ? 2 : 1) && t->shape[0] == q->rows &&
                (t->dimensions == 1 || t->shape[1] == q->cols);
    if (!fits)
      return err_set(ERR_WORK,
                     "%s: tensor '%s' does not have the shape that model.json requires; copy "
                     "the model again",
                     f->map.path, q->name);
    tensor[i] = t;
  }
  if (f->tensors == p->count) return ERR_OK;
  return err_set(ERR_WORK, "%s has %zu tensors, model.json requires %zu; copy the model again",
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

/* Tests the exponent bits, which are all ones in infinities and NaNs, in a loop that
 * vectorizes. */
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
                   ") is not finite; copy the model again, or use another checkpoint",
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
