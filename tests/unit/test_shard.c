/* Shards: columns of every kind are read back unchanged; format 1 is read; a file that is
 * damaged, invalid or newer is refused with its name and the offset. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../fuzz/fuzz_file.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "data/shard.h"
#include "data/shard_file.h"
#include "support.h"

static const char sha[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
static const char sha2[] = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

static void write_shard(ShardBuilder *b, const char *name) {
  uint64_t bytes;
  uint64_t size;
  char hex[65];
  char again[65];
  OK(shard_write(b, at(name), &bytes, hex));
  shard_builder_free(b);
  OK(place_sha256(at(name), again));
  assert_string_equal(hex, again);
  OK(file_size(at(name), &size));
  assert_int_equal(bytes, size);
}

/* ---- sentence pairs ---- */

static void fill_shard(ShardBuilder *b, uint32_t vocab, uint64_t pairs, uint64_t seed) {
  Rng rng = {.key = seed};
  int32_t ids[2][64];
  OK(shard_begin_pairs(b, vocab, sha));
  for (uint64_t i = 0; i < pairs; i++) {
    size_t len[2];
    for (int side = 0; side < 2; side++) {
      len[side] = 1 + rng_below(&rng, 60);
      for (size_t k = 0; k < len[side]; k++) ids[side][k] = (int32_t)rng_below(&rng, vocab);
    }
    OK(shard_add_pair(b, ids[0], len[0], ids[1], len[1]));
  }
}

/* Checks the pairs that fill_shard wrote. */
static void check_pairs(Shard *s, uint32_t vocab, uint64_t seed) {
  Rng rng = {.key = seed};
  int32_t ids[64];
  for (uint64_t i = 0; i < s->examples; i++) {
    ShardView view;
    OK(shard_pair(s, i, &view));
    for (int side = 0; side < 2; side++) {
      assert_int_equal(view.len[side], 1 + rng_below(&rng, 60));
      OK(shard_copy(s, &view, side, ids));
      for (size_t k = 0; k < view.len[side]; k++)
        assert_int_equal(ids[k], rng_below(&rng, vocab));
    }
  }
}

static void check_shard(uint32_t vocab, uint32_t id_bytes) {
  ShardBuilder b;
  Shard s;
  fill_shard(&b, vocab, 3000, vocab);
  write_shard(&b, "a.tok");
  OK(shard_open(&s, at("a.tok")));
  assert_int_equal(s.version, 2);
  assert_int_equal(s.examples, 3000);
  for (int side = 0; side < 2; side++) {
    assert_int_equal(s.side[side]->element_bytes, id_bytes);
    assert_int_equal(s.side[side]->vocab, vocab);
    assert_string_equal(s.side[side]->tokenizer_sha256, sha);
  }
  check_pairs(&s, vocab, vocab);
  shard_close(&s);
}

static void test_shard_of_65536_ids_stores_2_bytes(void **state) {
  (void)state;
  check_shard(65536, 2);
}

static void test_shard_of_65537_ids_stores_4_bytes(void **state) {
  (void)state;
  check_shard(65537, 4);
}

/* Format 1, which earlier versions wrote: the same bytes as in format 2 after another header. */
static void test_shard_format_1_reads_the_same_pairs(void **state) {
  (void)state;
  ShardBuilder b;
  Shard s;
  fill_shard(&b, 500, 300, 7);
  const ShardGroup *g = &b.group[0];
  ShardHeader1 h = {.version = 1, .id_bytes = 2, .pairs = 300};
  memcpy(h.magic, SHARD_MAGIC, sizeof h.magic);
  h.tokens = g->values.len / 2;
  h.index = (sizeof h + g->values.len + 7) & ~(uint64_t)7;
  h.payload = h.index + g->index.len;
  h.vocab = 500;
  h.block = (uint32_t)CHECKED_BLOCK;
  h.tokenizer[31] = 0xab;
  uint8_t *file = calloc((size_t)h.payload + checked_table_size(h.payload), 1);
  assert_non_null(file);
  memcpy(file, &h, sizeof h);
  memcpy(file + sizeof h, g->values.bytes, g->values.len);
  memcpy(file + h.index, g->index.bytes, g->index.len);
  size_t size = fuzz_seal(file, (size_t)h.payload);
  OK(file_write(at("one.tok"), (const char *)file, size));
  free(file);
  shard_builder_free(&b);
  OK(shard_open(&s, at("one.tok")));
  assert_int_equal(s.version, 1);
  assert_int_equal(s.columns, 2);
  assert_int_equal(s.examples, 300);
  assert_string_equal(s.side[1]->tokenizer_sha256 + 60, "00ab");
  check_pairs(&s, 500, 7);
  shard_close(&s);
}

/* ---- columns of every kind ---- */

static void test_shard_labels_are_read_back(void **state) {
  (void)state;
  ShardColumnSpec spec[] = {
      {.name = "text", .kind = SHARD_IDS, .vocab = 1000, .tokenizer_sha256 = sha},
      {.name = "label", .kind = SHARD_LABEL, .vocab = 3}};
  ShardBuilder b;
  Shard s;
  OK(shard_begin(&b, spec, 2));
  for (int32_t i = 0; i < 500; i++) {
    int32_t ids[3] = {i, i + 1, i + 2};
    int32_t label = i % 3;
    OK(shard_add(&b, (ShardValues[]){{ids, (size_t)(i % 4 ? 3 : 0)}, {&label, 1}}));
  }
  write_shard(&b, "label.tok");
  OK(shard_open(&s, at("label.tok")));
  const ShardColumn *text = shard_column(&s, "text");
  const ShardColumn *label = shard_column(&s, "label");
  assert_null(s.side[0]);
  assert_int_equal(label->element_bytes, 2);
  for (int32_t i = 0; i < 500; i++) {
    ShardValues v;
    int32_t ids[3];
    int32_t got;
    OK(shard_get(&s, text, (uint64_t)i, &v));
    assert_int_equal(v.count, i % 4 ? 3 : 0);
    OK(shard_copy_ids(&s, text, &v, ids));
    if (v.count) assert_int_equal(ids[2], i + 2);
    OK(shard_get_label(&s, label, (uint64_t)i, &got));
    assert_int_equal(got, i % 3);
  }
  int32_t beyond;
  assert_int_equal(shard_get_label(&s, label, 500, &beyond), ERR_WORK);
  assert_says("example 500 was read");
  assert_says("label.tok has only 500 examples");
  ShardView view;
  assert_int_equal(shard_pair(&s, 0, &view), ERR_WORK);
  assert_says("no column of ids 'source'");
  shard_close(&s);
}

