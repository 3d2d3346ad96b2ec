/* Reads and writes safetensors files. Depends on base, Jansson. */
#include "format/safetensors.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/place.h"

/* Maximum bytes of a header, enough for 100,000 tensors; the format allows 100 MB. */
#define HEADER_LIMIT ((uint64_t)16 << 20)

static const struct {
  const char *name;
  SafeType type;
  uint64_t bytes;
} types[] = {{"F32", SAFE_F32, 4}, {"F16", SAFE_F16, 2}, {"BF16", SAFE_BF16, 2},
             {"F64", SAFE_F64, 8}, {"I64", SAFE_I64, 8}, {"I32", SAFE_I32, 4},
             {"U8", SAFE_U8, 1}};
#define TYPES (sizeof types / sizeof *types)

static Err report_damage(const SafeFile *f, const char *what, uint64_t offset) {
  return err_set(ERR_WORK,
                 "%s is not a usable safetensors file: %s (byte %llu); copy the file again",
                 f->map.path, what, (unsigned long long)offset);
}

/* Checks that the product of shape and element size equals the number of bytes between the
 * offsets. */
static Err check_size(const SafeFile *f, const SafeTensor *t, uint64_t element) {
  uint64_t bytes = element;
  for (int i = 0; i < t->dimensions; i++) {
    if (t->shape[i] && bytes > UINT64_MAX / t->shape[i])
      return report_damage(f, "a shape is too large", 8);
    bytes *= t->shape[i];
  }
  if (element && bytes != t->end - t->begin)
    return report_damage(f, "a shape does not match its bytes", 8);
  return ERR_OK;
}

static Err read_tensor(SafeFile *f, const char *name, const json_t *j, uint64_t data_bytes) {
  SafeTensor t = {.type = SAFE_OTHER};
  const char *type = json_string_value(json_object_get(j, "dtype"));
  const json_t *shape = json_object_get(j, "shape"),
               *offsets = json_object_get(j, "data_offsets");
  uint64_t element = 0;
  if (!type || !json_is_array(shape) || json_array_size(shape) > SAFE_DIMENSIONS ||
      json_array_size(offsets) != 2) {
    return report_damage(f, "a tensor lacks its dtype, shape or offsets", 8);
  }
  for (size_t i = 0; i < TYPES; i++) {
    if (strcmp(types[i].name, type) != 0) continue;
    t.type = types[i].type;
    element = types[i].bytes;
  }
  t.dimensions = (int)json_array_size(shape);
  for (int i = 0; i < t.dimensions; i++) {
    const json_t *n = json_array_get(shape, (size_t)i);
    if (!json_is_integer(n) || json_integer_value(n) < 0)
      return report_damage(f, "a dimension is not a non-negative integer", 8);
    t.shape[i] = (uint64_t)json_integer_value(n);
  }
  for (size_t i = 0; i < 2; i++) {
    const json_t *n = json_array_get(offsets, i);
    if (!json_is_integer(n) || json_integer_value(n) < 0)
      return report_damage(f, "an offset is not a non-negative integer", 8);
    *(i ? &t.end : &t.begin) = (uint64_t)json_integer_value(n);
  }
  if (t.begin > t.end || t.end > data_bytes)
    return report_damage(f, "a tensor lies outside the file", 8);
  TRY(check_size(f, &t, element));
  TRY(mem_grow(&f->tensor, &f->cap, f->tensors + 1, sizeof *f->tensor));
  TRY(mem_dup(&t.name, name, strlen(name)));
  f->tensor[f->tensors++] = t;
  return ERR_OK;
}

static Err read_metadata(SafeFile *f, const json_t *j) {
  char *text = json_dumps(j, JSON_COMPACT);
  if (!text) return report_damage(f, "unreadable metadata", 8);
  Err err = mem_dup(&f->metadata, text, strlen(text));
  free(text); /* Jansson allocated the text with malloc. */
  return err;
}

