/* Opens the files of weights of a directory and lists their tensors. Depends on safetensors,
 * torch_file, Jansson. */
#include "format/tensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "format/torch_file.h"

#define INDEX_LIMIT ((size_t)16 << 20) /* maximum bytes of an index */
#define FILES_MAX   1024               /* maximum number of files that an index names */

/* One file of weights. Either `safe` or `torch` is open. */
struct TensorFile {
  char *name; /* file name without the directory */
  bool is_torch;
  SafeFile safe;
  TorchFile torch;
};

static const char safe_name[] = "model.safetensors", torch_name[] = "pytorch_model.bin";

/* Appends an entry for each tensor of a file. */
static Err list_tensors(TensorSource *s, size_t file) {
  const TensorFile *f = &s->file[file];
  size_t n = f->is_torch ? f->torch.state.tensors : f->safe.tensors;
  TRY(mem_grow(&s->entry, &s->cap, s->entries + n, sizeof *s->entry));
  for (size_t i = 0; i < n; i++) {
    TensorEntry *e = &s->entry[s->entries++];
    *e = (TensorEntry){.file = file, .index = i};
    if (f->is_torch) {
      const PickleTensor *t = &f->torch.state.tensor[i];
      e->name = t->name;
      e->path = f->torch.zip.map.path ? f->torch.zip.map.path : f->torch.map.path;
      e->type = t->type;
      e->dimensions = t->dimensions;
      memcpy(e->shape, t->shape, sizeof e->shape);
    } else {
      const SafeTensor *t = &f->safe.tensor[i];
      e->name = t->name;
      e->path = f->safe.map.path;
      e->type = t->type;
      e->dimensions = t->dimensions;
      memcpy(e->shape, t->shape, sizeof e->shape);
    }
  }
  return ERR_OK;
}

/* Opens DIR/NAME as the next file of s->file, which has room for it. */
static Err open_file(TensorSource *s, const char *dir, const char *name, bool is_torch) {
  char path[FILE_PATH_MAX];
  TensorFile *f = &s->file[s->files];
  TRY(file_join(path, dir, name));
  TRY(mem_dup(&f->name, name, strlen(name)));
  f->is_torch = is_torch;
  s->files++; /* from here on tensors_close closes it */
  TRY(is_torch ? torch_open(&f->torch, path) : safetensors_open(&f->safe, path));
  return list_tensors(s, s->files - 1);
}