static void test_shard_weights_and_alignments_are_read_back(void **state) {
  (void)state;
  ShardColumnSpec spec[] = {
      {.name = "source", .kind = SHARD_IDS, .vocab = 300, .tokenizer_sha256 = sha},
      {.name = "weight", .kind = SHARD_FLOAT},
      {.name = "target", .kind = SHARD_IDS, .vocab = 300, .tokenizer_sha256 = sha},
      {.name = "alignment", .kind = SHARD_PAIRS, .is_optional = true}};
  ShardBuilder b;
  Shard s;
  OK(shard_begin(&b, spec, 4));
  for (uint16_t i = 0; i < 200; i++) {
    int32_t ids[2] = {i, i + 1};
    float weight = 0.25f * (float)i;
    uint16_t links[3][2] = {{i, 1}, {2, i}, {65535, 0}};
    OK(shard_add(&b, (ShardValues[]){{ids, 1}, {&weight, 1}, {ids, 2}, {links, i % 4u}}));
  }
  write_shard(&b, "weight.tok");
  OK(shard_open(&s, at("weight.tok")));
  assert_true(s.is_interleaved);
  assert_false(shard_column(&s, "alignment")->is_required);
  assert_true(shard_column(&s, "weight")->is_required);
  for (uint16_t i = 0; i < 200; i++) {
    float weight;
    ShardValues v;
    ShardView view;
    OK(shard_get_float(&s, shard_column(&s, "weight"), i, &weight));
    assert_true(weight == 0.25f * (float)i);
    OK(shard_get(&s, shard_column(&s, "alignment"), i, &v));
    assert_int_equal(v.count, i % 4);
    uint16_t links[3][2] = {{i, 1}, {2, i}, {65535, 0}};
    if (v.count) assert_memory_equal(v.at, links, v.count * sizeof *links);
    OK(shard_pair(&s, i, &view));
    assert_int_equal(view.len[0], 1);
    assert_int_equal(view.len[1], 2);
  }
  shard_close(&s);
}

/* Source ids of 2 bytes and target ids of 4 bytes must not share a group. */
static void test_shard_separate_vocabularies_are_read_back(void **state) {
  (void)state;
  ShardColumnSpec spec[] = {
      {.name = "source", .kind = SHARD_IDS, .vocab = 1000, .tokenizer_sha256 = sha},
      {.name = "target", .kind = SHARD_IDS, .vocab = 200000, .tokenizer_sha256 = sha2}};
  ShardBuilder b;
  Shard s;
  OK(shard_begin(&b, spec, 2));
  for (int32_t i = 0; i < 100; i++)
    OK(shard_add_pair(&b, &(int32_t){9 * i}, 1, (int32_t[]){1999 * i, 3}, 2));
  write_shard(&b, "two.tok");
  OK(shard_open(&s, at("two.tok")));
  assert_false(s.is_interleaved);
  assert_int_equal(s.side[0]->vocab, 1000);
  assert_int_equal(s.side[1]->vocab, 200000);
  assert_string_equal(s.side[0]->tokenizer_sha256, sha);
  assert_string_equal(s.side[1]->tokenizer_sha256, sha2);
  for (int32_t i = 0; i < 100; i++) {
    ShardView view;
    int32_t ids[2];
    shard_prefetch_index(&s, (uint64_t)i);
    shard_prefetch_ids(&s, (uint64_t)i);
    OK(shard_pair(&s, (uint64_t)i, &view));
    OK(shard_copy(&s, &view, 0, ids));
    assert_int_equal(ids[0], 9 * i);
    OK(shard_copy(&s, &view, 1, ids));
    assert_int_equal(ids[0], 1999 * i);
    assert_int_equal(ids[1], 3);
  }
  shard_close(&s);
}

static void refuse_spec(ShardColumnSpec spec, const char *words) {
  ShardBuilder b;
  assert_int_equal(shard_begin(&b, &spec, 1), ERR_WORK);
  assert_says(words);
}

static void test_builder_refuses_wrong_columns(void **state) {
  (void)state;
  refuse_spec((ShardColumnSpec){.name = "", .kind = SHARD_FLOAT}, "name of 1 to 31");
  refuse_spec(
      (ShardColumnSpec){.name = "abcdefghijabcdefghijabcdefghijab", .kind = SHARD_FLOAT},
      "name of 1 to 31");
  refuse_spec((ShardColumnSpec){.name = "label", .kind = SHARD_LABEL}, "vocabulary of 0");
  refuse_spec((ShardColumnSpec){.name = "weight", .kind = SHARD_FLOAT, .vocab = 2},
              "vocabulary of 2");
  refuse_spec((ShardColumnSpec){.name = "source", .kind = SHARD_IDS, .vocab = 9}, "tokenizer");
  ShardColumnSpec twice[] = {{.name = "w", .kind = SHARD_FLOAT},
                             {.name = "w", .kind = SHARD_FLOAT}};
  ShardBuilder b;
  assert_int_equal(shard_begin(&b, twice, 2), ERR_WORK);
  assert_says("two columns 'w'");
}

static void test_builder_refuses_wrong_values(void **state) {
  (void)state;
  ShardColumnSpec spec[] = {
      {.name = "text", .kind = SHARD_IDS, .vocab = 9, .tokenizer_sha256 = sha},
      {.name = "label", .kind = SHARD_LABEL, .vocab = 3}};
  static const int32_t ids[SHARD_LONGEST + 1];
  ShardBuilder b;
  int32_t good = 2;
  int32_t bad = 3;
  OK(shard_begin(&b, spec, 2));
  OK(shard_add(&b, (ShardValues[]){{ids, SHARD_LONGEST}, {&good, 1}}));
  assert_int_equal(shard_add(&b, (ShardValues[]){{ids, SHARD_LONGEST + 1}, {&good, 1}}),
                   ERR_WORK);
  assert_says("4096 values do not fit column 'text'");
  assert_int_equal(shard_add(&b, (ShardValues[]){{ids, 1}, {&good, 0}}), ERR_WORK);
  assert_int_equal(shard_add(&b, (ShardValues[]){{ids, 1}, {&bad, 1}}), ERR_WORK);
  assert_says("label 3");
  assert_int_equal(b.examples, 1);
  shard_builder_free(&b);
}

