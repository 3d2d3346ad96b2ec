/* Reads files of torch.save. An archive has the members NAME/data.pkl, NAME/byteorder (since
 * PyTorch 2.1) and NAME/data/KEY for each storage. The older form is a sequence of pickles (magic
 * number, version, facts about the machine, state dict, list of the keys) and, for each key, the
 * number of elements (8 bytes) and the elements. Depends on zip, pickle. */
#include "format/torch_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The first two pickles of the older form: magic number and version 1001. */
static const uint8_t old_magic[] = {0x80, 2,    0x8a, 10,  'l',  0xfc, 0x9c,
                                    'F',  0xf9, ' ',  'j', 0xa8, 'P',  0x19,
                                    '.',  0x80, 2,    'M', 0xe9, 3,    '.'};

static const char *path_of(const TorchFile *f) {
  return f->zip.map.path ? f->zip.map.path : f->map.path;
}

static Err report_damage(const TorchFile *f, const char *what, const char *name) {
  return err_set(ERR_WORK, "%s is not a usable PyTorch file: %s%s; copy the file again",
                 path_of(f), what, name);
}

/* Finds the only member NAME/data.pkl. */
static Err find_pickle(const TorchFile *f, const ZipMember **pickle) {
  *pickle = NULL;
  for (size_t i = 0; i < f->zip.members; i++) {
    const char *name = f->zip.member[i].name, *slash = strchr(name, '/');
    if (!slash || strcmp(slash, "/data.pkl") != 0) continue;
    if (*pickle) return report_damage(f, "it has two members data.pkl", "");
    *pickle = &f->zip.member[i];
  }
  if (!*pickle) return report_damage(f, "the archive has no member data.pkl", "");
  if ((*pickle)->size > PICKLE_LIMIT) return report_damage(f, "its data.pkl is too large", "");
  return ERR_OK;
}

static const ZipMember *find_member(const TorchFile *f, const ZipMember *pickle,
                                    const char *folder, const char *name, Str *path) {
  str_clear(path);
  str_addn(path, pickle->name, (size_t)(strchr(pickle->name, '/') - pickle->name) + 1);
  str_add(path, folder);
  str_add(path, name);
  return path->failed ? NULL : zip_find(&f->zip, path->s);
}

static Err check_byte_order(const TorchFile *f, const ZipMember *pickle, Str *path) {
  const ZipMember *order = find_member(f, pickle, "", "byteorder", path);
  TRY(str_check(path));
  if (!order || (order->size == 6 && memcmp(order->bytes, "little", 6) == 0)) return ERR_OK;
  return report_damage(f, "its numbers are not little-endian", "");
}

static Err find_storage(TorchFile *f, const ZipMember *pickle, size_t i, Str *path) {
  const PickleTensor *t = &f->state.tensor[i];
  const ZipMember *m = find_member(f, pickle, "data/", t->storage, path);
  TRY(str_check(path));
  if (!m) return report_damage(f, "it lacks the storage of ", t->name);
  if (m->size != t->storage_elements * safetensors_bytes(t->type))
    return report_damage(f, "a storage does not have the size of its elements: that of ",
                         t->name);
  f->storage[i] = m->bytes;
  return ERR_OK;
}

static Err find_storages(TorchFile *f, const ZipMember *pickle) {
  Str path = {0};
  Err err = check_byte_order(f, pickle, &path);
  for (size_t i = 0; i < f->state.tensors && !err; i++) err = find_storage(f, pickle, i, &path);
  str_free(&path);
  return err;
}

static Err read_archive(TorchFile *f) {
  const ZipMember *pickle;
  size_t used;
  TRY(find_pickle(f, &pickle));
  for (size_t i = 0; i < f->zip.members; i++) TRY(zip_verify(&f->zip, &f->zip.member[i]));
  TRY(pickle_read_state(&f->state, pickle->bytes, (size_t)pickle->size, &used, path_of(f)));
  TRY(mem_alloc(&f->storage, f->state.tensors, sizeof *f->storage));
  return find_storages(f, pickle);
}

/* A tensor of the older form, for finding the tensors of a storage. */
typedef struct {
  const char *key;
  size_t index;
} StorageUse;

static int compare_uses(const void *a, const void *b) {
  const StorageUse *x = a, *y = b;
  return strcmp(x->key, y->key);
}

