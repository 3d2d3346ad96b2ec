/* Reads config.json of Hugging Face transformers. Depends on base, Jansson. */
#include "format/hf_config.h"

#include <jansson.h>

#include "base/jsondoc.h"
#include "base/place.h"

#define CONFIG_LIMIT ((size_t)4 << 20) /* maximum bytes; labels make it larger than 10 kB */

static Err parse_config(HfConfig *hf, const Str *text) {
  json_error_t error;
  TRY(jsondoc_check(str_text(text), text->len, hf->path));
  hf->root = json_loadb(str_text(text), text->len, 0, &error);
  if (!hf->root)
    return err_set(ERR_WORK, "%s:%d: not JSON: %s; copy the model again", hf->path, error.line,
                   error.text);
  if (json_is_object(hf->root)) return ERR_OK;
  hf_close(hf);
  return err_set(ERR_WORK, "%s is not a JSON object; copy the model again", hf->path);
}

Err hf_open(HfConfig *hf, const char *dir) {
  Str text = {0};
  hf->root = NULL;
  TRY(place_check(dir));
  TRY(file_join(hf->path, dir, "config.json"));
  if (!place_exists(hf->path))
    return err_set(ERR_WORK,
                   "%s is not a model of Hugging Face: it has no config.json; pass the "
                   "directory that save_pretrained wrote or that was downloaded",
                   dir);
  Err err = place_read_all(hf->path, CONFIG_LIMIT, &text);
  if (!err) err = parse_config(hf, &text);
  str_free(&text);
  return err;
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

const char *hf_text(const HfConfig *hf, const char *key, const char *fallback) {
  const char *text = json_string_value(get_value(hf, key));
  return text ? text : fallback;
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