static void test_shard_label_or_float_of_another_kind_of_column_is_refused(void **state) {
  (void)state;
  ShardColumnSpec spec[] = {
      {.name = "text", .kind = SHARD_IDS, .vocab = 1000, .tokenizer_sha256 = sha},
      {.name = "weight", .kind = SHARD_FLOAT}};
  ShardBuilder b;
  Shard s;
  int32_t ids[3] = {1, 2, 3};
  float weight = 0.5F;
  OK(shard_begin(&b, spec, 2));
  OK(shard_add(&b, (ShardValues[]){{ids, 3}, {&weight, 1}}));
  OK(shard_add(&b, (ShardValues[]){{ids, 0}, {&weight, 1}}));
  write_shard(&b, "kind.tok");
  OK(shard_open(&s, at("kind.tok")));
  for (uint64_t i = 0; i < 2; i++) {
    int32_t label[3] = {0};
    float value;
    assert_int_equal(shard_get_label(&s, shard_column(&s, "text"), i, label), ERR_WORK);
    assert_says(at("kind.tok"));
    assert_says("column 'text'");
    assert_says("holds token ids, not labels");
    assert_int_equal(shard_get_label(&s, shard_column(&s, "weight"), i, label), ERR_WORK);
    assert_says("holds floats, not labels");
    assert_int_equal(shard_get_float(&s, shard_column(&s, "text"), i, &value), ERR_WORK);
    assert_says("holds token ids, not floats");
  }
  shard_close(&s);
}

/* ---- damaged files, with valid checksums, so that the checks of the contents are reached
 * ---- */

/* Returns the bytes of a shard with columns of every kind, in memory that has `room` bytes more
 * than the shard. */
static uint8_t *make_bytes(size_t *payload) {
  ShardColumnSpec spec[] = {
      {.name = "source", .kind = SHARD_IDS, .vocab = 300, .tokenizer_sha256 = sha},
      {.name = "target", .kind = SHARD_IDS, .vocab = 300, .tokenizer_sha256 = sha},
      {.name = "label", .kind = SHARD_LABEL, .vocab = 4, .is_optional = true},
      {.name = "weight", .kind = SHARD_FLOAT, .is_optional = true}};
  ShardBuilder b;
  Str whole = {0};
  OK(shard_begin(&b, spec, 4));
  for (int32_t i = 0; i < 40; i++)
    OK(shard_add(&b,
                 (ShardValues[]){{&i, 1}, {&i, 1}, {&(int32_t){i % 4}, 1}, {&(float){1}, 1}}));
  write_shard(&b, "whole.tok");
  OK(place_read_all(at("whole.tok"), 1 << 20, &whole));
  uint8_t *file = malloc(whole.len + 64);
  assert_non_null(file);
  memcpy(file, whole.s, whole.len);
  *payload = (size_t)fuzz_get64(file, offsetof(ShardHeader2, payload));
  str_free(&whole);
  return file;
}

/* Reads every value of every column; returns the first error. */
static Err read_all(Shard *s) {
  for (size_t c = 0; c < s->columns; c++) {
    for (uint64_t i = 0; i < s->examples; i++) {
      ShardValues v;
      TRY(shard_get(s, &s->column[c], i, &v));
    }
  }
  return ERR_OK;
}

/* Adds valid checksums to the first `payload` bytes of the file, frees them, opens and reads the
 * shard. */
static Err try_bytes(uint8_t *file, size_t payload) {
  Shard s;
  size_t size = fuzz_seal(file, payload);
  OK(file_write(at("field.tok"), (const char *)file, size));
  free(file);
  TRY(shard_open(&s, at("field.tok")));
  Err err = read_all(&s);
  shard_close(&s);
  return err;
}

/* Like try_bytes, after one field of the shard was changed. */
static Err try_field(size_t offset, size_t bytes, uint64_t value) {
  size_t payload;
  uint8_t *file = make_bytes(&payload);
  memcpy(file + offset, &value, bytes);
  return try_bytes(file, payload);
}

static void refuse_field(size_t offset, size_t bytes, uint64_t value, const char *words) {
  if (try_field(offset, bytes, value) == ERR_OK)
    fail_msg("offset %zu = %llu was accepted", offset, (unsigned long long)value);
  assert_says("field.tok");
  assert_says(words);
}

/* Offset and size of a field in the directory entry of column c. */
#define FIELD(c, field)                                                                  \
  sizeof(ShardHeader2) + (size_t)(c) * sizeof(ShardEntry) + offsetof(ShardEntry, field), \
      sizeof(((ShardEntry *)0)->field)
#define HEADER(field) offsetof(ShardHeader2, field), sizeof(((ShardHeader2 *)0)->field)

static void test_shard_unknown_required_flag_is_refused_as_newer(void **state) {
  (void)state;
  refuse_field(HEADER(required_flags), 1u << 7, "newer version");
  assert_says("byte 24");
}

static void test_shard_unknown_optional_flag_is_ignored(void **state) {
  (void)state;
  OK(try_field(HEADER(optional_flags), 1u << 7));
}

static void test_shard_newer_format_is_refused_as_newer(void **state) {
  (void)state;
  refuse_field(HEADER(version), 3, "newer version");
}

static void test_shard_required_column_of_unknown_kind_is_refused_as_newer(void **state) {
  (void)state;
  refuse_field(FIELD(0, kind), 77, "newer version");
  assert_says("column 'source' has kind 77");
}

static void test_shard_optional_column_of_unknown_kind_is_ignored(void **state) {
  (void)state;
  OK(try_field(FIELD(2, kind), 77));
}

static void test_shard_unknown_required_column_flag_is_refused_as_newer(void **state) {
  (void)state;
  refuse_field(FIELD(3, flags), 1u << 3, "newer version");
}

static void test_shard_unknown_kind_with_unknown_required_flag_is_refused(void **state) {
  (void)state;
  size_t payload;
  uint8_t *file = make_bytes(&payload);
  ShardEntry *entry = (ShardEntry *)(void *)(file + sizeof(ShardHeader2)) + 2;
  entry->kind = 77;
  entry->flags = 1u << 5;
  assert_int_equal(try_bytes(file, payload), ERR_WORK);
  assert_says("newer version");
}

