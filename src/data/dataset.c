/* Opens and verifies a data set directory. Depends on base, meta, manifest, shard_pool, order,
 * text/sp_facts, text_encoder, text_shard. */
#include "data/dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/progress.h"
#include "data/manifest.h"
#include "data/text_encoder.h"
#include "data/text_shard.h"
#include "text/sp_facts.h"
#include "text/tokenizer.h"

#define JSON_LIMIT ((size_t)1 << 24)
/* Maximum number of shards mapped at the same time; a quarter of vm.max_map_count if that is
 * less. */
#define MAPPED_MOST 16384

Err dataset_path(const DataSet *d, const char *name, char out[FILE_PATH_MAX]) {
  return file_join(out, d->dir, name);
}

static Err read_meta(DataSet *d) {
  char path[FILE_PATH_MAX];
  TRY(place_check(d->dir));
  TRY(dataset_path(d, "dataset.json", path));
  if (!place_exists(d->dir))
    return err_set(ERR_WORK,
                   "there is no data set %s: the path does not exist; check the path, or "
                   "create one with 'trireme prepare'",
                   d->dir);
  if (!place_exists(path)) {
    return err_set(
        ERR_WORK,
        "%s is not a data set: it has no dataset.json; create one with 'trireme prepare'",
        d->dir);
  }
  Str text = {0};
  Err err = place_read_all(path, JSON_LIMIT, &text);
  if (!err) err = meta_parse(&d->meta, str_text(&text), text.len, path);
  str_free(&text);
  return err;
}

/* Returns true if the source and target columns were encoded with the data set's tokenizer. */
static bool has_own_ids(const DataSet *d, const Shard *s) {
  for (int side = 0; side < 2; side++) {
    const ShardColumn *c = s->side[side];
    if (!c || (int64_t)c->vocab != d->meta.vocab ||
        strcmp(c->tokenizer_sha256, d->meta.tokenizer_sha256) != 0)
      return false;
  }
  return true;
}

/* Refuses a shard with a required column that this version does not use: ignoring it would lose
 * information. */
static Err check_columns(const Shard *s) {
  for (size_t i = 0; i < s->columns; i++) {
    const ShardColumn *c = &s->column[i];
    if (!c->is_required || c == s->side[0] || c == s->side[1]) continue;
    return err_set(ERR_WORK,
                   "%s has a required column '%s', which this trireme does not use; it was "
                   "written by a newer version of trireme: use that version",
                   s->file.map.path, c->name);
  }
  return ERR_OK;
}

/* Opens a shard and checks that it is the one that dataset.json names. */
static Err open_shard(const DataSet *d, const MetaFile *file, Shard *shard) {
  char path[FILE_PATH_MAX];
  TRY(dataset_path(d, file->name, path));
  TRY(shard_open(shard, path));
  TRY(d->meta.classify ? text_shard_check(shard, &d->meta) : check_columns(shard));
  bool same = shard->file.map.size == file->bytes && shard->examples == file->pairs &&
              (d->meta.classify || has_own_ids(d, shard));
  if (!same)
    return err_set(ERR_WORK,
                   "%s does not belong to %s/dataset.json: its size, number of pairs or "
                   "tokenizer differs; prepare the data set again",
                   path, d->dir);
  return ERR_OK;
}

/* Opens a shard for the shard pool, which numbers the shards of all splits consecutively. */
static Err open_numbered(void *context, size_t number, Shard *shard) {
  const DataSet *d = context;
  int split = SPLITS - 1;
  while (d->base[split] > number) split--;
  return open_shard(d, &d->meta.split[split].shard[number - d->base[split]], shard);
}

/* Returns how many shards may be mapped at the same time: a quarter of the mappings that the
 * kernel allows a process, because libraries and threads need mappings too. */
static size_t read_mapping_limit(void) {
  unsigned long allowed = 65530; /* default of the Linux kernel */
  FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
  if (f && fscanf(f, "%lu", &allowed) != 1) allowed = 65530;
  if (f) fclose(f);
  uint64_t limit = allowed / 4 < MAPPED_MOST ? allowed / 4 : MAPPED_MOST;
  return (size_t)fault_number("mapped-shards", limit);
}

