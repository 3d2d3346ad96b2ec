/* Describes a data set of texts, as text or JSON. Depends on data/dataset, data/text_shard,
 * data/text_encoder, Jansson. */
#include "train/inspect_classify.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/place.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/text_encoder.h"
#include "data/text_shard.h"

#define BARS         16 /* largest number of rows of the histogram */
#define BAR_WIDTH    40
#define SHOWN_TOKENS 60 /* largest number of tokens of a sample */
#define SAMPLE_KEY   0x73616d706c65u

/* Smallest, largest and mean value of a label, for LABEL_NUMBER. */
typedef struct {
  double least, most, sum;
  uint64_t count;
} Range;

typedef struct {
  DataSet data;
  OrderPlan plan;
  Split split;
  uint64_t count[SHARD_LONGEST + 1]; /* number of texts by length in tokens */
  uint32_t longest;
  float *target; /* (text_targets) labels of one text */
  Range *range;  /* (labels) LABEL_NUMBER */
} Inspect;

static void add_to_range(Range *r, double value) {
  if (isnan(value)) return;
  if (r->count == 0 || value < r->least) r->least = value;
  if (r->count == 0 || value > r->most) r->most = value;
  r->sum += value;
  r->count++;
}

static Err count_shard(Inspect *in, Shard *shard) {
  const Meta *m = &in->data.meta;
  for (uint64_t i = 0; i < shard->examples; i++) {
    uint32_t tokens;
    TRY(text_shard_length(shard, i, &tokens));
    if (tokens == 0 || tokens > m->max_tokens)
      return err_set(
          ERR_WORK,
          "%s is damaged: text %llu has %u tokens, possible are 1 to %u; prepare the "
          "data set again",
          shard->file.map.path, (unsigned long long)i, tokens, m->max_tokens);
    in->count[tokens]++;
    if (tokens > in->longest) in->longest = tokens;
    TRY(text_shard_target(shard, m, i, in->target));
    for (size_t k = 0; m->classify->kind == LABEL_NUMBER && k < m->classify->labels; k++)
      add_to_range(&in->range[k], (double)in->target[k]);
  }
  return ERR_OK;
}

static Err count_split(Inspect *in, DataReader *reader) {
  for (size_t s = 0; s < in->data.meta.split[in->split].shards; s++) {
    Shard *shard;
    TRY(dataset_shard(reader, in->split, s, &shard));
    TRY(count_shard(in, shard));
  }
  return ERR_OK;
}

/* ---- samples ---- */

/* Appends the pieces of a text, separated by spaces, or the text itself if the tokenizer has another
 * form. */
static Err add_pieces(const TextEncoder *e, const int32_t *ids, uint32_t n, Str *out) {
  if (e->kind == TEXT_SENTENCEPIECE) return tokenizer_decode(&e->sentencepiece_, ids, n, out);
  uint32_t shown = n < SHOWN_TOKENS ? n : SHOWN_TOKENS;
  for (uint32_t i = 0; i < shown; i++) {
    const char *piece = text_encoder_piece(e, ids[i]);
    str_addf(out, "%s%s", i ? " " : "", piece ? piece : "(none)");
  }
  if (shown < n) str_add(out, " …");
  return str_check(out);
}

/* Appends the names of the labels of a text. */
static void add_labels(const MetaClassify *c, const float *target, Str *out) {
  if (c->kind == LABEL_CLASS) {
    str_add(out, c->name[(size_t)target[0]]);
    return;
  }
  for (size_t i = 0; i < c->labels; i++) {
    bool is_shown = c->kind == LABEL_NUMBER ? !isnan(target[i]) : target[i] == 1;
    if (!is_shown) continue;
    if (out->len) str_add(out, ", ");
    str_add(out, c->name[i]);
    if (c->kind == LABEL_NUMBER) str_addf(out, " %g", (double)target[i]);
  }
  if (c->kind != LABEL_NONE && out->len == 0) str_add(out, "none");
}

typedef void (*EachSample)(void *context, const char *labels, const char *text);

