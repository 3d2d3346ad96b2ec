/* TaskKind.inspect of translation: describes a data set of sentence pairs, as text or JSON. Depends
 * on data/dataset, text/tokenizer, Jansson. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/place.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "text/tokenizer.h"
#include "train/task_translate.h"

#define BARS       16 /* largest number of rows of the histogram */
#define BAR_WIDTH  40
#define SAMPLE_KEY 0x73616d706c65u

typedef struct {
  DataSet data;
  OrderPlan plan;
  Split split;
  uint64_t
      count[2][SHARD_LONGEST + 2]; /* number of sentences by length in tokens, including eos */
  uint32_t longest;                /* length in tokens of the longest sentence on either side */
} Inspect;

static Err count_lengths(Inspect *in, DataReader *reader) {
  const MetaSplit *m = &in->data.meta.split[in->split];
  for (size_t s = 0; s < m->shards; s++) {
    Shard *shard;
    TRY(dataset_shard(reader, in->split, s, &shard));
    for (uint64_t i = 0; i < shard->examples; i++) {
      ShardView view;
      TRY(shard_pair(shard, i, &view));
      for (int side = 0; side < 2; side++) {
        uint32_t rows = view.len[side] + 1;
        if (rows > in->data.meta.max_tokens + 1)
          return err_set(ERR_WORK,
                         "%s is damaged: pair %llu has %u tokens where %u are the most; "
                         "prepare the data set again",
                         shard->file.map.path, (unsigned long long)i, rows - 1,
                         in->data.meta.max_tokens);
        in->count[side][rows]++;
        if (rows > in->longest) in->longest = rows;
      }
    }
  }
  return ERR_OK;
}

static Err decode_sample(DataReader *reader, Split split, const Tokenizer *t, uint64_t i,
                         int side, Str *text) {
  uint64_t within;
  ShardView view;
  Shard *shard;
  TRY(dataset_find(reader, split, i, &shard, &within));
  TRY(shard_pair(shard, within, &view));
  int32_t *ids;
  TRY(mem_alloc(&ids, view.len[side], sizeof *ids));
  Err err = shard_copy(shard, &view, side, ids);
  if (!err) err = tokenizer_decode(t, ids, view.len[side], text);
  mem_free(ids);
  return err;
}

/* Draws random pairs with the given seed, decodes them and calls `each` for each pair. */
static Err visit_samples(Inspect *in, const OptSet *opts,
                         void (*each)(void *, const char *, const char *), void *context) {
  uint64_t pairs = in->data.meta.split[in->split].pairs;
  uint64_t samples = (uint64_t)opt_count(opts, "samples"),
           seed = (uint64_t)opt_count(opts, "seed");
  if (samples > pairs) samples = pairs;
  if (samples == 0) return ERR_OK;
  char path[FILE_PATH_MAX];
  Tokenizer t;
  TRY(dataset_path(&in->data, "tokenizer.model", path));
  TRY(tokenizer_open(&t, path));
  Err err = ERR_OK;
  DataReader reader;
  dataset_enter(&in->data, &reader);
  for (uint64_t k = 0; k < samples && !err; k++) {
    Str text[2] = {{0}, {0}};
    uint64_t i = rng_permute(rng_mix(seed, SAMPLE_KEY), pairs, k);
    for (int side = 0; side < 2 && !err; side++)
      err = decode_sample(&reader, in->split, &t, i, side, &text[side]);
    if (!err) each(context, str_text(&text[0]), str_text(&text[1]));
    for (int side = 0; side < 2; side++) str_free(&text[side]);
  }
  dataset_leave(&reader);
  tokenizer_close(&t);
  return err;
}

static uint64_t sum_shard_bytes(const MetaSplit *s) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < s->shards; i++) bytes += s->shard[i].bytes;
  return bytes;
}