/* Computes the number of the first pair of each shard of a split; adds the number of shards to
 * *shards. */
static Err count_split(DataSet *d, Split split, size_t *shards) {
  const MetaSplit *m = &d->meta.split[split];
  TRY(mem_alloc(&d->first[split], m->shards + 1, sizeof *d->first[split]));
  uint64_t pairs = 0;
  for (size_t i = 0; i < m->shards; i++) {
    pairs += m->shard[i].pairs;
    if (pairs > INT64_MAX) break;
    d->first[split][i + 1] = pairs;
  }
  if (pairs != m->pairs)
    return err_set(ERR_WORK,
                   "%s/dataset.json is damaged: the %s shards hold %" PRIu64
                   " pairs, not %" PRIu64 "; prepare the data set again",
                   d->dir, split_name[split], pairs, m->pairs);
  d->base[split] = *shards;
  *shards += m->shards;
  return ERR_OK;
}

/* Loads the list of shards of format 2. */
static Err load_manifest(DataSet *d) {
  Meta *m = &d->meta;
  char path[FILE_PATH_MAX];
  if (m->format == 1) return ERR_OK;
  if (!m->manifest.name[0])
    return err_set(ERR_WORK,
                   "%s/dataset.json is damaged: 'manifest' is missing; prepare the data set "
                   "again",
                   d->dir);
  TRY(dataset_path(d, m->manifest.name, path));
  TRY(manifest_load(path, m));
  for (int s = 0; s < SPLITS; s++) {
    if (m->split[s].shards == m->split[s].shards_listed) continue;
    return err_set(ERR_WORK,
                   "%s/dataset.json is damaged: 'shards' of %s is %zu and %s lists %zu; "
                   "prepare the data set again",
                   d->dir, split_name[s], m->split[s].shards_listed, path, m->split[s].shards);
  }
  return ERR_OK;
}

/* Compares the size of every shard without opening it. A shard whose size differs is opened,
 * because that reports a more exact error. */
static Err check_sizes(const DataSet *d) {
  for (int s = 0; s < SPLITS; s++) {
    for (size_t i = 0; i < d->meta.split[s].shards; i++) {
      const MetaFile *file = &d->meta.split[s].shard[i];
      char path[FILE_PATH_MAX];
      uint64_t bytes;
      TRY(dataset_path(d, file->name, path));
      TRY(place_size(path, &bytes));
      if (bytes == file->bytes) continue;
      Shard shard = {0};
      Err err = open_shard(d, file, &shard);
      shard_close(&shard);
      TRY(err);
    }
  }
  return ERR_OK;
}

static Err refuse_tokenizer(const DataSet *d, const char *path, const char *hex) {
  return err_set(ERR_WORK,
                 "%s is not the tokenizer of this data set: its SHA-256 is %.12s…, expected "
                 "%.12s…; restore the original file, or prepare the data set again",
                 path, hex, d->meta.tokenizer_sha256);
}

/* Compares the pieces of a SentencePiece model with dataset.json. */
static Err check_pieces(const DataSet *d, const char *path, const Str *bytes) {
  const Meta *m = &d->meta;
  SpFacts facts;
  TRY(sp_facts(&facts, str_text(bytes), bytes->len, path));
  if (facts.pieces == m->vocab && facts.pad == m->pad && facts.bos == m->bos &&
      facts.eos == m->eos && facts.unk == m->unk)
    return ERR_OK;
  return err_set(ERR_WORK,
                 "%s/dataset.json is damaged: it has a vocabulary of %d (pad %d, bos %d, eos "
                 "%d, unk %d) where %s has %d (%d, %d, %d, %d); prepare the data set again",
                 d->dir, m->vocab, m->pad, m->bos, m->eos, m->unk, path, facts.pieces,
                 facts.pad, facts.bos, facts.eos, facts.unk);
}

