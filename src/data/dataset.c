/* Opening and verifying a data set directory. Relies on base, meta, shard, order,
 * text/sp_facts. */
#include "data/dataset.h"

#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "text/sp_facts.h"
#include "text/tokenizer.h"

#define JSON_LIMIT ((size_t)1 << 24)

Err dataset_path(const DataSet *d, const char *name, char out[FILE_PATH_MAX]) {
  return file_join(out, d->dir, name);
}

static Err read_meta(DataSet *d) {
  char path[FILE_PATH_MAX];
  TRY(dataset_path(d, "dataset.json", path));
  if (!file_exists(d->dir))
    return err_set(
        ERR_WORK,
        "there is no data set %s: nothing has this name; check the path, or make one "
        "with 'trireme prepare'",
        d->dir);
  if (!file_exists(path)) {
    return err_set(
        ERR_WORK,
        "%s is not a data set: it has no dataset.json; make one with 'trireme prepare'",
        d->dir);
  }
  Str text = {0};
  Err err = file_read(path, JSON_LIMIT, &text);
  if (!err) err = meta_parse(&d->meta, str_text(&text), text.len, path);
  str_free(&text);
  return err;
}

/* Source and target must have the ids of the data set's tokenizer. */
static bool has_own_ids(const DataSet *d, const Shard *s) {
  for (int side = 0; side < 2; side++) {
    const ShardColumn *c = s->side[side];
    if (!c || (int64_t)c->vocab != d->meta.vocab ||
        strcmp(c->tokenizer_sha256, d->meta.tokenizer_sha256) != 0)
      return false;
  }
  return true;
}

/* A required column that no code uses means something that would be lost. */
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
static Err open_shard(DataSet *d, const MetaFile *file, Shard *shard) {
  char path[FILE_PATH_MAX];
  TRY(dataset_path(d, file->name, path));
  TRY(shard_open(shard, path));
  TRY(check_columns(shard));
  bool same = shard->file.map.size == file->bytes && shard->examples == file->pairs &&
              has_own_ids(d, shard);
  if (!same)
    return err_set(ERR_WORK,
                   "%s does not belong to %s/dataset.json; prepare the data set again", path,
                   d->dir);
  return ERR_OK;
}

static Err open_split(DataSet *d, Split split) {
  MetaSplit *m = &d->meta.split[split];
  TRY(mem_alloc(&d->shard[split], m->shards, sizeof *d->shard[split]));
  TRY(mem_alloc(&d->first[split], m->shards + 1, sizeof *d->first[split]));
  uint64_t pairs = 0;
  for (size_t i = 0; i < m->shards; i++) {
    TRY(open_shard(d, &m->shard[i], &d->shard[split][i]));
    pairs += m->shard[i].pairs;
    d->first[split][i + 1] = pairs;
  }
  if (pairs != m->pairs) {
    return err_set(
        ERR_WORK, "%s/dataset.json is damaged: the %s shards hold %llu pairs, not %llu", d->dir,
        split_name[split], (unsigned long long)pairs, (unsigned long long)m->pairs);
  }
  return ERR_OK;
}