static Err visit_sample(Inspect *in, DataReader *r, const TextEncoder *e, uint64_t i,
                        EachSample each, void *context) {
  const Meta *m = &in->data.meta;
  int32_t ids[SHARD_LONGEST];
  uint32_t tokens, first;
  uint64_t within;
  Shard *shard;
  Str labels = {0}, text = {0};
  TRY(dataset_find(r, in->split, i, &shard, &within));
  TRY(text_shard_ids(shard, m, within, ids, SHARD_LONGEST, &tokens, &first));
  TRY(text_shard_target(shard, m, within, in->target));
  add_labels(m->classify, in->target, &labels);
  Err err = add_pieces(e, ids, tokens, &text);
  if (!err) err = str_check(&labels);
  if (!err) each(context, str_text(&labels), str_text(&text));
  str_free(&labels);
  str_free(&text);
  return err;
}

static Err open_encoder(const Inspect *in, TextEncoder *e) {
  const MetaClassify *c = in->data.meta.classify;
  char path[FILE_PATH_MAX];
  TRY(dataset_path(&in->data, c->tokenizer_file, path));
  /* The rules do not matter, because nothing is encoded. */
  return text_encoder_open(e, path, text_tokenizer_kind(c->tokenizer_file), (BertRules){0});
}

/* Draws random texts with the given seed and passes them to `each`. */
static Err visit_samples(Inspect *in, const OptSet *opts, EachSample each, void *context) {
  uint64_t texts = in->data.meta.split[in->split].pairs;
  uint64_t samples = (uint64_t)opt_count(opts, "samples"),
           seed = (uint64_t)opt_count(opts, "seed");
  TextEncoder e;
  if (samples > texts) samples = texts;
  if (samples == 0) return ERR_OK;
  TRY(open_encoder(in, &e));
  Err err = ERR_OK;
  DataReader reader;
  dataset_enter(&in->data, &reader);
  for (uint64_t k = 0; k < samples && !err; k++) {
    uint64_t i = rng_permute(rng_mix(seed, SAMPLE_KEY), texts, k);
    err = visit_sample(in, &reader, &e, i, each, context);
  }
  dataset_leave(&reader);
  text_encoder_close(&e);
  return err;
}

/* ---- text ---- */

static uint64_t sum_shard_bytes(const MetaSplit *s) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < s->shards; i++) bytes += s->shard[i].bytes;
  return bytes;
}

static void print_head(const Inspect *in) {
  const Meta *m = &in->data.meta;
  const MetaClassify *c = m->classify;
  out_visible(in->data.dir);
  printf(": data set for %s, %s\n", meta_task(m),
         c->kind == LABEL_NONE ? "texts without labels"
         : c->texts == 2       ? "pairs of texts with labels"
                               : "texts with labels");
  printf("%-10s ", "tokenizer");
  out_visible(m->tokenizer_type);
  if (strcmp(m->tokenizer_type, "wordpiece") == 0)
    printf(" %s", c->is_lower ? "uncased" : "cased");
  printf(", %d pieces; pad %d, cls %d, sep %d, unk %d, mask %d\n", m->vocab, m->pad, m->bos,
         m->eos, m->unk, c->mask);
}

static void print_split(const Meta *m, Split s) {
  char a[32], b[32], d[32];
  const MetaSplit *split = &m->split[s];
  const MetaTextCounts *counts = &m->classify->counts[s];
  if (split->lines == 0) return;
  printf("%-10s %s text%s, %s in %zu shard%s\n", split_name[s], str_of_count(a, split->pairs),
         str_plural(split->pairs), str_of_bytes(b, sum_shard_bytes(split)), split->shards,
         str_plural(split->shards));
  printf("%-10s %s tokens, mean %.1f, longest %llu, from %s of text\n", "",
         str_of_count(a, split->tokens[0]), (double)split->tokens[0] / (double)split->pairs,
         (unsigned long long)split->longest[0], str_of_bytes(b, split->text_bytes[0]));
  bool is_labeled = m->classify->kind != LABEL_NONE;
  const char *cut = is_labeled ? "were cut to" : "were divided into texts of";
  const char *empty = is_labeled ? "have no word" : "without a word were left out";
  if (counts->cut == 1) cut = is_labeled ? "was cut to" : "was divided into texts of";
  if (counts->empty == 1) empty = is_labeled ? "has no word" : "without a word was left out";
  if (counts->cut)
    printf("%-10s %s %stext%s %s %s tokens\n", "", str_of_count(a, counts->cut),
           is_labeled ? "" : "longer ", str_plural(counts->cut), cut,
           str_of_count(d, m->max_tokens));
  if (counts->empty)
    printf("%-10s %s text%s %s\n", "", str_of_count(a, counts->empty),
           str_plural(counts->empty), empty);
}