/* Compares the vocabulary of a classifier with dataset.json. */
static Err check_vocab(const DataSet *d, const char *path, TextTokenizer kind) {
  const Meta *m = &d->meta;
  TextEncoder e;
  TRY(text_encoder_open(&e, path, kind, (BertRules){0}));
  bool is_same = e.vocab == m->vocab && e.pad == m->pad && e.cls == m->bos && e.sep == m->eos &&
                 e.unk == m->unk && e.mask == m->classify->mask;
  text_encoder_close(&e);
  if (is_same) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s/dataset.json is damaged: its vocabulary (%d pieces, [CLS] %d, [SEP] %d) is "
      "not that of %s; prepare the data set again",
      d->dir, m->vocab, m->bos, m->eos, path);
}

/* Fails unless the SHA-256 of the tokenizer matches: ids are meaningless with another
 * tokenizer. */
static Err check_tokenizer(const DataSet *d) {
  const char *name = d->meta.classify ? d->meta.classify->tokenizer_file : "tokenizer.model";
  char path[FILE_PATH_MAX], hex[65];
  Str bytes = {0};
  Sha256 sha;
  Err err;
  TRY_DONE(dataset_path(d, name, path));
  TRY_DONE(place_read_all(path, TOKENIZER_LIMIT, &bytes));
  sha256_begin(&sha);
  sha256_add(&sha, str_text(&bytes), bytes.len);
  sha256_end(&sha, hex);
  if (strcmp(hex, d->meta.tokenizer_sha256) != 0)
    err = refuse_tokenizer(d, path, hex);
  else if (strcmp(name, "tokenizer.model") == 0)
    err = check_pieces(d, path, &bytes);
  else
    err = check_vocab(d, path, text_tokenizer_kind(name));
done:
  str_free(&bytes);
  return err;
}

static Err check_longest(const DataSet *d) {
  for (int s = 0; s < SPLITS; s++) {
    const MetaSplit *m = &d->meta.split[s];
    uint64_t longest = m->longest[0] > m->longest[1] ? m->longest[0] : m->longest[1];
    if (longest > d->meta.max_tokens) {
      return err_set(ERR_WORK,
                     "%s/dataset.json is damaged: 'max_tokens' is %u and the longest sentence "
                     "of %s has %llu; prepare the data set again",
                     d->dir, d->meta.max_tokens, split_name[s], (unsigned long long)longest);
    }
  }
  return ERR_OK;
}

/* Fails if a pair has more than max_tokens tokens: a model has positions for max_tokens and eos
 * only. */
static Err check_lengths(const DataSet *d, const OrderWindow *w, const char *path) {
  for (size_t i = 0; i < w->cells; i++) {
    const OrderCell *c = &w->cell[i];
    if (c->len[0] > d->meta.max_tokens || c->len[1] > d->meta.max_tokens) {
      return err_set(ERR_WORK,
                     "%s/dataset.json is damaged: 'max_tokens' is %u and %s has a pair of %u "
                     "and %u tokens (byte %zu); prepare the data set again",
                     d->dir, d->meta.max_tokens, path, c->len[0], c->len[1],
                     (size_t)((const uint8_t *)c - d->order.file.map.bytes));
    }
  }
  return ERR_OK;
}

/* Fails unless the training order matches the shards: the same number of pairs, and windows of
 * whole shards. */
static Err check_order(const DataSet *d, const char *path) {
  const Order *o = &d->order;
  size_t shard = 0;
  bool is_own = o->pairs == d->meta.split[SPLIT_TRAIN].pairs;
  for (size_t i = 0; i < o->windows && is_own; i++) {
    while (d->first[SPLIT_TRAIN][shard] < o->window[i].first) shard++;
    is_own = d->first[SPLIT_TRAIN][shard] == o->window[i].first;
    TRY(check_lengths(d, &o->window[i], path));
  }
  if (is_own) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s does not belong to %s/dataset.json: it was computed for other "
                 "shards; prepare the data set again",
                 path, d->dir);
}

static Err check_dataset(DataSet *d) {
  TRY(read_meta(d));
  TRY(check_longest(d));
  TRY(check_tokenizer(d));
  TRY(load_manifest(d));
  size_t shards = 0;
  for (int s = 0; s < SPLITS; s++) TRY(count_split(d, (Split)s, &shards));
  TRY(check_sizes(d));
  return pool_init(&d->pool, shards, read_mapping_limit(), open_numbered, d);
}