static bool is_plain_name(const char *name) {
  return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static bool is_open(const TensorSource *s, const char *name) {
  for (size_t i = 0; i < s->files; i++) {
    if (strcmp(s->file[i].name, name) == 0) return true;
  }
  return false;
}

/* Opens each file that the values of "weight_map" name. */
static Err open_mapped(TensorSource *s, json_t *map, const char *dir, const char *index,
                       bool is_torch) {
  const char *tensor;
  json_t *value;
  if (!json_is_object(map) || json_object_size(map) == 0)
    return err_set(ERR_WORK, "%s has no \"weight_map\"; copy the model again", index);
  json_object_foreach(map, tensor, value) {
    const char *name = json_string_value(value);
    if (!name || !is_plain_name(name))
      return err_set(ERR_WORK, "%s: the file of '%s' is not a file name; copy the model again",
                     index, tensor);
    if (is_open(s, name)) continue;
    if (s->files == FILES_MAX)
      return err_set(ERR_WORK, "%s names more than %d files; copy the model again", index,
                     FILES_MAX);
    TRY(open_file(s, dir, name, is_torch));
  }
  return ERR_OK;
}

static int compare_entries(const void *a, const void *b) {
  const TensorEntry *x = a, *y = b;
  return strcmp(x->name, y->name);
}

static Err sort_entries(TensorSource *s) {
  if (s->entries) qsort(s->entry, s->entries, sizeof *s->entry, compare_entries);
  for (size_t i = 1; i < s->entries; i++) {
    if (strcmp(s->entry[i - 1].name, s->entry[i].name) == 0)
      return err_set(ERR_WORK, "%s and %s both have a tensor '%s'; copy the model again",
                     s->entry[i - 1].path, s->entry[i].path, s->entry[i].name);
  }
  return ERR_OK;
}

/* Checks that each tensor of the index is in the file that the index names. */
static Err check_mapped(const TensorSource *s, json_t *map, const char *index) {
  const char *tensor;
  json_t *value;
  json_object_foreach(map, tensor, value) {
    const TensorEntry *e = tensors_find(s, tensor);
    if (!e || strcmp(s->file[e->file].name, json_string_value(value)) != 0)
      return err_set(ERR_WORK, "%s: %s has no tensor '%s'; copy the model again", index,
                     json_string_value(value), tensor);
  }
  return ERR_OK;
}

static Err open_index(TensorSource *s, const char *dir, const char *index, bool is_torch) {
  Str text = {0};
  json_error_t error;
  json_t *root = NULL;
  Err err;
  TRY_DONE(place_read_all(index, INDEX_LIMIT, &text));
  TRY_DONE(jsondoc_check(str_text(&text), text.len, index));
  root = json_loadb(str_text(&text), text.len, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    TRY_DONE(err_set(ERR_WORK, "%s:%d: not JSON: %s; copy the model again", index, error.line,
                     error.text));
  json_t *map = json_object_get(root, "weight_map");
  TRY_DONE(mem_alloc(&s->file, FILES_MAX, sizeof *s->file));
  TRY_DONE(open_mapped(s, map, dir, index, is_torch));
  TRY_DONE(sort_entries(s));
  err = check_mapped(s, map, index);
done:
  json_decref(root);
  str_free(&text);
  return err;
}

static Err open_single(TensorSource *s, const char *dir, const char *name, bool is_torch) {
  TRY(mem_alloc(&s->file, 1, sizeof *s->file));
  TRY(open_file(s, dir, name, is_torch));
  return sort_entries(s);
}

static Err find_and_open(TensorSource *s, const char *dir) {
  TRY(place_check(dir));
  for (int kind = 0; kind < 2; kind++) {
    char path[FILE_PATH_MAX], index[FILE_PATH_MAX], index_name[64];
    const char *name = kind ? torch_name : safe_name;
    snprintf(index_name, sizeof index_name, "%s.index.json", name);
    TRY(file_join(path, dir, name));
    TRY(file_join(index, dir, index_name));
    if (place_exists(path)) return open_single(s, dir, name, /*is_torch=*/kind == 1);
    if (place_exists(index)) return open_index(s, dir, index, /*is_torch=*/kind == 1);
  }
  return err_set(ERR_WORK,
                 "%s has no weights: neither %s nor %s, nor the index of several such files; "
                 "pass the directory that save_pretrained wrote",
                 dir, safe_name, torch_name);
}

Err tensors_open(TensorSource *s, const char *dir) {
  *s = (TensorSource){0};
  Err err = find_and_open(s, dir);
  if (err) tensors_close(s);
  return err;
}

void tensors_close(TensorSource *s) {
  for (size_t i = 0; i < s->files; i++) {
    mem_free(s->file[i].name);
    if (s->file[i].is_torch)
      torch_close(&s->file[i].torch);
    else
      safetensors_close(&s->file[i].safe);
  }
  mem_free(s->file);
  mem_free(s->entry);
  *s = (TensorSource){0};
}

const TensorEntry *tensors_find(const TensorSource *s, const char *name) {
  TensorEntry key = {.name = name};
  if (!s->entries) return NULL;
  return bsearch(&key, s->entry, s->entries, sizeof key, compare_entries);
}

Err tensors_read(const TensorSource *s, const TensorEntry *e, float *out, uint64_t count) {
  const TensorFile *f = &s->file[e->file];
  if (f->is_torch) return torch_read(&f->torch, e->index, out, count);
  return safetensors_read(&f->safe, &f->safe.tensor[e->index], out, count);
}