/* Prints how many texts of each split have each label. */
static void print_labels(const Meta *m) {
  const MetaClassify *c = m->classify;
  static const char *const title[LABEL_KINDS] = {"classes", "labels, any number for a text",
                                                 "values", "labels"};
  char number[32];
  bool is_value = c->kind == LABEL_NUMBER && c->labels == 1;
  printf("\n%zu %s", c->labels, is_value ? "value" : title[c->kind]);
  if (c->has_threshold) printf("; 1 is %g and more", c->threshold);
  printf("\n");
  for (int s = 0; s < SPLITS; s++)
    if (m->split[s].lines) printf("%12s         ", split_name[s]);
  printf(" label\n");
  for (size_t i = 0; i < c->labels; i++) {
    for (int s = 0; s < SPLITS; s++) {
      uint64_t n = c->counts[s].labeled[i];
      if (m->split[s].lines)
        printf("%12s %6.2f %%", str_of_count(number, n),
               100.0 * (double)n / (double)m->split[s].pairs);
    }
    printf("  ");
    out_visible(c->name[i]);
    printf("\n");
  }
}

static void print_ranges(const Inspect *in) {
  const MetaClassify *c = in->data.meta.classify;
  if (c->kind != LABEL_NUMBER) return;
  printf("\n%s: values\n       least        mean        most  label\n", split_name[in->split]);
  for (size_t i = 0; i < c->labels; i++) {
    const Range *r = &in->range[i];
    printf("%12g %11g %11g  ", r->least, r->count ? r->sum / (double)r->count : 0, r->most);
    out_visible(c->name[i]);
    printf("\n");
  }
}

static uint64_t count_bin(const Inspect *in, uint32_t from, uint32_t to) {
  uint64_t n = 0;
  for (uint32_t tokens = from; tokens <= to && tokens <= in->longest; tokens++)
    n += in->count[tokens];
  return n;
}

static void print_histogram(const Inspect *in) {
  uint32_t step = in->longest / BARS + 1;
  uint64_t most = 1, texts = in->data.meta.split[in->split].pairs;
  for (uint32_t from = 1; from <= in->longest; from += step) {
    uint64_t n = count_bin(in, from, from + step - 1);
    if (n > most) most = n;
  }
  printf("\n%s: tokens of a text, with [CLS] and [SEP]\n", split_name[in->split]);
  for (uint32_t from = 1; from <= in->longest; from += step) {
    uint64_t n = count_bin(in, from, from + step - 1);
    int bar = (int)((double)n * BAR_WIDTH / (double)most + 0.5);
    printf("%4u-%-4u %7.2f %% %.*s\n", from, from + step - 1, 100.0 * (double)n / (double)texts,
           bar, "########################################");
  }
}

static void print_batches(const Inspect *in) {
  char a[32], b[32];
  const OrderPlan *p = &in->plan;
  printf("\nbatches of %s tokens: %s per epoch, %.1f texts each, %.2f %% full\n",
         str_of_count(a, p->capacity), str_of_count(b, p->batches),
         (double)in->data.order.pairs / (double)p->batches, 100 * p->fill);
}

static void print_sample(void *context, const char *labels, const char *text) {
  (void)context;
  printf("  ");
  out_visible(labels);
  if (labels[0]) printf(": ");
  out_visible(text);
  printf("\n");
}

