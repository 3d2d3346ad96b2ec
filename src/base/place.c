/* Selects the storage kind by the scheme of a path, checks ranges, counts pinned ranges. Depends
 * on err, str, mem, file, sha256. */
#include "base/place.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/place_internal.h"
#include "base/sha256.h"
#include "base/url.h"

#define KINDS_MAX  8
#define READ_BLOCK ((size_t)1 << 16)

static const PlaceKind *registered[KINDS_MAX];
static size_t kinds;
static _Atomic size_t pins;

void place_register(const PlaceKind *kind) {
  if (kinds < KINDS_MAX) registered[kinds++] = kind;
}

/* Returns the storage kind of a path, or NULL if its scheme is not known. */
static const PlaceKind *find_kind(const char *path) {
  const char *end = strstr(path, "://");
  size_t len = end ? (size_t)(end - path) : 0;
  if (!len || memchr(path, '/', len)) return &place_local;
  for (size_t i = 0; i < kinds; i++) {
    const char *scheme = registered[i]->scheme;
    if (strlen(scheme) == len && memcmp(scheme, path, len) == 0) return registered[i];
  }
  return NULL;
}

static Err refuse_scheme(const char *path) {
  char shown[URL_SHOWN_MAX];
  return err_set(ERR_WORK,
                 "cannot read %s: only local files are supported, not %.*s://; copy the files "
                 "to a local directory and give its path",
                 url_mask_path(path, shown), (int)(strstr(path, "://") - path), path);
}

Err place_check(const char *path) {
  return find_kind(path) ? ERR_OK : refuse_scheme(path);
}

/* Opens a file whose path is set. After an error the path is freed and set to NULL. */
static Err open_kind(PlaceFile *f, const PlaceKind *kind) {
  Err err = kind->open(f);
  if (err) {
    mem_free(f->path);
    *f = (PlaceFile){.fd = -1};
  } else {
    f->kind = kind;
  }
  return err;
}

Err place_open(PlaceFile *f, const char *path) {
  *f = (PlaceFile){.fd = -1};
  const PlaceKind *kind = find_kind(path);
  if (!kind) return refuse_scheme(path);
  TRY(mem_dup(&f->path, path, strlen(path)));
  return open_kind(f, kind);
}

void place_close(PlaceFile *f) {
  if (!f->kind) return;
  f->kind->close(f);
  mem_free(f->path);
  *f = (PlaceFile){.fd = -1};
}

static Err check_range(const PlaceFile *f, uint64_t offset, size_t len) {
  if (offset <= f->size && len <= f->size - offset) return ERR_OK;
  return err_set(ERR_WORK,
                 "cannot read %zu bytes of %s at byte %" PRIu64 ": it has %" PRIu64
                 " bytes; the file may be truncated: copy it again",
                 len, f->path, offset, f->size);
}

Err place_read(const PlaceFile *f, uint64_t offset, void *to, size_t len) {
  TRY(check_range(f, offset, len));
  return len ? f->kind->read(f, offset, to, len) : ERR_OK;
}

Err place_pin(const PlaceFile *f, uint64_t offset, size_t len, PlacePin *pin) {
  *pin = (PlacePin){.size = len, .offset = offset};
  TRY(check_range(f, offset, len));
  TRY(mem_dup(&pin->path, f->path, strlen(f->path)));
  Err err = ERR_OK;
  /* An empty range needs no memory, but its address must not be NULL. */
  pin->bytes = (const uint8_t *)"";
  if (len) err = f->kind->pin ? f->kind->pin(f, pin) : place_pin_copy(f, pin);
  if (err) {
    mem_free(pin->path);
    *pin = (PlacePin){0};
    return err;
  }
  pin->kind = f->kind;
  pins++;
  return ERR_OK;
}

Err place_pin_file(PlacePin *pin, const char *path) {
  PlaceFile f;
  *pin = (PlacePin){0};
  TRY(place_open(&f, path));
  Err err = ERR_OK;
  if (f.size > SIZE_MAX)
    err = err_set(ERR_WORK,
                  "%s is too large for this machine: %" PRIu64 " bytes; use a 64-bit machine",
                  path, f.size);
  if (!err) err = place_pin(&f, 0, (size_t)f.size, pin);
  place_close(&f);
  return err;
}