static void print_splits(const Meta *m) {
  char a[32], b[32], c[32];
  for (int s = 0; s < SPLITS; s++) {
    const MetaSplit *split = &m->split[s];
    if (split->lines == 0) continue;
    printf("%-10s %s pairs of %s lines, %s in %zu %s\n", split_name[s],
           str_of_count(a, split->pairs), str_of_count(b, split->lines),
           str_of_bytes(c, sum_shard_bytes(split)), split->shards,
           split->shards == 1 ? "shard" : "shards");
    printf("%-10s %s source and %s target tokens, longest %llu and %llu\n", "",
           str_of_count(a, split->tokens[0]), str_of_count(b, split->tokens[1]),
           (unsigned long long)split->longest[0], (unsigned long long)split->longest[1]);
    printf("%-10s from %s of source and %s of target text\n", "",
           str_of_bytes(a, split->text_bytes[0]), str_of_bytes(b, split->text_bytes[1]));
    for (int v = CLEAN_KEEP + 1; v < CLEAN_VERDICTS; v++) {
      if (split->dropped[v])
        printf("%-10s dropped %s: %s\n", "", str_of_count(a, split->dropped[v]),
               clean_reason[v]);
    }
  }
}

static uint64_t count_bin(const Inspect *in, int side, uint32_t from, uint32_t to) {
  uint64_t n = 0;
  for (uint32_t rows = from; rows <= to && rows <= in->longest; rows++)
    n += in->count[side][rows];
  return n;
}

static void print_histogram(const Inspect *in) {
  uint32_t step = in->longest / BARS + 1;
  uint64_t most = 1, pairs = in->data.meta.split[in->split].pairs;
  for (uint32_t from = 1; from <= in->longest; from += step) {
    uint64_t n = count_bin(in, 1, from, from + step - 1);
    if (n > most) most = n;
  }
  printf("\n%s: tokens of a sentence, with its end mark\n", split_name[in->split]);
  printf("   tokens    source    target\n");
  for (uint32_t from = 1; from <= in->longest; from += step) {
    uint64_t n[2];
    for (int side = 0; side < 2; side++) n[side] = count_bin(in, side, from, from + step - 1);
    int bar = (int)((double)n[1] * BAR_WIDTH / (double)most + 0.5);
    printf("%4u-%-4u %7.2f %% %7.2f %% %.*s\n", from, from + step - 1,
           100.0 * (double)n[0] / (double)pairs, 100.0 * (double)n[1] / (double)pairs, bar,
           "########################################");
  }
}

static void print_batches(const Inspect *in) {
  char a[32], b[32];
  const OrderPlan *p = &in->plan;
  double pairs = (double)in->data.order.pairs / (double)p->batches;
  printf(
      "\nbatches of %s tokens a side: %s per epoch, %.1f pairs each, %.2f %% full (the fuller "
      "side)\n",
      str_of_count(a, p->capacity), str_of_count(b, p->batches), pairs, 100 * p->fill);
  if (p->windows == 1)
    printf("windows: 1, all pairs are shuffled together\n");
  else
    printf("windows: %zu of %s pairs on average, shuffled one after the other\n", p->windows,
           str_of_count(a, in->data.order.pairs / p->windows));
}

static void print_side(const char *lang, const char *text) {
  printf("  ");
  out_visible(lang);
  printf("  ");
  out_visible(text);
  printf("\n");
}

static void print_sample(void *context, const char *source, const char *target) {
  const Meta *m = context;
  print_side(m->lang[0], source);
  print_side(m->lang[1], target);
}

/* Prints the summary of --verify after dataset_verify() has found no damage. */
static void print_verified(const Meta *m) {
  size_t shards = 0;
  uint64_t bytes = 0;
  char size[32];
  for (int s = 0; s < SPLITS; s++) {
    shards += m->split[s].shards;
    bytes += sum_shard_bytes(&m->split[s]);
  }
  printf("%-10s every checksum matches: %zu %s, %s, and the other files of the data set\n",
         "verified", shards, shards == 1 ? "shard" : "shards", str_of_bytes(size, bytes));
}