static void test_shard_unknown_optional_column_flag_is_ignored(void **state) {
  (void)state;
  OK(try_field(FIELD(3, flags), 1u << 20));
}

static void test_shard_directory_of_4294967295_entries_is_refused(void **state) {
  (void)state;
  refuse_field(HEADER(columns), UINT32_MAX, "4294967295 columns");
  refuse_field(HEADER(columns), 0, "0 columns");
  /* 60 columns are allowed, but the file is too small for their entries. */
  refuse_field(HEADER(columns), 60, "damaged");
}

static void test_shard_directory_outside_the_file_is_refused(void **state) {
  (void)state;
  refuse_field(HEADER(directory), UINT64_MAX - 7, "header");
  refuse_field(HEADER(directory), 8, "header");
  refuse_field(HEADER(entry_bytes), 64, "header");
  refuse_field(HEADER(entry_bytes), UINT32_MAX - 7, "header");
}

static void test_shard_payload_of_2_to_the_64_bytes_is_refused(void **state) {
  (void)state;
  refuse_field(HEADER(payload), UINT64_MAX,
               "bytes, but its header requires more than 18446744073709551615");
  refuse_field(HEADER(payload), UINT64_MAX - 65535, "requires more than 18446744073709486080");
}

static void test_shard_wrong_element_size_is_refused(void **state) {
  (void)state;
  refuse_field(FIELD(0, element_bytes), 0, "elements of 0 bytes");
  refuse_field(FIELD(0, element_bytes), 3, "elements of 3 bytes");
  refuse_field(FIELD(3, element_bytes), 2, "elements of 2 bytes");
  refuse_field(FIELD(2, element_bytes), 4, "one value for each example");
  refuse_field(FIELD(0, vocabulary), 0, "vocabulary of 0");
}

static void test_shard_offset_beyond_the_file_is_refused(void **state) {
  (void)state;
  refuse_field(FIELD(3, offset), (uint64_t)1 << 40, "outside the file");
  refuse_field(FIELD(3, offset), UINT64_MAX - 7, "outside the file");
  refuse_field(FIELD(3, offset), 0, "outside the file"); /* offset 0 is within the header */
  refuse_field(FIELD(0, index), (uint64_t)1 << 40, "index outside");
  refuse_field(FIELD(0, index), UINT64_MAX - 7, "index outside");
}

static void test_shard_length_that_overflows_is_refused(void **state) {
  (void)state;
  refuse_field(FIELD(0, length), UINT64_MAX - 1, "outside the file");
  refuse_field(FIELD(3, length), UINT64_MAX - 3, "outside the file");
  refuse_field(HEADER(examples), UINT64_MAX / 8 + 1, "column 'source'");
  refuse_field(HEADER(examples), UINT64_MAX, "column 'source'");
  refuse_field(HEADER(examples), 41, "column");
}

static void test_shard_overlapping_columns_are_refused(void **state) {
  (void)state;
  size_t payload;
  uint8_t *file = make_bytes(&payload);
  uint64_t label = fuzz_get64(file, sizeof(ShardHeader2) + 2 * sizeof(ShardEntry) + 48);
  uint64_t source = fuzz_get64(file, sizeof(ShardHeader2) + 48);
  free(file);
  refuse_field(FIELD(3, offset), label - label % 8, "shares bytes");
  assert_says("column 'weight'");
  refuse_field(FIELD(2, offset), source, "shares bytes");
  /* Two columns have the same place in one group. */
  refuse_field(FIELD(1, place), 0, "shares bytes");
  refuse_field(FIELD(0, index), source, "inside its values");
}

static void test_shard_wrong_group_is_refused(void **state) {
  (void)state;
  refuse_field(FIELD(1, members), 0, "invalid position");
  refuse_field(FIELD(1, members), 1, "invalid position");
  refuse_field(FIELD(1, members), UINT32_MAX, "invalid position");
  refuse_field(FIELD(1, place), 2, "invalid position");
}

static void test_shard_wrong_name_is_refused(void **state) {
  (void)state;
  size_t name = sizeof(ShardHeader2) + sizeof(ShardEntry);
  refuse_field(name, 1, 0, "no valid name");
  refuse_field(name, 8, 0x656372756f73, "appears twice"); /* the name "source" as an integer */
}

/* ---- exact limits of the fields ---- */

/* What a value of a patch is added to. */
typedef enum { ZERO, PAYLOAD, SOURCE, LABEL, WEIGHT, INDEX } Base;

typedef struct {
  size_t offset, bytes;
  Base base;
  uint64_t value;
} Patch;

enum {
  PATCHES = 3,
  EXAMPLES = 40,
  ENTRY = sizeof(ShardEntry),
  DIRECTORY = sizeof(ShardHeader2),
  END = DIRECTORY + 4 * ENTRY /* of the directory */
};

static void apply_patches(uint8_t *file, size_t payload, const Patch *patch) {
  ShardEntry e[4];
  memcpy(e, file + DIRECTORY, sizeof e);
  const uint64_t base[] = {[PAYLOAD] = payload,
                           [SOURCE] = e[0].offset,
                           [LABEL] = e[2].offset,
                           [WEIGHT] = e[3].offset,
                           [INDEX] = e[0].index};
  for (size_t i = 0; i < PATCHES && patch[i].bytes; i++) {
    uint64_t value = base[patch[i].base] + patch[i].value;
    memcpy(file + patch[i].offset, &value, patch[i].bytes);
  }
}

/* Opens a file with valid checksums at a path that fuzz_file returns. */
static Err open_bytes(uint8_t *file, size_t payload) {
  Shard s;
  size_t size = fuzz_seal(file, payload);
  Err err = shard_open(&s, fuzz_file(file, size));
  shard_close(&s);
  free(file);
  return err;
}

#define NAME(c)       DIRECTORY + (c)*ENTRY
#define AT(c, field)  DIRECTORY + (c)*ENTRY + offsetof(ShardEntry, field)
#define DAMAGED       "has a damaged header (byte 0)"
#define OUTSIDE       "has values outside the file"
#define INDEX_OUTSIDE "has an index outside the file or inside its values"