/* The ids mean what this very file says, so it must be the one that made them. */
static Err check_tokenizer(const DataSet *d) {
  const Meta *m = &d->meta;
  char path[FILE_PATH_MAX], hex[65];
  Str bytes = {0};
  SpFacts facts;
  Sha256 sha;
  Err err;
  TRY_DONE(dataset_path(d, "tokenizer.model", path));
  TRY_DONE(file_read(path, TOKENIZER_LIMIT, &bytes));
  sha256_begin(&sha);
  sha256_add(&sha, str_text(&bytes), bytes.len);
  sha256_end(&sha, hex);
  if (strcmp(hex, m->tokenizer_sha256) != 0) {
    err = err_set(ERR_WORK,
                  "%s is not the data set's own tokenizer: its SHA-256 is %.12s…, not %.12s…; "
                  "bring that one back, or prepare the data set again",
                  path, hex, m->tokenizer_sha256);
    goto done;
  }
  TRY_DONE(sp_facts(&facts, str_text(&bytes), bytes.len, path));
  if (facts.pieces != m->vocab || facts.pad != m->pad || facts.bos != m->bos ||
      facts.eos != m->eos || facts.unk != m->unk)
    err = err_set(ERR_WORK,
                  "%s/dataset.json is damaged: it has a vocabulary of %d (pad %d, bos %d, eos "
                  "%d, unk %d) where %s has %d (%d, %d, %d, %d); prepare the data set again",
                  d->dir, m->vocab, m->pad, m->bos, m->eos, m->unk, path, facts.pieces,
                  facts.pad, facts.bos, facts.eos, facts.unk);
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

/* A model has positions for max_tokens and the end mark, and no more. */
static Err check_order(const DataSet *d, const char *path) {
  const Order *o = &d->order;
  for (size_t i = 0; i < o->cells; i++) {
    const OrderCell *c = &o->cell[i];
    if (c->len[0] > d->meta.max_tokens || c->len[1] > d->meta.max_tokens) {
      return err_set(ERR_WORK,
                     "%s/dataset.json is damaged: 'max_tokens' is %u and %s has a pair of %u "
                     "and %u tokens (byte %zu); prepare the data set again",
                     d->dir, d->meta.max_tokens, path, c->len[0], c->len[1],
                     (size_t)((const uint8_t *)c - o->file.map.bytes));
    }
  }
  return ERR_OK;
}

static Err open_shards(DataSet *d) {
  TRY(read_meta(d));
  TRY(check_longest(d));
  TRY(check_tokenizer(d));
  for (int s = 0; s < SPLITS; s++) TRY(open_split(d, (Split)s));
  return ERR_OK;
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
  if (d->order.pairs != d->meta.split[SPLIT_TRAIN].pairs) {
    return err_set(ERR_WORK,
                   "%s does not belong to %s/dataset.json; prepare the data set again", path,
                   d->dir);
  }
  return check_order(d, path);
}

Err dataset_open_shards(DataSet *d, const char *dir) {
  *d = (DataSet){0};
  TRY(file_join(d->dir, dir, ""));
  size_t n = strlen(d->dir);
  while (n > 1 && d->dir[n - 1] == '/') d->dir[--n] = '\0';
  Err err = open_shards(d);
  if (err) dataset_close(d);
  return err;
}

Err dataset_open(DataSet *d, const char *dir) {
  TRY(dataset_open_shards(d, dir));
  Err err = open_order(d);
  if (err) dataset_close(d);
  return err;
}

void dataset_close(DataSet *d) {
  for (int s = 0; s < SPLITS; s++) {
    for (size_t i = 0; d->shard[s] && i < d->meta.split[s].shards; i++)
      shard_close(&d->shard[s][i]);
    mem_free(d->shard[s]);
    mem_free(d->first[s]);
  }
  order_close(&d->order);
  meta_free(&d->meta);
  *d = (DataSet){0};
}

Shard *dataset_find(const DataSet *d, Split split, uint64_t i, uint64_t *within) {
  const uint64_t *first = d->first[split];
  size_t low = 0, high = d->meta.split[split].shards;
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    if (first[middle] <= i)
      low = middle;
    else
      high = middle;
  }
  *within = i - first[low];
  return &d->shard[split][low];
}

static Err verify_file(const DataSet *d, const MetaFile *file, Progress *progress) {
  char path[FILE_PATH_MAX], hex[65];
  TRY(dataset_path(d, file->name, path));
  TRY(file_sha256(path, hex));
  progress_set(progress, progress->done + file->bytes);
  if (strcmp(hex, file->sha256) == 0) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s is not what prepare wrote: its SHA-256 is %.12s…, not %.12s…; prepare the "
                 "data set again",
                 path, hex, file->sha256);
}

Err dataset_verify(DataSet *d) {
  uint64_t bytes = d->meta.order.bytes;
  for (int s = 0; s < SPLITS; s++) {
    bytes += d->meta.split[s].raw[0].bytes + d->meta.split[s].raw[1].bytes;
    for (size_t i = 0; i < d->meta.split[s].shards; i++)
      bytes += d->meta.split[s].shard[i].bytes;
  }
  Progress progress;
  progress_begin(&progress, "verify", "bytes", bytes);
  for (int s = 0; s < SPLITS; s++) {
    for (size_t i = 0; i < d->meta.split[s].shards; i++) {
      TRY(checked_all(&d->shard[s][i].file)); /* names the damaged block */
      TRY(verify_file(d, &d->meta.split[s].shard[i], &progress));
    }
  }
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