static int compare_offsets(const void *a, const void *b) {
  const SafeTensor *x = *(const SafeTensor *const *)a, *y = *(const SafeTensor *const *)b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

static Err report_misplaced(const SafeFile *f, const char *name, const char *what,
                            uint64_t at) {
  return err_set(
      ERR_WORK, "%s is not a usable safetensors file: '%s' %s (byte %llu); copy the file again",
      f->map.path, name, what, (unsigned long long)((uint64_t)(f->data - f->map.bytes) + at));
}

/* Checks that the tensors fill the file without gaps or overlaps. */
static Err check_places(const SafeFile *f, uint64_t data_bytes) {
  const SafeTensor **sorted;
  uint64_t end = 0;
  TRY(mem_alloc(&sorted, f->tensors, sizeof *sorted));
  for (size_t i = 0; i < f->tensors; i++) sorted[i] = &f->tensor[i];
  if (f->tensors) qsort(sorted, f->tensors, sizeof *sorted, compare_offsets);
  Err err = ERR_OK;
  for (size_t i = 0; i < f->tensors && !err; i++) {
    const SafeTensor *t = sorted[i];
    if (t->begin != end)
      err = report_misplaced(
          f, t->name, t->begin < end ? "overlaps another tensor" : "follows unused bytes",
          t->begin);
    end = t->end;
  }
  mem_free(sorted);
  if (!err && end != data_bytes)
    err = report_damage(f, "bytes follow the last tensor",
                        (uint64_t)(f->data - f->map.bytes) + end);
  return err;
}

static Err read_header(SafeFile *f) {
  uint64_t len;
  if (f->map.size < 8) return report_damage(f, "it is too short", 0);
  memcpy(&len, f->map.bytes, 8);
  if (len > f->map.size - 8) return report_damage(f, "its header is longer than the file", 0);
  if (len > HEADER_LIMIT) return report_damage(f, "its header is longer than 16 MB", 0);
  f->data = f->map.bytes + 8 + len;
  json_error_t error;
  TRY(jsondoc_check((const char *)f->map.bytes + 8, (size_t)len, f->map.path));
  json_t *root =
      json_loadb((const char *)f->map.bytes + 8, (size_t)len, JSON_REJECT_DUPLICATES, &error);
  if (!json_is_object(root)) {
    json_decref(root);
    return report_damage(f, "its header is not a JSON object",
                         8 + (uint64_t)(error.position > 0 ? error.position : 0));
  }
  const char *name;
  json_t *value;
  Err err = ERR_OK;
  json_object_foreach(root, name, value) {
    bool metadata = strcmp(name, "__metadata__") == 0;
    err =
        metadata ? read_metadata(f, value) : read_tensor(f, name, value, f->map.size - 8 - len);
    if (err) break;
  }
  json_decref(root);
  return err ? err : check_places(f, f->map.size - 8 - len);
}

Err safetensors_open(SafeFile *f, const char *path) {
  *f = (SafeFile){0};
  TRY(place_pin_file(&f->map, path));
  Err err = read_header(f);
  if (err) safetensors_close(f);
  return err;
}

void safetensors_close(SafeFile *f) {
  for (size_t i = 0; i < f->tensors; i++) mem_free(f->tensor[i].name);
  mem_free(f->tensor);
  mem_free(f->metadata);
  place_unpin(&f->map);
  *f = (SafeFile){0};
}

const SafeTensor *safetensors_find(const SafeFile *f, const char *name) {
  for (size_t i = 0; i < f->tensors; i++) {
    if (strcmp(f->tensor[i].name, name) == 0) return &f->tensor[i];
  }
  return NULL;
}

static float from_half(uint16_t h) {
  int exponent = h >> 10 & 31;
  float fraction = (float)(h & 1023), value;
  if (exponent == 31)
    value = fraction != 0 ? NAN : INFINITY;
  else if (exponent == 0)
    value = ldexpf(fraction, -24);
  else
    value = ldexpf(fraction + 1024, exponent - 25);
  return h >> 15 ? -value : value;
}

static float from_bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

uint64_t safetensors_bytes(SafeType type) {
  for (size_t i = 0; i < TYPES; i++) {
    if (types[i].type == type) return types[i].bytes;
  }
  return 0;
}

static void from_doubles(const uint8_t *from, float *out, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    double wide;
    memcpy(&wide, from + 8 * i, 8);
    out[i] = (float)wide;
  }
}

bool safetensors_to_float(SafeType type, const uint8_t *from, float *out, uint64_t count) {
  if (type == SAFE_F32 && count) memcpy(out, from, (size_t)count * 4);
  if (type == SAFE_F64) from_doubles(from, out, count);
  for (uint64_t i = 0; i < count && (type == SAFE_F16 || type == SAFE_BF16); i++) {
    uint16_t half;
    memcpy(&half, from + 2 * i, 2);
    out[i] = type == SAFE_F16 ? from_half(half) : from_bf16(half);
  }
  return type == SAFE_F32 || type == SAFE_F64 || type == SAFE_F16 || type == SAFE_BF16;
}

Err safetensors_read(const SafeFile *f, const SafeTensor *t, float *out, uint64_t count) {
  uint64_t elements = 1;
  for (int i = 0; i < t->dimensions; i++) elements *= t->shape[i];
  if (elements != count) {
    return err_set(ERR_WORK,
                   "%s: '%s' has %llu elements, expected %llu; use the weights of a model with "
                   "this configuration",
                   f->map.path, t->name, (unsigned long long)elements,
                   (unsigned long long)count);
  }
  if (safetensors_to_float(t->type, f->data + t->begin, out, count) || !count) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s: '%s' is not of a floating-point type; supported are F32, F16, BF16 and F64",
      f->map.path, t->name);
}

static json_t *print_entry(const SafeEntry *e, uint64_t *offset) {
  json_t *shape = json_array();
  uint64_t bytes = types[e->type].bytes;
  for (int i = 0; i < e->dimensions; i++) {
    json_array_append_new(shape, json_integer((json_int_t)e->shape[i]));
    bytes *= e->shape[i];
  }
  json_t *j = json_pack("{s:s, s:o, s:[I, I]}", "dtype", types[e->type].name, "shape", shape,
                        "data_offsets", (json_int_t)*offset, (json_int_t)(*offset + bytes));
  *offset += bytes;
  return j;
}

Err safetensors_begin(FileWriter *w, const SafeEntry *entry, size_t entries,
                      const char *const *metadata) {
  json_t *root = json_object();
  uint64_t offset = 0;
  if (metadata) {
    json_t *m = json_object();
    for (; *metadata; metadata += 2)
      json_object_set_new(m, metadata[0], json_string(metadata[1]));
    json_object_set_new(root, "__metadata__", m);
  }
  for (size_t i = 0; i < entries; i++)
    json_object_set_new(root, entry[i].name, print_entry(&entry[i], &offset));
  char *text = json_dumps(root, JSON_COMPACT);
  json_decref(root);
  if (!text)
    return err_set(ERR_WORK,
                   "cannot write %s: a tensor name or metadata text is not UTF-8; rename it",
                   w->path);
  uint64_t len = strlen(text);
  /* The header is padded so that the tensor data begins at a multiple of 8. */
  uint64_t padded = (len + 7) & ~(uint64_t)7;
  Err err = file_put(w, &padded, 8);
  if (!err) err = file_put(w, text, (size_t)len);
  if (!err) err = file_put(w, "        ", (size_t)(padded - len));
  free(text); /* Jansson allocated the text with malloc. */
  return err;
}