static void test_shard_fields_have_exact_limits(void **state) {
  (void)state;
  static const struct {
    Patch patch[PATCHES];
    const char *words; /* NULL: is accepted */
    size_t byte;       /* that the error names; 0: none */
  } cases[] = {
      {{{0}}, NULL, 0},
      /* header */
      {{{HEADER(columns), ZERO, SHARD_COLUMNS_MAX}}, DAMAGED, 0},
      {{{HEADER(columns), ZERO, SHARD_COLUMNS_MAX + 1}}, "65 columns, possible are 1 to 64", 0},
      {{{HEADER(block), ZERO, CHECKED_BLOCK - 1}}, DAMAGED, 0},
      {{{HEADER(entry_bytes), ZERO, ENTRY - 8}}, DAMAGED, 0},
      {{{HEADER(entry_bytes), ZERO, ENTRY + 4}, {HEADER(payload), ZERO, 1 << 20}}, DAMAGED, 0},
      {{{HEADER(entry_bytes), ZERO, CHECKED_BLOCK},
        {HEADER(payload), ZERO, DIRECTORY + 4 * CHECKED_BLOCK}},
       "bytes, but its header requires",
       0},
      {{{HEADER(entry_bytes), ZERO, CHECKED_BLOCK + 8}, {HEADER(payload), ZERO, 1 << 20}},
       DAMAGED,
       0},
      {{{HEADER(directory), ZERO, DIRECTORY - 8}}, DAMAGED, 0},
      {{{HEADER(directory), ZERO, DIRECTORY + 4}}, DAMAGED, 0},
      {{{HEADER(directory), PAYLOAD, 8}}, DAMAGED, 0},
      {{{HEADER(payload), ZERO, END - 1}}, DAMAGED, 0},
      {{{HEADER(payload), ZERO, END}}, "bytes, but its header requires", 0},
      {{{HEADER(version), ZERO, 0}}, "reads 1 and 2; prepare the data set again", 0},
      /* elements and values */
      {{{FIELD(0, vocabulary), ZERO, INT32_MAX}}, NULL, 0},
      {{{FIELD(0, vocabulary), ZERO, (uint64_t)INT32_MAX + 1}},
       "vocabulary of 2147483648",
       AT(0, element_bytes)},
      {{{FIELD(3, vocabulary), ZERO, 1}}, "vocabulary of 1", AT(3, element_bytes)},
      {{{FIELD(0, kind), ZERO, SHARD_FLOAT}}, "of kind 3", AT(0, element_bytes)},
      {{{FIELD(3, offset), WEIGHT, 4}}, OUTSIDE, AT(3, offset)},
      {{{FIELD(3, offset), ZERO, END - 8}}, OUTSIDE, AT(3, offset)},
      {{{FIELD(3, length), ZERO, 2}}, OUTSIDE, AT(3, offset)},
      {{{FIELD(3, length), ZERO, 4 * EXAMPLES - 4}},
       "does not have one value for each example",
       AT(3, length)},
      {{{FIELD(3, index), ZERO, 8}}, "does not have one value for each", AT(3, length)},
      {{{FIELD(3, place), ZERO, 1}}, "does not have one value for each", AT(3, length)},
      {{{FIELD(3, members), ZERO, 2}}, "does not have one value for each", AT(3, length)},
      {{{FIELD(0, length), PAYLOAD, 0}}, OUTSIDE, AT(0, offset)},
      /* groups */
      {{{FIELD(1, members), ZERO, SHARD_MEMBERS_MAX}}, INDEX_OUTSIDE, AT(1, index)},
      {{{FIELD(1, members), ZERO, SHARD_MEMBERS_MAX + 1}}, "invalid position", AT(1, place)},
      {{{FIELD(1, place), ZERO, 2}}, "invalid position", AT(1, place)},
      {{{FIELD(0, index), INDEX, 4}}, INDEX_OUTSIDE, AT(0, index)},
      {{{FIELD(0, index), SOURCE, 0}}, INDEX_OUTSIDE, AT(0, index)},
      {{{FIELD(0, index), ZERO, END - 8}}, INDEX_OUTSIDE, AT(0, index)},
      /* columns among each other: label has 80 bytes */
      {{{FIELD(3, offset), LABEL, 24}}, "shares bytes with another column", AT(3, name)},
      {{{FIELD(3, offset), LABEL, 72}}, "shares bytes with another column", AT(3, name)},
      {{{FIELD(3, offset), INDEX, 8}}, "shares bytes with another column", AT(3, name)},
      {{{NAME(0), 32, ZERO, 0}}, "has no valid name", AT(0, name)},
      {{{NAME(3), 8, ZERO, 0x6c6562616c}}, "column 'label' appears twice", AT(3, name)},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char byte[48];
    size_t payload;
    uint8_t *file = make_bytes(&payload);
    if (cases[i].patch[0].bytes == 32)
      memset(file + NAME(0), 'x', 32);
    else
      apply_patches(file, payload, cases[i].patch);
    Err err = open_bytes(file, payload);
    if (!cases[i].words && err) fail_msg("case %zu: %s", i, err_message());
    if (!cases[i].words) continue;
    if (!err) fail_msg("case %zu is accepted", i);
    if (!strstr(err_message(), cases[i].words)) fail_msg("case %zu: %s", i, err_message());
    snprintf(byte, sizeof byte, "is damaged at byte %zu: ", cases[i].byte);
    if (cases[i].byte && !strstr(err_message(), byte))
      fail_msg("case %zu: %s", i, err_message());
  }
}

/* An index that is as long as the payload, and longer ones. */
static void test_shard_index_longer_than_the_file_is_refused(void **state) {
  (void)state;
  for (uint64_t more = 0; more < 2; more++) {
    size_t payload;
    uint8_t *file = make_bytes(&payload);
    uint64_t examples = payload / 8 + more;
    memcpy(file + offsetof(ShardHeader2, examples), &examples, sizeof examples);
    assert_int_equal(open_bytes(file, payload), ERR_WORK);
    assert_says("column 'source' " INDEX_OUTSIDE);
  }
}

