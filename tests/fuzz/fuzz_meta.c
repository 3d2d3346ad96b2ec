/* dataset.json as hostile text: accepted values are in range, and are the same after
 * printing and parsing again. In the second mode values of a JSON document are replaced,
 * because random changes of bytes seldom leave valid JSON. Depends on data/meta. */
#include "data/meta.h"

#include <jansson.h>

#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const Meta *m) {
  REQUIRE(m->vocab > 0 && m->eos >= 0 && m->eos < m->vocab);
  REQUIRE(m->pad < m->vocab && m->bos < m->vocab && m->unk < m->vocab);
  REQUIRE(strlen(m->tokenizer_sha256) == 64);
  for (int s = 0; s < SPLITS; s++) {
    for (size_t i = 0; i < m->split[s].shards; i++) {
      const MetaFile *f = &m->split[s].shard[i];
      REQUIRE(f->name[0] && f->name[0] != '.' && !strchr(f->name, '/'));
      REQUIRE(strlen(f->sha256) == 64);
    }
  }
}

/* Returns a replacement: an integer of any size, a string, or a value of another type. */
static json_t *new_value(uint8_t kind, uint8_t size) {
  char text[256];
  memset(text, kind & 1 ? 'a' : '/', sizeof text);
  text[size] = '\0';
  switch (kind % 8) {
    case 0:
      return json_integer((json_int_t)(((uint64_t)1 << (size % 64)) - (size >> 7)));
    case 1:
      return json_integer(-(json_int_t)size);
    case 2:
      return json_real(size / 3.0);
    case 3:
    case 4:
      return json_string(text);
    case 5:
      return json_null();
    case 6:
      return json_array();
    default:
      return json_object();
  }
}

/* Replaces value number *left, counted in the order of the document. */
static void edit(json_t *node, unsigned *left, uint8_t kind, uint8_t size) {
  const char *key;
  json_t *value;
  void *next;
  size_t i;
  if (json_is_object(node)) {
    json_object_foreach_safe(node, next, key, value) {
      if (*left == 0) {
        json_object_set_new(node, key, new_value(kind, size));
        *left = UINT32_MAX;
        return;
      }
      --*left;
      edit(value, left, kind, size);
      if (*left == UINT32_MAX) return;
    }
  } else if (json_is_array(node)) {
    json_array_foreach(node, i, value) edit(value, left, kind, size);
  }
}

static void try_text(const char *text, size_t len) {
  Meta m;
  if (meta_parse(&m, text, len, "fuzz")) return;
  Str first = {0}, second = {0};
  check(&m);
  REQUIRE(meta_print(&m, &first) == ERR_OK);
  meta_free(&m);
  REQUIRE(meta_parse(&m, first.s, first.len, "again") == ERR_OK);
  check(&m);
  REQUIRE(meta_print(&m, &second) == ERR_OK);
  REQUIRE(strcmp(first.s, second.s) == 0);
  meta_free(&m);
  str_free(&first);
  str_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { EDITS = 3, FRONT = 1 + 3 * EDITS };
  if (size < 1) return 0;
  if (!(data[0] & 1) || size < FRONT) {
    try_text((const char *)data + 1, size - 1);
    return 0;
  }
  json_t *root = json_loadb((const char *)data + FRONT, size - FRONT, 0, NULL);
  if (!root) return 0;
  for (int e = 0; e < EDITS; e++) {
    unsigned left = data[1 + 3 * e];
    edit(root, &left, data[2 + 3 * e], data[3 + 3 * e]);
  }
  char *text = json_dumps(root, 0);
  if (text) try_text(text, strlen(text));
  free(text);
  json_decref(root);
  return 0;
}