void place_unpin(PlacePin *pin) {
  if (!pin->kind) return;
  if (pin->size) {
    if (pin->kind->pin)
      pin->kind->unpin(pin);
    else
      place_unpin_copy(pin);
  }
  mem_free(pin->path);
  *pin = (PlacePin){0};
  pins--;
}

size_t place_pins(void) {
  return pins;
}

Err place_size(const char *path, uint64_t *bytes) {
  const PlaceKind *kind = find_kind(path);
  return kind ? kind->size(path, bytes) : refuse_scheme(path);
}

PlaceType place_type(const char *path) {
  const PlaceKind *kind = find_kind(path);
  return kind ? kind->type(path) : PLACE_MISSING;
}

bool place_exists(const char *path) {
  return place_type(path) != PLACE_MISSING;
}

Err place_list(const char *path, PlaceVisit visit, void *context) {
  const PlaceKind *kind = find_kind(path);
  if (!kind) return refuse_scheme(path);
  if (!kind->list) {
    char shown[URL_SHOWN_MAX];
    return err_set(ERR_WORK, "cannot list %s: %s:// has no listings; give the path of a file",
                   url_mask_path(path, shown), kind->scheme);
  }
  return kind->list(path, visit, context);
}

/* Calls `take` with the bytes of the file, block by block in order. */
static Err read_blocks(const PlaceFile *f, void *context,
                       Err (*take)(void *context, const uint8_t *bytes, size_t len)) {
  uint8_t block[READ_BLOCK];
  for (uint64_t at = 0; at < f->size; at += READ_BLOCK) {
    size_t len = f->size - at < READ_BLOCK ? (size_t)(f->size - at) : READ_BLOCK;
    TRY(place_read(f, at, block, len));
    TRY(take(context, block, len));
  }
  return ERR_OK;
}

static Err add_to_str(void *context, const uint8_t *bytes, size_t len) {
  str_addn(context, (const char *)bytes, len);
  return ERR_OK;
}

Err place_read_all(const char *path, size_t limit, Str *into) {
  PlaceFile f = {.fd = -1};
  const PlaceKind *kind = find_kind(path);
  if (!kind) return refuse_scheme(path);
  Err err = mem_dup(&f.path, path, strlen(path));
  if (err) {
    /* Callers test `failed` to distinguish exhausted memory from a damaged file. */
    into->failed = true;
    return err;
  }
  TRY(open_kind(&f, kind));
  if (f.size > limit)
    err = err_set(ERR_WORK,
                  "%s is larger than the %zu bytes allowed for such a file; check that it is "
                  "the right file",
                  path, limit);
  if (!err) err = read_blocks(&f, into, add_to_str);
  place_close(&f);
  return err ? err : str_check(into);
}

static Err add_to_sha256(void *context, const uint8_t *bytes, size_t len) {
  sha256_add(context, bytes, len);
  return ERR_OK;
}

Err place_sha256(const char *path, char hex[65]) {
  PlaceFile f;
  Sha256 sha;
  TRY(place_open(&f, path));
  sha256_begin(&sha);
  Err err = read_blocks(&f, &sha, add_to_sha256);
  if (!err) sha256_end(&sha, hex);
  place_close(&f);
  return err;
}

static Err add_to_file(void *context, const uint8_t *bytes, size_t len) {
  return file_put(context, bytes, len);
}

Err place_copy(const char *from, const char *to) {
  char beside[FILE_PATH_MAX];
  int n = snprintf(beside, sizeof beside, "%s.tmp.%ld", to, (long)getpid());
  if (n < 0 || n >= FILE_PATH_MAX)
    return err_set(ERR_WORK, "this path is too long; choose a shorter one: %s", to);
  PlaceFile f;
  FileWriter w = {.fd = -1};
  TRY(place_open(&f, from));
  Err err = file_create(&w, beside);
  if (!err) err = read_blocks(&f, &w, add_to_file);
  if (!err) err = file_finish(&w, NULL);
  file_abandon(&w);
  if (!err) err = file_rename(beside, to);
  if (err) unlink(beside);
  place_close(&f);
  return err;
}