/* Columns without values may have any offset. */
static void test_shard_empty_column_inside_another_is_accepted(void **state) {
  (void)state;
  size_t payload;
  uint8_t *file = make_bytes(&payload);
  static const Patch patch[PATCHES] = {{FIELD(0, length), ZERO, 0},
                                       {FIELD(1, length), ZERO, 0}};
  apply_patches(file, payload, patch);
  uint64_t inside = fuzz_get64(file, AT(2, offset)) + 8, end = payload;
  for (int side = 0; side < 2; side++) memcpy(file + AT(side, offset), &inside, sizeof inside);
  OK(open_bytes(file, payload));
  file = make_bytes(&payload);
  apply_patches(file, payload, patch);
  end -= end % 8;
  for (int side = 0; side < 2; side++) memcpy(file + AT(side, offset), &end, sizeof end);
  OK(open_bytes(file, payload));
}

/* The third column of the directory belongs to the group of the first and has the name of the second. */
static void test_shard_name_of_a_column_between_two_of_a_group_is_compared(void **state) {
  (void)state;
  size_t payload;
  uint8_t *file = make_bytes(&payload), kept[ENTRY];
  memcpy(kept, file + NAME(1), ENTRY);
  memcpy(file + NAME(1), file + NAME(2), ENTRY);
  memcpy(file + NAME(2), kept, ENTRY);
  memcpy(file + NAME(2), "label\0", 7);
  assert_int_equal(open_bytes(file, payload), ERR_WORK);
  assert_says("column 'label' appears twice");
}

/* Makes a file of format 1 with changed fields of its header; returns its size. file: (512) */
static size_t make_format1(uint8_t *file, const Patch *patch) {
  enum { TOKENS = 6, PAIRS = 2 };
  ShardHeader1 h = {.version = 1, .id_bytes = 2, .pairs = PAIRS};
  memcpy(h.magic, SHARD_MAGIC, sizeof h.magic);
  h.tokens = TOKENS;
  h.index = sizeof h + 16;
  h.payload = h.index + PAIRS * 8;
  h.vocab = 9;
  h.block = (uint32_t)CHECKED_BLOCK;
  memset(file, 0, 512);
  memcpy(file, &h, sizeof h);
  for (size_t i = 0; i < PATCHES && patch[i].bytes; i++)
    memcpy(file + patch[i].offset, &patch[i].value, patch[i].bytes);
  return fuzz_seal(file, (size_t)h.payload);
}

static Err open_header1(const Patch *patch) {
  uint8_t file[512];
  Shard s;
  Err err = shard_open(&s, fuzz_file(file, make_format1(file, patch)));
  if (!err && !s.column[1].is_required) err = err_set(ERR_WORK, "a column is optional");
  shard_close(&s);
  return err;
}

#define HEADER1(field)           offsetof(ShardHeader1, field), sizeof(((ShardHeader1 *)0)->field), ZERO
#define MOST32                   ((uint64_t)UINT32_MAX)
#define INDEX1(tokens, id_bytes) ((128 + (tokens) * (id_bytes) + 7) / 8 * 8)

static void test_shard_header_of_format_1_has_exact_limits(void **state) {
  (void)state;
  static const struct {
    Patch patch[PATCHES];
    const char *words;
  } cases[] = {
      {{{0}}, NULL},
      {{{HEADER1(vocab), INT32_MAX}}, NULL},
      {{{HEADER1(vocab), (uint64_t)INT32_MAX + 1}}, DAMAGED},
      {{{HEADER1(vocab), 0}}, DAMAGED},
      {{{HEADER1(id_bytes), 4}, {HEADER1(tokens), 3}}, NULL},
      {{{HEADER1(id_bytes), 1}, {HEADER1(tokens), 12}}, DAMAGED},
      {{{HEADER1(id_bytes), 3}, {HEADER1(tokens), 4}}, DAMAGED},
      {{{HEADER1(block), CHECKED_BLOCK * 2}}, DAMAGED},
      {{{HEADER1(tokens), 8}}, NULL},
      {{{HEADER1(tokens), 9}}, DAMAGED},
      {{{HEADER1(tokens), 4}}, DAMAGED},
      {{{HEADER1(tokens), MOST32},
        {HEADER1(index), INDEX1(MOST32, 2)},
        {HEADER1(payload), INDEX1(MOST32, 2) + 16}},
       "bytes, but its header requires"},
      {{{HEADER1(tokens), MOST32 + 1},
        {HEADER1(index), INDEX1(MOST32 + 1, 2)},
        {HEADER1(payload), INDEX1(MOST32 + 1, 2) + 16}},
       DAMAGED},
      {{{HEADER1(pairs), MOST32}, {HEADER1(payload), 144 + 8 * MOST32}},
       "bytes, but its header requires"},
      {{{HEADER1(pairs), MOST32 + 1}, {HEADER1(payload), 144 + 8 * (MOST32 + 1)}}, DAMAGED},
      {{{HEADER1(pairs), 1}}, DAMAGED},
      {{{HEADER1(payload), 159}}, DAMAGED},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Err err = open_header1(cases[i].patch);
    if (!cases[i].words && err) fail_msg("case %zu: %s", i, err_message());
    if (!cases[i].words) continue;
    if (!err) fail_msg("case %zu is accepted", i);
    if (!strstr(err_message(), cases[i].words)) fail_msg("case %zu: %s", i, err_message());
  }
}

static void test_shard_file_of_another_kind_is_refused(void **state) {
  (void)state;
  static uint8_t junk[sizeof(ShardHeader1)];
  Shard s;
  assert_int_equal(shard_open(&s, fuzz_file(junk, sizeof junk)), ERR_WORK);
  assert_says("is not a shard: wrong first bytes");
  assert_int_equal(shard_open(&s, fuzz_file(junk, sizeof junk - 1)), ERR_WORK);
  assert_says("is truncated: 127 bytes are no shard");
  assert_int_equal(shard_open(&s, at("missing.tok")), ERR_WORK);
  assert_says("missing.tok");
}

/* Bytes of the header and the directory are checked when the file is opened. In format 1 byte 120 is
 * reserved. */