static Err open_order(DataSet *d) {
  if (!d->meta.order.name[0]) {
    return err_set(ERR_WORK,
                   "%s/dataset.json is damaged: 'order' is missing; prepare the data set again",
                   d->dir);
  }
  char path[FILE_PATH_MAX];
  TRY(dataset_path(d, d->meta.order.name, path));
  TRY(order_open(&d->order, path));
  return check_order(d, path);
}

/* Clears `d` and sets its directory, without slashes at the end. */
static Err name_dataset(DataSet *d, const char *dir) {
  *d = (DataSet){0};
  TRY(file_join(d->dir, dir, ""));
  size_t n = strlen(d->dir);
  while (n > 1 && d->dir[n - 1] == '/') d->dir[--n] = '\0';
  return ERR_OK;
}

Err dataset_open_shards(DataSet *d, const char *dir) {
  TRY(name_dataset(d, dir));
  Err err = check_dataset(d);
  if (err) dataset_close(d);
  return err;
}

/* Opens all validation and test shards, which a run reads late: a damaged one is then reported at
 * the start and not at the first validation. Of the training shards only the first is opened,
 * because opening 100,000 shards would take minutes. */
static Err open_sample_shards(DataReader *r) {
  Shard *shard;
  for (int s = 0; s < SPLITS; s++) {
    size_t shards = r->data->meta.split[s].shards;
    if (s == SPLIT_TRAIN && shards > 1) shards = 1;
    for (size_t i = 0; i < shards; i++) TRY(dataset_shard(r, (Split)s, i, &shard));
  }
  return ERR_OK;
}

static Err check_sample_shards(DataSet *d) {
  DataReader reader;
  dataset_enter(d, &reader);
  Err err = open_sample_shards(&reader);
  dataset_leave(&reader);
  return err;
}

static Err check_task(const DataSet *d, const char *task, const char *other) {
  const char *own = meta_task(&d->meta);
  if (strcmp(own, task) == 0 || (other && strcmp(own, other) == 0)) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s is a data set for the task %s, not for %s; use one that was written by "
                 "'trireme prepare --task %s'",
                 d->dir, own, task, task);
}

/* Opens a data set of this task, or of the other one if it is not NULL. */
static Err open_task(DataSet *d, const char *dir, const char *task, const char *other) {
  TRY(dataset_open_shards(d, dir));
  Err err = check_task(d, task, other);
  if (!err) err = check_sample_shards(d);
  if (!err) err = open_order(d);
  if (err) dataset_close(d);
  return err;
}

Err dataset_open(DataSet *d, const char *dir) {
  return open_task(d, dir, "translate", NULL);
}

Err dataset_open_texts(DataSet *d, const char *dir) {
  TRY(open_task(d, dir, "classify", NULL));
  Err err = dataset_verify_file(d, &d->meta.classify->label_file);
  if (err) dataset_close(d);
  return err;
}

Err dataset_open_unlabeled(DataSet *d, const char *dir) {
  return open_task(d, dir, "mlm", NULL);
}

Err dataset_open_any_texts(DataSet *d, const char *dir) {
  return open_task(d, dir, "mlm", "classify");
}

Err dataset_find_task(const char *dir, const char **task) {
  DataSet d;
  TRY(name_dataset(&d, dir));
  Err err = read_meta(&d);
  *task = err ? NULL : meta_task(&d.meta);
  meta_free(&d.meta);
  return err;
}

/* Returns the number of shards of the window that has the most shards. */
static size_t count_widest_window(const DataSet *d) {
  const uint64_t *first = d->first[SPLIT_TRAIN];
  size_t widest = 0;
  size_t begin = 0;
  for (size_t i = 0; i < d->order.windows; i++) {
    size_t end = begin;
    uint64_t last = d->order.window[i].first + d->order.window[i].pairs;
    while (end < d->meta.split[SPLIT_TRAIN].shards && first[end] < last) end++;
    if (end - begin > widest) widest = end - begin;
    begin = end;
  }
  return widest;
}

