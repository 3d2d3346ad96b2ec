/* Prints and parses parts of dataset.json. Depends on base, meta.h, Jansson. */
#include "data/meta_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

const char *const split_name[SPLITS] = {"train", "valid", "test"};

Err meta_add_shard(MetaSplit *split, const MetaFile *file) {
  TRY(mem_grow(&split->shard, &split->shard_cap, split->shards + 1, sizeof *split->shard));
  split->shard[split->shards++] = *file;
  return ERR_OK;
}

Err meta_add_source(MetaSplit *split, const MetaSource *source) {
  TRY(mem_grow(&split->source, &split->source_cap, split->sources + 1, sizeof *split->source));
  split->source[split->sources++] = *source;
  return ERR_OK;
}

json_t *meta_print_file(const MetaFile *f) {
  json_t *j = json_pack("{s:s, s:I, s:s}", "file", f->name, "bytes", (json_int_t)f->bytes,
                        "sha256", f->sha256);
  if (f->pairs) json_object_set_new(j, "pairs", json_integer((json_int_t)f->pairs));
  return j;
}

json_t *meta_print_source(const MetaSource *s) {
  json_t *files = json_array();
  for (int side = 0; side < 2 && s->name[side][0]; side++) {
    json_array_append_new(files,
                          json_pack("{s:s, s:I, s:s}", "file", s->name[side], "bytes",
                                    (json_int_t)s->bytes[side], "sha256", s->sha256[side]));
  }
  return json_pack("{s:I, s:o}", "lines", (json_int_t)s->lines, "files", files);
}

void meta_refuse_key(MetaParse *p, const char *key, const char *expected) {
  if (!p->failed)
    err_set(ERR_WORK, "%s is damaged: '%s' should be %s; prepare the data set again", p->where,
            key, expected);
  p->failed = true;
}

const json_t *meta_get_object(MetaParse *p, const json_t *from, const char *key) {
  const json_t *j = json_object_get(from, key);
  if (!json_is_object(j)) meta_refuse_key(p, key, "an object");
  return j;
}

int64_t meta_get_int(MetaParse *p, const json_t *from, const char *key, int64_t min,
                     int64_t max) {
  const json_t *j = json_object_get(from, key);
  if (!json_is_integer(j) || json_integer_value(j) < min || json_integer_value(j) > max) {
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, min,
             max);
    meta_refuse_key(p, key, expected);
    return min;
  }
  return json_integer_value(j);
}

uint64_t meta_get_count(MetaParse *p, const json_t *from, const char *key) {
  return (uint64_t)meta_get_int(p, from, key, 0, INT64_MAX);
}

double meta_get_number(MetaParse *p, const json_t *from, const char *key) {
  const json_t *j = json_object_get(from, key);
  if (!json_is_number(j)) meta_refuse_key(p, key, "a number");
  return json_number_value(j);
}

bool meta_get_flag(MetaParse *p, const json_t *from, const char *key) {
  const json_t *j = json_object_get(from, key);
  if (!json_is_boolean(j)) meta_refuse_key(p, key, "true or false");
  return json_is_true(j);
}

void meta_get_text(MetaParse *p, const json_t *from, const char *key, char *out, size_t room) {
  const json_t *j = json_object_get(from, key);
  if (!json_is_string(j) || json_string_length(j) >= room ||
      strlen(json_string_value(j)) != json_string_length(j)) {
    meta_refuse_key(p, key, "a short text");
    return;
  }
  memcpy(out, json_string_value(j), json_string_length(j) + 1);
}

void meta_get_sha256(MetaParse *p, const json_t *from, char out[65]) {
  meta_get_text(p, from, "sha256", out, 65);
  if (!p->failed && strspn(out, "0123456789abcdef") != 64)
    meta_refuse_key(p, "sha256", "64 hexadecimal digits");
}

/* Reads the entry of a file of the data set. Its name must not lead out of the directory. */
void meta_get_file(MetaParse *p, const json_t *from, MetaFile *f) {
  meta_get_text(p, from, "file", f->name, sizeof f->name);
  if (strchr(f->name, '/') || f->name[0] == '.' || f->name[0] == '\0')
    meta_refuse_key(p, "file", "a plain file name");
  f->bytes = meta_get_count(p, from, "bytes");
  f->pairs = json_object_get(from, "pairs") ? meta_get_count(p, from, "pairs") : 0;
  meta_get_sha256(p, from, f->sha256);
}

void meta_get_source(MetaParse *p, const json_t *from, MetaSource *s) {
  s->lines = meta_get_count(p, from, "lines");
  const json_t *files = json_object_get(from, "files");
  size_t n = json_array_size(files);
  if (n < 1 || n > 2) meta_refuse_key(p, "files", "one file or two");
  for (size_t i = 0; i < n && i < 2; i++) {
    const json_t *file = json_array_get(files, i);
    meta_get_text(p, file, "file", s->name[i], sizeof s->name[i]);
    s->bytes[i] = meta_get_count(p, file, "bytes");
    meta_get_sha256(p, file, s->sha256[i]);
  }
}