static void test_shard_flipped_byte_of_the_directory_is_refused_by_open(void **state) {
  (void)state;
  size_t payload;
  uint8_t *file = make_bytes(&payload);
  size_t size = fuzz_seal(file, payload);
  for (size_t i = 0; i < END; i++) {
    Shard s;
    file[i] ^= 0x10;
    assert_int_equal(shard_open(&s, fuzz_file(file, size)), ERR_WORK);
    file[i] ^= 0x10;
  }
  free(file);
  uint8_t first[512];
  Shard s;
  size = make_format1(first, &(Patch){0});
  first[120] ^= 0x10;
  assert_int_equal(shard_open(&s, fuzz_file(first, size)), ERR_WORK);
  assert_says("checksum");
}

static void test_shard_example_behind_the_last_is_refused(void **state) {
  (void)state;
  ShardBuilder b;
  Shard s;
  ShardView view;
  ShardValues values;
  fill_shard(&b, 100, 40, 1);
  write_shard(&b, "end.tok");
  OK(shard_open(&s, at("end.tok")));
  OK(shard_get(&s, s.side[1], 39, &values));
  OK(shard_pair(&s, 39, &view));
  assert_int_equal(shard_get(&s, s.side[1], 40, &values), ERR_WORK);
  assert_says("example 40 was read");
  assert_int_equal(shard_pair(&s, 40, &view), ERR_WORK);
  assert_says("example 40 was read");
  shard_close(&s);
}

/* Columns called source and target that do not hold ids are no sentence pairs. */
static void test_shard_source_of_another_kind_is_no_pair(void **state) {
  (void)state;
  static const char *const missing[] = {"source", "target"};
  for (int side = 0; side < 2; side++) {
    ShardColumnSpec spec[] = {
        {.name = "source", .kind = SHARD_IDS, .vocab = 9, .tokenizer_sha256 = sha},
        {.name = "target", .kind = SHARD_IDS, .vocab = 9, .tokenizer_sha256 = sha}};
    ShardBuilder b;
    Shard s;
    ShardView view;
    char words[48];
    int32_t one = 1;
    spec[side] = (ShardColumnSpec){.name = missing[side], .kind = SHARD_LABEL, .vocab = 9};
    OK(shard_begin(&b, spec, 2));
    OK(shard_add(&b, (ShardValues[]){{&one, 1}, {&one, 1}}));
    write_shard(&b, "kinds.tok");
    OK(shard_open(&s, at("kinds.tok")));
    assert_int_equal(shard_pair(&s, 0, &view), ERR_WORK);
    snprintf(words, sizeof words, "has no column of ids '%s'", missing[side]);
    assert_says(words);
    shard_close(&s);
  }
}

/* The last entry of the index points to the end of the values, or behind it. */
static void test_shard_index_entry_points_at_most_to_the_end(void **state) {
  (void)state;
  for (uint32_t more = 0; more < 2; more++) {
    Shard s;
    ShardView view;
    ShardValues values;
    size_t payload;
    uint8_t *file = make_bytes(&payload);
    size_t entry = (size_t)fuzz_get64(file, AT(0, index)) + 39 * 8;
    uint32_t first = 2 * EXAMPLES - 2 + more; /* of 2 ids */
    memcpy(file + entry, &first, sizeof first);
    size_t size = fuzz_seal(file, payload);
    OK(shard_open(&s, fuzz_file(file, size)));
    Err pair = shard_pair(&s, 39, &view);
    Err source = shard_get(&s, s.side[0], 39, &values);
    assert_int_equal(pair, more ? ERR_WORK : ERR_OK);
    assert_int_equal(source, more ? ERR_WORK : ERR_OK);
    if (more) {
      char words[48];
      snprintf(words, sizeof words, "the index entry at byte %zu points outside", entry);
      assert_says(words);
      assert_int_equal(shard_pair(&s, 39, &view), ERR_WORK);
      assert_says(words);
    }
    shard_close(&s);
    free(file);
  }
}

/* Ids of 2 and of 4 bytes must be below the vocabulary, also the first of several. */
static void test_shard_id_of_the_size_of_the_vocabulary_is_refused(void **state) {
  (void)state;
  static const uint32_t vocab[] = {300, 70000};
  for (int i = 0; i < 2; i++) {
    for (uint32_t more = 0; more < 2; more++) {
      ShardColumn c = {.element_bytes = i ? 4 : 2, .vocab = vocab[i]};
      uint32_t wide[] = {vocab[i] - 1 + more, 1};
      uint16_t narrow[] = {(uint16_t)wide[0], 1};
      int32_t ids[2];
      Shard s = {.file.map.path = "a.tok", .file.map.bytes = (const uint8_t *)wide};
      if (i == 0) s.file.map.bytes = (const uint8_t *)narrow;
      ShardValues values = {s.file.map.bytes, 2};
      assert_int_equal(shard_copy_ids(&s, &c, &values, ids), more ? ERR_WORK : ERR_OK);
      assert_int_equal(ids[0], wide[0]);
      assert_int_equal(ids[1], 1);
      if (more) assert_says(i ? "id 70000 in a vocabulary of 70000" : "id 300 in a vocabulary");
    }
  }
}

/* Examples of 16 KB, some of which are in two blocks: the last byte of each is checked before it is
 * used. */
static void test_shard_flipped_last_byte_of_an_example_is_refused(void **state) {
  (void)state;
  enum { TEXTS = 12 };
  static int32_t ids[SHARD_LONGEST];
  ShardColumnSpec spec[] = {
      {.name = "source", .kind = SHARD_IDS, .vocab = 70000, .tokenizer_sha256 = sha},
      {.name = "target", .kind = SHARD_IDS, .vocab = 70000, .tokenizer_sha256 = sha}};
  ShardBuilder b;
  Str whole = {0};
  OK(shard_begin(&b, spec, 2));
  for (int i = 0; i < TEXTS; i++)
    OK(shard_add(&b, (ShardValues[]){{ids, i % 2 ? SHARD_LONGEST : 1},
                                     {ids, i % 2 ? 1 : SHARD_LONGEST}}));
  write_shard(&b, "long.tok");
  OK(place_read_all(at("long.tok"), 1 << 20, &whole));
  for (uint64_t i = 0; i < TEXTS; i++) {
    for (int side = 0; side < 2; side++) {
      const char *path = fuzz_file((const uint8_t *)whole.s, whole.len);
      Shard s;
      ShardValues v;
      ShardView view;
      OK(shard_open(&s, path));
      OK(shard_get(&s, s.side[side], i, &v));
      size_t last = (size_t)((const uint8_t *)v.at - s.file.map.bytes) + v.count * 4 - 1;
      shard_close(&s);
      whole.s[last] = (char)(whole.s[last] ^ 1);
      path = fuzz_file((const uint8_t *)whole.s, whole.len);
      if (last < CHECKED_BLOCK) { /* the first block has the directory */
        assert_int_equal(shard_open(&s, path), ERR_WORK);
      } else {
        OK(shard_open(&s, path));
        assert_int_equal(shard_get(&s, s.side[side], i, &v), ERR_WORK);
        assert_int_equal(shard_pair(&s, i, &view), ERR_WORK);
      }
      shard_close(&s);
      whole.s[last] = (char)(whole.s[last] ^ 1);
    }
  }
  str_free(&whole);
}