static Err print_text(Inspect *in, const OptSet *opts) {
  const Meta *m = &in->data.meta;
  out_visible(in->data.dir);
  printf(": data set, ");
  out_visible(m->lang[0]);
  printf(" to ");
  out_visible(m->lang[1]);
  printf("\n%-10s ", "tokenizer");
  out_visible(m->tokenizer_type);
  printf(", %d pieces; pad %d, bos %d, eos %d, unk %d\n", m->vocab, m->pad, m->bos, m->eos,
         m->unk);
  print_splits(m);
  if (opt_flag(opts, "verify")) print_verified(m);
  print_histogram(in);
  if (in->split == SPLIT_TRAIN) print_batches(in);
  if (opt_count(opts, "samples")) printf("\nsamples\n");
  return visit_samples(in, opts, print_sample, &in->data.meta);
}

static void add_sample(void *context, const char *source, const char *target) {
  json_array_append_new(context, json_pack("{s:s, s:s}", "source", source, "target", target));
}

static Err print_json(Inspect *in, const OptSet *opts) {
  Str meta = {0};
  TRY(meta_print(&in->data.meta, &meta));
  json_t *root = json_loads(str_text(&meta), 0, NULL);
  str_free(&meta);
  json_t *samples = json_array(), *rows = json_object();
  for (int side = 0; side < 2; side++) {
    json_t *list = json_array();
    for (uint32_t r = 0; r <= in->longest; r++)
      json_array_append_new(list, json_integer((json_int_t)in->count[side][r]));
    json_object_set_new(rows, side ? "target" : "source", list);
  }
  Err err = visit_samples(in, opts, add_sample, samples);
  json_object_set_new(root, "split", json_string(split_name[in->split]));
  json_object_set_new(root, "sentences_by_rows", rows);
  json_object_set_new(root, "samples", samples);
  if (opt_flag(opts, "verify")) json_object_set_new(root, "verified", json_true());
  if (in->split == SPLIT_TRAIN) {
    const OrderPlan *p = &in->plan;
    json_object_set_new(
        root, "batches",
        json_pack("{s:I, s:I, s:f, s:I}", "rows", (json_int_t)p->capacity, "per_epoch",
                  (json_int_t)p->batches, "fill", p->fill, "windows", (json_int_t)p->windows));
  }
  if (!err && json_dumpf(root, stdout, JSON_INDENT(1)) != 0) {
    err = out_check();
    if (!err) err = err_set(ERR_WORK, "out of memory while writing JSON");
  }
  putchar('\n');
  json_decref(root);
  return err;
}

static Split find_split(const char *name) {
  int s = SPLIT_TRAIN;
  while (strcmp(split_name[s], name) != 0) s++;
  return (Split)s;
}

static Err inspect_data_set(Inspect *in, const OptSet *opts) {
  const char *path = opt_operand(opts, 0);
  TRY(place_check(path));
  if (str_ends(path, ".partial"))
    log_warn("%s is incomplete: continue it with 'trireme prepare ... --resume'", path);
  TRY(dataset_open(&in->data, path));
  dataset_warn_windows(&in->data);
  in->split = find_split(opt_text(opts, "split"));
  if (in->data.meta.split[in->split].pairs == 0)
    return err_set(ERR_WORK, "%s has no %s split; see --split", path, split_name[in->split]);
  if (opt_flag(opts, "verify")) TRY(dataset_verify(&in->data));
  DataReader reader;
  dataset_enter(&in->data, &reader);
  Err err = count_lengths(in, &reader);
  dataset_leave(&reader);
  if (err) return err;
  if (in->split == SPLIT_TRAIN)
    TRY(order_plan(&in->plan, &in->data.order, (uint32_t)opt_count(opts, "batch-tokens")));
  return opt_flag(opts, "json") ? print_json(in, opts) : print_text(in, opts);
}

Err translate_inspect(const OptSet *opts) {
  Inspect *in;
  TRY(mem_alloc(&in, 1, sizeof *in));
  Err err = inspect_data_set(in, opts);
  order_plan_free(&in->plan);
  dataset_close(&in->data);
  mem_free(in);
  return err;
}
