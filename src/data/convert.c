/* Converts data sets: reads each shard pair by pair and writes it in the new format. Depends on
 * base, the rest of data. */
#include "data/convert.h"

#include <string.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/place.h"
#include "base/progress.h"
#include "base/stop.h"
#include "data/dataset.h"
#include "data/manifest.h"
#include "data/prepare_finish.h"
#include "data/prepare_state.h"

typedef struct {
  DataSet from;
  DataReader reader;
  PrepareState state;
  Meta *meta; /* description of the new data set */
  ShardBuilder builder;
  Progress progress;
} Convert;

static Err copy_file(const Convert *c, const char *name) {
  char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
  TRY(dataset_path(&c->from, name, from));
  TRY(file_join(to, c->state.dir, name));
  return place_copy(from, to);
}

/* Copies the contents of dataset.json except the list of shards. */
static Err copy_meta(Convert *c) {
  Str text = {0};
  Err err = meta_print(&c->from.meta, &text);
  if (!err) err = meta_parse(c->meta, str_text(&text), text.len, c->from.dir);
  str_free(&text);
  c->meta->format = META_FORMAT;
  c->meta->order = (MetaFile){0};
  for (int s = 0; s < SPLITS; s++) c->meta->split[s].shards = 0;
  return err;
}

/* Copies the pairs of a shard and counts their tokens. */
static Err copy_pairs(Convert *c, Shard *shard, ManifestEntry *e) {
  int32_t ids[2][SHARD_LONGEST];
  for (uint64_t i = 0; i < shard->examples; i++) {
    ShardView view;
    TRY(shard_pair(shard, i, &view));
    for (int side = 0; side < 2; side++) {
      if (view.len[side] > c->from.meta.max_tokens)
        return err_set(ERR_WORK,
                       "%s is damaged: pair %llu has %u tokens, but at most %u are allowed; "
                       "prepare the data set again",
                       shard->file.map.path, (unsigned long long)i, view.len[side],
                       c->from.meta.max_tokens);
      TRY(shard_copy(shard, &view, side, ids[side]));
      e->tokens[side] += view.len[side];
      if (view.len[side] > e->longest[side]) e->longest[side] = view.len[side];
    }
    TRY(shard_add_pair(&c->builder, ids[0], view.len[0], ids[1], view.len[1]));
  }
  return ERR_OK;
}

/* Writes shard i of the split in format 2 and appends its line to the manifest. Format 1 stores
 * the numbers of lines and dropped pairs only per split, so the manifest line has as many lines
 * as pairs and no dropped pairs. */
static Err convert_shard(Convert *c, Split split, size_t i) {
  const MetaFile *file = &c->from.meta.split[split].shard[i];
  ManifestEntry e = {.split = split, .lines = file->pairs};
  char path[FILE_PATH_MAX];
  Shard *shard;
  e.file.pairs = file->pairs;
  memcpy(e.file.name, file->name, sizeof e.file.name);
  TRY(dataset_shard(&c->reader, split, i, &shard));
  TRY(copy_pairs(c, shard, &e));
  TRY(file_join(path, c->state.dir, file->name));
  TRY(shard_write(&c->builder, path, &e.file.bytes, e.file.sha256));
  TRY(file_join(path, c->state.dir, MANIFEST_NAME));
  TRY(manifest_append(path, &e));
  fault_point("convert-shard");
  progress_set(&c->progress, c->progress.done + file->pairs);
  if (stop_asked())
    return err_set(
        ERR_STOPPED,
        "stopped by a signal; what was converted is removed: the same command begins "
        "the conversion again");
  return meta_add_shard(&c->meta->split[split], &e.file);
}

static Err convert_split(Convert *c, Split split) {
  const MetaSplit *m = &c->from.meta.split[split];
  for (int side = 0; side < 2; side++) {
    if (m->raw[side].name[0]) TRY(copy_file(c, m->raw[side].name));
  }
  for (size_t i = 0; i < m->shards; i++) TRY(convert_shard(c, split, i));
  return ERR_OK;
}

static Err run_steps(Convert *c, const char *out, uint64_t window_pairs) {
  uint64_t pairs = 0;
  if (c->from.meta.format != 1)
    return err_set(ERR_WORK, "%s has format %d already; use it as it is", c->from.dir,
                   c->from.meta.format);
  TRY(prepare_check_windows(&c->from.meta.split[SPLIT_TRAIN], window_pairs));
  TRY(prepare_enter_conversion(&c->state, out));
  TRY(copy_meta(c));
  TRY(copy_file(c, "tokenizer.model"));
  TRY(shard_begin_pairs(&c->builder, (uint32_t)c->meta->vocab, c->meta->tokenizer_sha256));
  for (int s = 0; s < SPLITS; s++) pairs += c->from.meta.split[s].pairs;
  progress_begin(&c->progress, "convert", "pairs", pairs);
  /* Converts validation and test before training, the order in which prepare writes them. */
  for (int s = 1; s <= SPLITS; s++) TRY(convert_split(c, (Split)(s % SPLITS)));
  progress_end(&c->progress);
  TRY(prepare_finish(c->state.dir, c->meta, window_pairs));
  return prepare_complete(&c->state, out);
}

/* Removes the files of a failed conversion; keeps the stored error. */
static void remove_partial(const Convert *c) {
  if (c->state.lock < 0) return;
  ErrRecord kept = err_take(ERR_WORK);
  (void)!file_remove_all(c->state.dir);
  err_give(&kept);
}

/* Returns true if `to` is the conversion of `from`. Called if an earlier conversion was killed
 * after it renamed its output to OUT. */
static bool is_conversion(const Meta *from, const Meta *to) {
  bool is_same = strcmp(from->tokenizer_sha256, to->tokenizer_sha256) == 0;
  for (int s = 0; s < SPLITS; s++) {
    is_same = is_same && from->split[s].lines == to->split[s].lines &&
              from->split[s].pairs == to->split[s].pairs;
  }
  return is_same;
}

/* Finishes a conversion that was killed after its rename; *meta receives the description of
 * OUT. */
static Err finish_killed(const char *from, const char *out, Meta *meta) {
  DataSet before, after;
  TRY(dataset_open(&before, from));
  Err err = dataset_open(&after, out);
  if (!err) {
    if (!is_conversion(&before.meta, &after.meta))
      err = err_set(ERR_WORK,
                    "%s is the conversion of another data set than %s; remove it, or choose "
                    "another --out",
                    out, from);
    if (!err) err = prepare_tidy(out);
    if (!err) {
      *meta = after.meta;
      after.meta = (Meta){0};
    }
    dataset_close(&after);
  }
  dataset_close(&before);
  return err;
}

Err convert_run(const char *from, const char *out, uint64_t window_pairs, Meta *meta) {
  Convert c = {.state = {.lock = -1}, .meta = meta};
  *meta = (Meta){0};
  if (prepare_is_converted(out)) return finish_killed(from, out, meta);
  TRY(prepare_check_conversion(out));
  TRY(dataset_open(&c.from, from));
  dataset_enter(&c.from, &c.reader);
  stop_watch();
  Err err = run_steps(&c, out, window_pairs);
  stop_unwatch();
  if (err) remove_partial(&c);
  prepare_leave(&c.state);
  shard_builder_free(&c.builder);
  dataset_leave(&c.reader);
  dataset_close(&c.from);
  if (err) meta_free(meta);
  return err;
}
