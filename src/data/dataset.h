/* An open data set. dataset.json, the manifest and the tokenizer are checked when it is opened,
 * and the training order is mapped. Training shards are mapped when they are first read, a
 * limited number at the same time, so a data set of 100,000 shards opens in less than a second.
 * Depends on base, meta, manifest, shard_pool, order. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "data/meta.h"
#include "data/order.h"
#include "data/shard_pool.h"

/* An open data set. Must not be moved or copied while it is open. */
typedef struct {
  char dir[FILE_PATH_MAX];
  Meta meta;
  ShardPool pool;      /* shards of all splits, in the order of the splits */
  size_t base[SPLITS]; /* number of the split's first shard in the pool */
  /* number of the first pair of each shard; last element: number of pairs */
  uint64_t *first[SPLITS];
  Order order; /* order of the training pairs */
} DataSet;

/* Opens a data set of sentence pairs and checks the properties that all readers rely on: the tokenizer is the one
 * that produced the ids, no sentence is longer than max_tokens, and every shard exists with the
 * recorded size. Opens the shards of valid and test and the first shard of train, which checks
 * their headers, vocabularies and tokenizer hashes. Other training shards are checked when they
 * are first read, ids when they are copied. */
NODISCARD Err dataset_open(DataSet *d, const char *dir);
/* The same for a data set of labeled texts, written by prepare --task classify. Each function refuses
 * a data set of another task. */
NODISCARD Err dataset_open_texts(DataSet *d, const char *dir);
/* The same for texts without labels, written by prepare --task mlm. */
NODISCARD Err dataset_open_unlabeled(DataSet *d, const char *dir);
/* The same for texts with or without labels; a data set of labeled texts may have no mask id. */
NODISCARD Err dataset_open_any_texts(DataSet *d, const char *dir);
/* Reads dataset.json alone: sets *task to "translate", "classify" or "mlm". */
NODISCARD Err dataset_find_task(const char *dir, const char **task);
/* Opens a data set that has no training order yet. Used by prepare. */
NODISCARD Err dataset_open_shards(DataSet *d, const char *dir);
/* Warns if a window of the training order has more shards than may be mapped at the same time.
 * Batches mix all pairs of a window, so almost every pair would then have to map a shard
 * again. */
void dataset_warn_windows(const DataSet *d);
void dataset_close(DataSet *d);
/* Returns the path of a file in the data set directory. */
NODISCARD Err dataset_path(const DataSet *d, const char *name, char out[FILE_PATH_MAX]);
/* Location of a pair: number of the shard in the split, number of the pair in the shard. */
typedef struct {
  size_t shard;
  uint64_t within;
} PairPlace;
PairPlace dataset_locate(const DataSet *d, Split split, uint64_t i);
/* A reader of pairs, active from dataset_enter to dataset_leave; a thread may have several. A
 * shard that it obtained stays mapped until its next call of dataset_shard, dataset_find or dataset_leave. */
typedef struct {
  const DataSet *data;
  PoolReader pool;
} DataReader;
void dataset_enter(DataSet *d, DataReader *r);
void dataset_leave(DataReader *r);
/* Returns shard number `s` of the split. */
NODISCARD Err dataset_shard(DataReader *r, Split split, size_t s, Shard **shard);
/* Returns the shard of pair `i` of the split, and the number of the pair in that shard. */
NODISCARD Err dataset_find(DataReader *r, Split split, uint64_t i, Shard **shard,
                           uint64_t *within);
/* Returns shard number `s`, or NULL if it is not open. Used for prefetching. */
const Shard *dataset_peek(const DataReader *r, Split split, size_t s);

/* Compares the SHA-256 of a file of the data set with the one in dataset.json. */
NODISCARD Err dataset_verify_file(const DataSet *d, const MetaFile *file);
/* Reads every byte of the data set and compares all checksums and hashes. */
NODISCARD Err dataset_verify(DataSet *d);

#endif