/* Each allocation of opening a shard fails in turn. */
static void walk_open(const uint8_t *file, size_t size) {
  for (uint64_t n = 1;; n++) {
    Shard s;
    const char *path = fuzz_file(file, size);
    uint64_t before = mem_count();
    mem_fail_once(n);
    Err err = shard_open(&s, path);
    mem_fail_once(0);
    shard_close(&s);
    if (!err) {
      assert_true(mem_count() - before < n); /* no allocation failed */
      return;
    }
    assert_says("out of memory");
    assert_true(n < 20);
  }
}

static void test_shard_out_of_memory_is_an_error(void **state) {
  (void)state;
  size_t payload;
  uint8_t *file = make_bytes(&payload), first[512];
  walk_open(file, fuzz_seal(file, payload));
  free(file);
  walk_open(first, make_format1(first, &(Patch){0}));
}

/* Reads every pair; returns true if an error names the file. */
static bool is_refused(const char *name) {
  Shard s;
  bool refused = shard_open(&s, at(name)) != ERR_OK;
  if (!refused) refused = read_all(&s) != ERR_OK;
  if (refused) assert_non_null(strstr(err_message(), name));
  shard_close(&s);
  return refused;
}

/* Writes a file like file_write, without fsync. */
static void put_file(const char *name, const char *bytes, size_t len) {
  FILE *f = fopen(at(name), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, len, f), len);
  assert_int_equal(fclose(f), 0);
}

static void test_shard_every_flipped_byte_is_refused(void **state) {
  (void)state;
  ShardBuilder b;
  fill_shard(&b, 100, 40, 1);
  write_shard(&b, "flip.tok");
  Str whole = {0};
  OK(place_read_all(at("flip.tok"), 1 << 20, &whole));
  assert_false(is_refused("flip.tok"));
  for (size_t i = 0; i < whole.len; i++) {
    whole.s[i] = (char)(whole.s[i] ^ 0x10);
    put_file("flipped.tok", whole.s, whole.len);
    assert_true(is_refused("flipped.tok"));
    whole.s[i] = (char)(whole.s[i] ^ 0x10);
  }
  for (size_t len = 0; len < whole.len; len += 7) {
    put_file("flipped.tok", whole.s, len);
    assert_true(is_refused("flipped.tok"));
  }
  str_free(&whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shard_of_65536_ids_stores_2_bytes),
      cmocka_unit_test(test_shard_of_65537_ids_stores_4_bytes),
      cmocka_unit_test(test_shard_format_1_reads_the_same_pairs),
      cmocka_unit_test(test_shard_labels_are_read_back),
      cmocka_unit_test(test_shard_weights_and_alignments_are_read_back),
      cmocka_unit_test(test_shard_separate_vocabularies_are_read_back),
      cmocka_unit_test(test_builder_refuses_wrong_columns),
      cmocka_unit_test(test_builder_refuses_wrong_values),
      cmocka_unit_test(test_shard_label_or_float_of_another_kind_of_column_is_refused),
      cmocka_unit_test(test_shard_unknown_required_flag_is_refused_as_newer),
      cmocka_unit_test(test_shard_unknown_optional_flag_is_ignored),
      cmocka_unit_test(test_shard_newer_format_is_refused_as_newer),
      cmocka_unit_test(test_shard_required_column_of_unknown_kind_is_refused_as_newer),
      cmocka_unit_test(test_shard_optional_column_of_unknown_kind_is_ignored),
      cmocka_unit_test(test_shard_unknown_required_column_flag_is_refused_as_newer),
      cmocka_unit_test(test_shard_unknown_kind_with_unknown_required_flag_is_refused),
      cmocka_unit_test(test_shard_unknown_optional_column_flag_is_ignored),
      cmocka_unit_test(test_shard_directory_of_4294967295_entries_is_refused),
      cmocka_unit_test(test_shard_directory_outside_the_file_is_refused),
      cmocka_unit_test(test_shard_payload_of_2_to_the_64_bytes_is_refused),
      cmocka_unit_test(test_shard_wrong_element_size_is_refused),
      cmocka_unit_test(test_shard_offset_beyond_the_file_is_refused),
      cmocka_unit_test(test_shard_length_that_overflows_is_refused),
      cmocka_unit_test(test_shard_overlapping_columns_are_refused),
      cmocka_unit_test(test_shard_wrong_group_is_refused),
      cmocka_unit_test(test_shard_wrong_name_is_refused),
      cmocka_unit_test(test_shard_fields_have_exact_limits),
      cmocka_unit_test(test_shard_index_longer_than_the_file_is_refused),
      cmocka_unit_test(test_shard_empty_column_inside_another_is_accepted),
      cmocka_unit_test(test_shard_name_of_a_column_between_two_of_a_group_is_compared),
      cmocka_unit_test(test_shard_header_of_format_1_has_exact_limits),
      cmocka_unit_test(test_shard_file_of_another_kind_is_refused),
      cmocka_unit_test(test_shard_flipped_byte_of_the_directory_is_refused_by_open),
      cmocka_unit_test(test_shard_example_behind_the_last_is_refused),
      cmocka_unit_test(test_shard_source_of_another_kind_is_no_pair),
      cmocka_unit_test(test_shard_index_entry_points_at_most_to_the_end),
      cmocka_unit_test(test_shard_id_of_the_size_of_the_vocabulary_is_refused),
      cmocka_unit_test(test_shard_flipped_last_byte_of_an_example_is_refused),
      cmocka_unit_test(test_shard_out_of_memory_is_an_error),
      cmocka_unit_test(test_shard_every_flipped_byte_is_refused),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
