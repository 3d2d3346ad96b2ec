/* Writes train.order and dataset.json. Depends on base, dataset, manifest, order. */
#include "data/prepare_finish.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "data/dataset.h"
#include "data/manifest.h"
#include "data/text_shard.h"

/* Stores the size and SHA-256 of the manifest in `meta`. */
static Err hash_manifest(const char *dir, Meta *meta) {
  char path[FILE_PATH_MAX];
  MetaFile *m = &meta->manifest;
  snprintf(m->name, sizeof m->name, "%s", MANIFEST_NAME);
  TRY(file_join(path, dir, m->name));
  TRY(file_size(path, &m->bytes));
  return place_sha256(path, m->sha256);
}

static Err write_meta(const char *dir, const Meta *meta) {
  char path[FILE_PATH_MAX];
  Str text = {0};
  TRY(file_join(path, dir, "dataset.json"));
  Err err = meta_print(meta, &text);
  if (!err) err = file_write(path, text.s, text.len);
  str_free(&text);
  return err;
}

/* Returns the lengths of a labeled text in the terms of a pair: order_plan adds 1 token to each
 * side. */
static Err read_text_length(void *context, uint64_t i, uint32_t len[2]) {
  uint64_t within;
  uint32_t tokens;
  Shard *shard;
  TRY(dataset_find(context, SPLIT_TRAIN, i, &shard, &within));
  TRY(text_shard_length(shard, within, &tokens));
  len[0] = tokens ? tokens - 1 : 0;
  len[1] = 0;
  return ERR_OK;
}

static Err read_lengths(void *context, uint64_t i, uint32_t len[2]) {
  uint64_t within;
  ShardView view;
  Shard *shard;
  TRY(dataset_find(context, SPLIT_TRAIN, i, &shard, &within));
  TRY(shard_pair(shard, within, &view));
  len[0] = view.len[0];
  len[1] = view.len[1];
  return ERR_OK;
}

/* Divides the training shards into windows of about equal size. Every window begins at the start
 * of a shard. pairs: (train->shards) receives the number of pairs of each window; NULL: the
 * windows are only counted. Returns the number of windows. */
static size_t cut_windows(const MetaSplit *train, uint64_t window_pairs, uint64_t *pairs) {
  uint64_t total = 0;
  for (size_t s = 0; s < train->shards; s++) total += train->shard[s].pairs;
  uint64_t wanted = window_pairs ? (total - 1) / window_pairs + 1 : 1;
  uint64_t share = total / wanted;
  /* number of windows that should have one pair more than the others */
  uint64_t rest = total % wanted;
  /* number of the pair at which the current window should end */
  uint64_t end = 0;
  uint64_t first = 0; /* number of the first pair of shard s */
  uint64_t k = 0;
  size_t n = 0;
  for (size_t s = 0; s < train->shards; s++) {
    bool opens = first >= end;
    n += opens;
    for (; end <= first; k++) end += share + (k < rest);
    if (pairs) pairs[n - 1] = (opens ? 0 : pairs[n - 1]) + train->shard[s].pairs;
    first += train->shard[s].pairs;
  }
  return n;
}

Err prepare_check_windows(const MetaSplit *train, uint64_t window_pairs) {
  uint64_t most = fault_number("most-windows", PREPARE_WINDOWS_MAX);
  if (window_pairs == 0 || train->shards <= most)
    /* Every window has at least one shard, so there cannot be too many windows. */
    return ERR_OK;
  size_t windows = cut_windows(train, window_pairs, NULL);
  if (windows <= most) return ERR_OK;
  char limit[32];
  return err_set(ERR_WORK,
                 "--window-pairs %" PRIu64
                 " would create more than %s windows, the maximum; use a larger number",
                 window_pairs, str_of_count(limit, most));
}

/* Warns if a window is much larger than requested. A window consists of whole shards, so large
 * shards cause large windows. */
static void warn_large_window(const uint64_t *pairs, size_t windows, uint64_t window_pairs) {
  char asked[32], largest[32];
  uint64_t most = 0;
  for (size_t i = 0; i < windows; i++) {
    if (pairs[i] > most) most = pairs[i];
  }
  if (!window_pairs || most <= window_pairs + window_pairs / 2) return;
  log_warn(
      "--window-pairs %s: the largest of %zu windows has %s pairs, because a window consists "
      "of whole shards; prepare the text with a smaller --shard-size",
      str_of_count(asked, window_pairs), windows, str_of_count(largest, most));
}

static Err write_order(DataSet *d, const char *path, uint64_t window_pairs, MetaFile *order) {
  uint64_t *pairs;
  DataReader reader;
  TRY(mem_alloc(&pairs, d->meta.split[SPLIT_TRAIN].shards, sizeof *pairs));
  size_t windows = cut_windows(&d->meta.split[SPLIT_TRAIN], window_pairs, pairs);
  warn_large_window(pairs, windows, window_pairs);
  dataset_enter(d, &reader);
  Err err =
      order_write(path, pairs, windows, d->meta.classify ? read_text_length : read_lengths,
                  &reader, &order->bytes, order->sha256);
  dataset_leave(&reader);
  mem_free(pairs);
  return err;
}

Err prepare_finish(const char *dir, Meta *meta, uint64_t window_pairs) {
  DataSet d;
  MetaFile order = {.name = "train.order"};
  char path[FILE_PATH_MAX];
  TRY(hash_manifest(dir, meta));
  TRY(write_meta(dir, meta));
  TRY(file_join(path, dir, order.name));
  TRY(dataset_open_shards(&d, dir));
  Err err = write_order(&d, path, window_pairs, &order);
  if (!err) err = order_open(&d.order, path);
  if (!err) dataset_warn_windows(&d);
  dataset_close(&d);
  if (err) return err;
  meta->order = order;
  return write_meta(dir, meta);
}