static Err print_text(Inspect *in, const OptSet *opts) {
  const Meta *m = &in->data.meta;
  print_head(in);
  for (int s = 0; s < SPLITS; s++) print_split(m, (Split)s);
  if (opt_flag(opts, "verify"))
    printf("%-10s every checksum matches, of the shards and the other files of the data set\n",
           "verified");
  if (m->classify->kind != LABEL_NONE) print_labels(m);
  print_ranges(in);
  print_histogram(in);
  if (in->split == SPLIT_TRAIN) print_batches(in);
  if (opt_count(opts, "samples")) printf("\nsamples\n");
  return visit_samples(in, opts, print_sample, NULL);
}

/* ---- JSON ---- */

static void add_sample(void *context, const char *labels, const char *text) {
  json_array_append_new(context, json_pack("{s:s, s:s}", "labels", labels, "text", text));
}

static json_t *print_lengths(const Inspect *in) {
  json_t *list = json_array();
  for (uint32_t n = 0; n <= in->longest; n++)
    json_array_append_new(list, json_integer((json_int_t)in->count[n]));
  return list;
}

static Err dump_json(json_t *root) {
  Err err = ERR_OK;
  if (json_dumpf(root, stdout, JSON_INDENT(1)) != 0) {
    err = out_check();
    if (!err) err = err_set(ERR_WORK, "out of memory while writing JSON");
  }
  putchar('\n');
  return err;
}

static Err print_json(Inspect *in, const OptSet *opts) {
  Str meta = {0};
  TRY(meta_print(&in->data.meta, &meta));
  json_t *root = json_loads(str_text(&meta), 0, NULL), *samples = json_array();
  str_free(&meta);
  Err err = visit_samples(in, opts, add_sample, samples);
  json_object_set_new(root, "split", json_string(split_name[in->split]));
  json_object_set_new(root, "texts_by_tokens", print_lengths(in));
  json_object_set_new(root, "samples", samples);
  if (opt_flag(opts, "verify")) json_object_set_new(root, "verified", json_true());
  const OrderPlan *p = &in->plan;
  if (in->split == SPLIT_TRAIN)
    json_object_set_new(root, "batches",
                        json_pack("{s:I, s:I, s:f}", "tokens", (json_int_t)p->capacity,
                                  "per_epoch", (json_int_t)p->batches, "fill", p->fill));
  if (!err) err = dump_json(root);
  json_decref(root);
  return err;
}

/* ---- */

static Split find_split(const char *name) {
  int s = SPLIT_TRAIN;
  while (strcmp(split_name[s], name) != 0) s++;
  return (Split)s;
}

typedef Err (*OpenDataSet)(DataSet *d, const char *dir);

static Err inspect_data_set(Inspect *in, OpenDataSet open, const OptSet *opts) {
  const char *path = opt_operand(opts, 0);
  TRY(open(&in->data, path));
  const MetaClassify *c = in->data.meta.classify;
  in->split = find_split(opt_text(opts, "split"));
  if (in->data.meta.split[in->split].pairs == 0)
    return err_set(ERR_WORK, "%s has no %s split; see --split", path, split_name[in->split]);
  if (opt_flag(opts, "verify")) TRY(dataset_verify(&in->data));
  TRY(mem_alloc(&in->target, text_targets(c), sizeof *in->target));
  TRY(mem_alloc(&in->range, c->labels, sizeof *in->range));
  DataReader reader;
  dataset_enter(&in->data, &reader);
  Err err = count_split(in, &reader);
  dataset_leave(&reader);
  if (err) return err;
  if (in->split == SPLIT_TRAIN)
    TRY(order_plan(&in->plan, &in->data.order, (uint32_t)opt_count(opts, "batch-tokens")));
  return opt_flag(opts, "json") ? print_json(in, opts) : print_text(in, opts);
}

static Err inspect_texts(OpenDataSet open, const OptSet *opts) {
  Inspect *in;
  TRY(mem_alloc(&in, 1, sizeof *in));
  Err err = inspect_data_set(in, open, opts);
  order_plan_free(&in->plan);
  dataset_close(&in->data);
  mem_free(in->target);
  mem_free(in->range);
  mem_free(in);
  return err;
}

Err classify_inspect(const OptSet *opts) {
  return inspect_texts(dataset_open_texts, opts);
}

Err mlm_inspect(const OptSet *opts) {
  return inspect_texts(dataset_open_unlabeled, opts);
}