void dataset_warn_windows(const DataSet *d) {
  size_t widest = count_widest_window(d);
  if (widest <= d->pool.limit) return;
  log_warn(
      "a window of the training order has %zu shards, and at most %zu are mapped at once: "
      "training will be slow, as shards are unmapped and mapped again for every batch; prepare "
      "the data set with a smaller --window-pairs or a larger --shard-size",
      widest, d->pool.limit);
}

void dataset_close(DataSet *d) {
  pool_free(&d->pool);
  for (int s = 0; s < SPLITS; s++) mem_free(d->first[s]);
  order_close(&d->order);
  meta_free(&d->meta);
  *d = (DataSet){0};
}

void dataset_enter(DataSet *d, DataReader *r) {
  r->data = d;
  pool_enter(&d->pool, &r->pool);
}

void dataset_leave(DataReader *r) {
  pool_leave(&r->pool);
}

PairPlace dataset_locate(const DataSet *d, Split split, uint64_t i) {
  const uint64_t *first = d->first[split];
  size_t low = 0;
  size_t high = d->meta.split[split].shards;
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    if (first[middle] <= i)
      low = middle;
    else
      high = middle;
  }
  return (PairPlace){.shard = low, .within = i - first[low]};
}

Err dataset_shard(DataReader *r, Split split, size_t s, Shard **shard) {
  return pool_get(&r->pool, r->data->base[split] + s, shard);
}

Err dataset_find(DataReader *r, Split split, uint64_t i, Shard **shard, uint64_t *within) {
  PairPlace place = dataset_locate(r->data, split, i);
  *within = place.within;
  return dataset_shard(r, split, place.shard, shard);
}

const Shard *dataset_peek(const DataReader *r, Split split, size_t s) {
  return pool_peek(&r->pool, r->data->base[split] + s);
}

Err dataset_verify_file(const DataSet *d, const MetaFile *file) {
  char path[FILE_PATH_MAX], hex[65];
  TRY(dataset_path(d, file->name, path));
  TRY(place_sha256(path, hex));
  if (strcmp(hex, file->sha256) == 0) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s is damaged: its SHA-256 is %.12s…, but prepare wrote %.12s…; prepare the "
                 "data set again",
                 path, hex, file->sha256);
}

static Err verify_file(const DataSet *d, const MetaFile *file, Progress *progress) {
  TRY(dataset_verify_file(d, file));
  progress_set(progress, progress->done + file->bytes);
  return ERR_OK;
}

/* Compares the block checksums of every shard, whose errors name the damaged block, and then the
 * SHA-256 of the shard. */
static Err verify_shards(DataReader *r, Progress *progress) {
  const DataSet *d = r->data;
  for (int s = 0; s < SPLITS; s++) {
    for (size_t i = 0; i < d->meta.split[s].shards; i++) {
      Shard *shard;
      TRY(dataset_shard(r, (Split)s, i, &shard));
      TRY(checked_all(&shard->file));
      TRY(verify_file(d, &d->meta.split[s].shard[i], progress));
    }
  }
  return ERR_OK;
}

Err dataset_verify(DataSet *d) {
  uint64_t bytes = d->meta.order.bytes;
  for (int s = 0; s < SPLITS; s++) {
    bytes += d->meta.split[s].raw[0].bytes + d->meta.split[s].raw[1].bytes;
    for (size_t i = 0; i < d->meta.split[s].shards; i++)
      bytes += d->meta.split[s].shard[i].bytes;
  }
  Progress progress;
  DataReader reader;
  progress_begin(&progress, "verify", "bytes", bytes);
  dataset_enter(d, &reader);
  Err err = verify_shards(&reader, &progress);
  dataset_leave(&reader);
  if (err) return err;
  for (int s = 0; s < SPLITS; s++) {
    for (int side = 0; side < 2; side++) {
      const MetaFile *raw = &d->meta.split[s].raw[side];
      if (raw->name[0]) TRY(verify_file(d, raw, &progress));
    }
  }
  TRY(checked_all(&d->order.file));
  TRY(verify_file(d, &d->meta.order, &progress));
  progress_end(&progress);
  return ERR_OK;
}
