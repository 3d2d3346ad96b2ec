/* Reads config.json of Hugging Face transformers. Depends on base, data/meta, text/stringmap,
 * Jansson. */
#include "format/hf_config.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/place.h"
#include "data/meta.h"
#include "text/stringmap.h"

#define CONFIG_LABELS (1 << 16)
#define CONFIG_LIMIT  ((size_t)4 << 20) /* maximum bytes; labels make it larger than 10 kB */

static Err parse_config(HfConfig *hf, const Str *text, size_t flags) {
  json_error_t error;
  TRY(jsondoc_check(str_text(text), text->len, hf->path));
  hf->root = json_loadb(str_text(text), text->len, flags, &error);
  if (!hf->root)
    return err_set(ERR_WORK, "%s:%d: not JSON: %s; copy the model again", hf->path, error.line,
                   error.text);
  if (json_is_object(hf->root)) return ERR_OK;
  hf_close(hf);
  return err_set(ERR_WORK, "%s is not a JSON object; copy the model again", hf->path);
}

Err hf_open_file(HfConfig *hf, const char *dir, const char *name, size_t limit, bool reals) {
  Str text = {0};
  hf->root = NULL;
  TRY(file_join(hf->path, dir, name));
  Err err = place_read_all(hf->path, limit, &text);
  if (!err) err = parse_config(hf, &text, reals ? JSON_DECODE_INT_AS_REAL : 0);
  str_free(&text);
  return err;
}

Err hf_open(HfConfig *hf, const char *dir) {
  hf->root = NULL;
  TRY(place_check(dir));
  TRY(file_join(hf->path, dir, "config.json"));
  if (!place_exists(hf->path))
    return err_set(ERR_WORK,
                   "%s is not a model of Hugging Face: it has no config.json; pass the "
                   "directory that save_pretrained wrote or that was downloaded",
                   dir);
  return hf_open_file(hf, dir, "config.json", CONFIG_LIMIT, /*reals=*/false);
}

void hf_close(HfConfig *hf) {
  json_decref(hf->root);
  hf->root = NULL;
}

/* Returns the value at `key`, or NULL if it is missing or null. */
static const json_t *get_value(const HfConfig *hf, const char *key) {
  const json_t *value = json_object_get(hf->root, key);
  return json_is_null(value) ? NULL : value;
}

Err hf_text(const HfConfig *hf, const char *key, const char *fallback, const char **text) {
  const json_t *j = get_value(hf, key);
  if (j && !json_is_string(j))
    return err_set(ERR_WORK, "%s: \"%s\" must be a string", hf->path, key);
  *text = j ? json_string_value(j) : fallback;
  return ERR_OK;
}

Err hf_int(const HfConfig *hf, const char *key, int min, int max, int fallback, int *value) {
  const json_t *j = get_value(hf, key);
  json_int_t n = j ? json_integer_value(j) : fallback;
  if (!j && fallback < min)
    return err_set(ERR_WORK, "%s lacks \"%s\"; copy the model again", hf->path, key);
  if ((j && !json_is_integer(j)) || n < min || n > max)
    return err_set(ERR_WORK, "%s: \"%s\" must be an integer from %d to %d", hf->path, key, min,
                   max);
  *value = (int)n;
  return ERR_OK;
}

Err hf_real(const HfConfig *hf, const char *key, double min, double max, double fallback,
            float *value) {
  const json_t *j = get_value(hf, key);
  double x = j ? json_number_value(j) : fallback;
  if ((j && !json_is_number(j)) || !(x >= min && x <= max))
    return err_set(ERR_WORK, "%s: \"%s\" must be a number from %g to %g", hf->path, key, min,
                   max);
  *value = (float)x;
  return ERR_OK;
}

Err hf_flag(const HfConfig *hf, const char *key, bool fallback, bool *value) {
  const json_t *j = get_value(hf, key);
  if (j && !json_is_boolean(j))
    return err_set(ERR_WORK, "%s: \"%s\" must be true or false", hf->path, key);
  *value = j ? json_is_true(j) : fallback;
  return ERR_OK;
}

Err hf_read_max_length(const char *dir, int *length) {
  static const char key[] = "model_max_length";
  HfConfig hf;
  char path[FILE_PATH_MAX];
  *length = INT_MAX;
  TRY(file_join(path, dir, "tokenizer_config.json"));
  if (!place_exists(path)) return ERR_OK;
  TRY(hf_open_file(&hf, dir, "tokenizer_config.json", CONFIG_LIMIT, /*reals=*/true));
  const json_t *j = get_value(&hf, key);
  bool is_number = !j || json_is_number(j);
  double found = json_number_value(j);
  hf_close(&hf);
  if (!is_number) return err_set(ERR_WORK, "%s: \"%s\" must be a number", path, key);
  if (found >= 4 && found < INT_MAX)
    *length = (int)found; /* room for special tokens and one more */
  return ERR_OK;
}

Err hf_architecture(const HfConfig *hf, const char **name) {
  const json_t *list = get_value(hf, "architectures"), *first = json_array_get(list, 0);
  *name = json_string_value(first);
  if (!list || (json_is_array(list) && (!first || *name))) return ERR_OK;
  return err_set(ERR_WORK, "%s: \"architectures\" must be an array of strings", hf->path);
}

Err hf_count_labels(const HfConfig *hf, int *labels) {
  const json_t *names = get_value(hf, "id2label");
  if (!names) return hf_int(hf, "num_labels", 1, CONFIG_LABELS, 2, labels);
  size_t n = json_object_size(names);
  if (n < 1 || n > CONFIG_LABELS)
    return err_set(ERR_WORK, "%s: \"id2label\" must be an object with 1 to %d names", hf->path,
                   CONFIG_LABELS);
  *labels = (int)n;
  return ERR_OK;
}

/* Returns why the name cannot be a line of labels.txt; NULL: it can. */
static const char *find_label_fault(const char *name) {
  if (!name || !*name) return "has no name";
  if (strlen(name) >= LABEL_NAME_SIZE) return "has a name longer than 255 bytes";
  for (const char *p = name; *p; p++) {
    if ((unsigned char)*p < ' ' || *p == 127) return "has a name with control characters";
  }
  return NULL;
}

/* Checks the name of label i and adds it to `seen`. */
static Err check_label(const HfConfig *hf, int i, const char *name, StringMap *seen) {
  const char *fault = find_label_fault(name);
  uint32_t number;
  if (fault)
    return err_set(ERR_WORK, "%s: label %d of \"id2label\" %s; correct config.json", hf->path,
                   i, fault);
  TRY(stringmap_add(seen, name, strlen(name), &number));
  if ((int)number == i) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s: labels %u and %d of \"id2label\" have the same name, '%.60s'; give "
                 "them different names in config.json",
                 hf->path, number, i, name);
}

Err hf_print_labels(const HfConfig *hf, int labels, Str *out) {
  const json_t *names = get_value(hf, "id2label");
  StringMap seen = {0};
  Err err = ERR_OK;
  for (int i = 0; i < labels && !err; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    const json_t *j = json_object_get(names, key);
    const char *name = json_string_value(j);
    if (j && !name)
      err = err_set(ERR_WORK, "%s: label %d of \"id2label\" must be a string", hf->path, i);
    else if (names)
      err = check_label(hf, i, name, &seen);
    str_addf(out, "%s%s\n", name ? "" : "LABEL_", name ? name : key);
  }
  stringmap_free(&seen);
  return err ? err : str_check(out);
}
