/* Public functions of the demo corpus: sentence pairs by number, train/valid/test split, output
 * files. Depends on demo/grammar for the sentences and on base/file. */
#include "demo/demo.h"

#include <inttypes.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "demo/grammar.h"

#define PAIRS_MAX   50000000 /* maximum number of pairs: the set of hashes then has 1 GiB */
#define WORDS_MIN   3
#define WORDS_MAX   14
#define SPLIT_SHARE 20 /* The valid and test splits each receive one of 20 pairs. */
/* Maximum mean number of draws per written pair of its split; then demo_write reports that the
 * grammar has too few pairs. */
#define DRAWS_LIMIT 50

static uint32_t count_words(const Str *text) {
  uint32_t words = 1;
  for (size_t i = 0; i < text->len; i++) words += text->s[i] == ' ';
  return words;
}

Err demo_pair(uint64_t seed, uint64_t i, Str *en, Str *de) {
  Rng rng = {.key = rng_mix(seed, i)};
  for (;;) {
    str_clear(en);
    str_clear(de);
    Out out_en = {.str = en}, out_de = {.str = de};
    demo_draw_sentence(&(const Scene){&rng, &out_en, &out_de});
    TRY(str_check(en));
    TRY(str_check(de));
    uint32_t words = count_words(en);
    if (words >= WORDS_MIN && words <= WORDS_MAX) return ERR_OK;
  }
}

Split demo_split(const char *en, size_t len) {
  uint64_t part = rng_hash(en, len, 0x64656d6f) % 100;
  return part < 90 ? SPLIT_TRAIN : part < 95 ? SPLIT_VALID : SPLIT_TEST;
}

/* A set of 64-bit hashes, open addressing, at most half full; 0 is an empty slot. */
typedef struct {
  uint64_t *slots;
  uint64_t mask;
} HashSet;

static Err set_make(HashSet *set, uint64_t count) {
  if (count > PAIRS_MAX) {
    return err_set(ERR_USAGE,
                   "%" PRIu64 " demo pairs are too many: use --demo-pairs %d or less", count,
                   PAIRS_MAX);
  }
  uint64_t size = 64;
  while (size < 2 * count) size *= 2;
  set->mask = size - 1;
  return mem_alloc(&set->slots, (size_t)size, sizeof *set->slots);
}

/* Adds a hash; returns false if the set contains it already. */
static bool set_add(HashSet *set, uint64_t hash) {
  if (!hash) hash = 1;
  for (uint64_t at = hash & set->mask;; at = (at + 1) & set->mask) {
    if (set->slots[at] == hash) return false;
    if (!set->slots[at]) {
      set->slots[at] = hash;
      return true;
    }
  }
}

static Err put_line(FileWriter *w, Str *text) {
  str_addc(text, '\n');
  TRY(str_check(text));
  return file_put(w, text->s, text->len);
}

Err demo_write_from(DemoSource *source, const char *en_path, const char *de_path, Split split,
                    uint64_t pairs, uint64_t seed) {
  FileWriter en_file = {.fd = -1}, de_file = {.fd = -1};
  HashSet seen = {0};
  Str en = {0}, de = {0};
  Err err = ERR_OK;
  uint64_t written = 0;
  uint64_t draws = pairs * DRAWS_LIMIT * (split == SPLIT_TRAIN ? 1 : SPLIT_SHARE);
  TRY_DONE(set_make(&seen, pairs));
  TRY_DONE(file_create(&en_file, en_path));
  TRY_DONE(file_create(&de_file, de_path));
  for (uint64_t i = 0; written < pairs; i++) {
    if (i == draws) {
      err =
          err_set(ERR_WORK,
                  "%s: the demo grammar produced only %" PRIu64 " distinct pairs, but %" PRIu64
                  " were requested; use a smaller number of pairs",
                  en_path, written, pairs);
      goto done;
    }
    TRY_DONE(source(seed, i, &en, &de));
    if (demo_split(en.s, en.len) != split) continue;
    if (!set_add(&seen, rng_hash(en.s, en.len, 1))) continue;
    TRY_DONE(put_line(&en_file, &en));
    TRY_DONE(put_line(&de_file, &de));
    written++;
  }
  TRY_DONE(file_finish(&en_file, NULL));
  TRY_DONE(file_finish(&de_file, NULL));
done:
  file_abandon(&en_file);
  file_abandon(&de_file);
  mem_free(seen.slots);
  str_free(&en);
  str_free(&de);
  return err;
}

Err demo_write(const char *en_path, const char *de_path, Split split, uint64_t pairs,
               uint64_t seed) {
  return demo_write_from(demo_pair, en_path, de_path, split, pairs, seed);
}

const CorpusGenerator demo_generator = {
    .file = {[SPLIT_TRAIN] = {"demo-train.en", "demo-train.de"},
             [SPLIT_VALID] = {"demo-valid.en", "demo-valid.de"},
             [SPLIT_TEST] = {"demo-test.en", "demo-test.de"}},
    .held_out_pairs = 1000,
    .write = demo_write};