/* Returns the first use of a storage in a sorted list, or n. */
static size_t find_use(const StorageUse *use, size_t n, const char *key) {
  size_t low = 0, high = n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(use[middle].key, key) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Assigns the storage at *at to the tensors that use it, and advances *at. */
static Err assign_storage(TorchFile *f, const StorageUse *use, const char *key, size_t *at) {
  size_t n = f->state.tensors, k = find_use(use, n, key), left = f->map.size - *at;
  uint64_t elements;
  if (k == n || strcmp(use[k].key, key) != 0)
    return report_damage(f, "no tensor uses storage ", key);
  const PickleTensor *t = &f->state.tensor[use[k].index];
  if (left < 8) return report_damage(f, "it is truncated before storage ", key);
  memcpy(&elements, f->map.bytes + *at, 8);
  uint64_t bytes = t->storage_elements * safetensors_bytes(t->type);
  if (elements != t->storage_elements || bytes > left - 8)
    return report_damage(f, "it is truncated in storage ", key);
  for (; k < n && strcmp(use[k].key, key) == 0; k++) {
    const PickleTensor *other = &f->state.tensor[use[k].index];
    if (other->type != t->type || other->storage_elements != t->storage_elements)
      return report_damage(f, "two tensors disagree about storage ", key);
    f->storage[use[k].index] = f->map.bytes + *at + 8;
  }
  *at += 8 + (size_t)bytes;
  return ERR_OK;
}

static Err assign_storages(TorchFile *f, size_t at) {
  StorageUse *use;
  PickleTexts keys = {0};
  size_t used;
  TRY(mem_alloc(&use, f->state.tensors, sizeof *use));
  for (size_t i = 0; i < f->state.tensors; i++)
    use[i] = (StorageUse){f->state.tensor[i].storage, i};
  qsort(use, f->state.tensors, sizeof *use, compare_uses);
  Err err = pickle_read_texts(&keys, f->map.bytes + at, f->map.size - at, &used, f->map.path);
  at += used;
  for (size_t i = 0; i < keys.count && !err; i++)
    err = assign_storage(f, use, keys.text[i], &at);
  for (size_t i = 0; i < f->state.tensors && !err; i++) {
    if (!f->storage[i])
      err = report_damage(f, "it lacks the storage of ", f->state.tensor[i].name);
  }
  pickle_free_texts(&keys);
  mem_free(use);
  return err;
}

static Err read_older(TorchFile *f, const char *path) {
  TRY(place_pin_file(&f->map, path));
  if (f->map.size < sizeof old_magic || memcmp(f->map.bytes, old_magic, sizeof old_magic) != 0)
    return report_damage(f, "it is no archive and does not begin like a file of torch.save",
                         "");
  size_t at = sizeof old_magic, used;
  TRY(pickle_skip(f->map.bytes + at, f->map.size - at, &used, path));
  at += used;
  TRY(pickle_read_state(&f->state, f->map.bytes + at, f->map.size - at, &used, path));
  at += used;
  TRY(mem_alloc(&f->storage, f->state.tensors, sizeof *f->storage));
  return assign_storages(f, at);
}

/* Returns true if the file begins with a pickle instead of a zip archive. */
static Err detect_older(const char *path, bool *is_older) {
  PlaceFile file;
  uint8_t first = 0;
  TRY(place_open(&file, path));
  Err err = file.size ? place_read(&file, 0, &first, 1) : ERR_OK;
  *is_older = first == old_magic[0];
  place_close(&file);
  return err;
}

Err torch_open(TorchFile *f, const char *path) {
  bool is_older;
  *f = (TorchFile){0};
  TRY(detect_older(path, &is_older));
  Err err = is_older ? read_older(f, path) : zip_open(&f->zip, path);
  if (!err && !is_older) err = read_archive(f);
  if (err) torch_close(f);
  return err;
}

void torch_close(TorchFile *f) {
  mem_free(f->storage);
  pickle_free_state(&f->state);
  zip_close(&f->zip);
  place_unpin(&f->map);
  *f = (TorchFile){0};
}

static bool is_contiguous(const PickleTensor *t) {
  uint64_t expected = 1;
  for (int i = t->dimensions; i-- > 0;) {
    if (t->shape[i] != 1 && t->stride[i] != expected) return false;
    expected *= t->shape[i];
  }
  return true;
}

/* Copies a view with any strides, element by element; `index` counts like an odometer. */
static void read_strided(const PickleTensor *t, const uint8_t *from, float *out,
                         uint64_t count) {
  uint64_t index[SAFE_DIMENSIONS] = {0}, bytes = safetensors_bytes(t->type);
  for (uint64_t i = 0; i < count; i++) {
    uint64_t at = t->offset;
    for (int k = 0; k < t->dimensions; k++) at += index[k] * t->stride[k];
    safetensors_to_float(t->type, from + at * bytes, out + i, 1);
    for (int k = t->dimensions; k-- > 0 && ++index[k] == t->shape[k];) index[k] = 0;
  }
}

Err torch_read(const TorchFile *f, size_t i, float *out, uint64_t count) {
  const PickleTensor *t = &f->state.tensor[i];
  uint64_t elements = 1;
  for (int k = 0; k < t->dimensions; k++) elements *= t->shape[k];
  if (elements != count)
    return err_set(ERR_WORK,
                   "%s: '%s' has %llu elements, expected %llu; use the weights of a model with "
                   "this configuration",
                   path_of(f), t->name, (unsigned long long)elements,
                   (unsigned long long)count);
  if (!safetensors_to_float(t->type, NULL, NULL, 0))
    return err_set(ERR_WORK,
                   "%s: '%s' is not of a floating-point type; supported are float32, float16, "
                   "bfloat16 and float64",
                   path_of(f), t->name);
  const uint8_t *from = f->storage[i];
  if (is_contiguous(t))
    safetensors_to_float(t->type, from + t->offset * safetensors_bytes(t->type), out, count);
  else
    read_strided(t, from, out, count);
  return ERR_OK;
}
