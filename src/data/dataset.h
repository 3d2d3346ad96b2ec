/* A prepared data set, opened: dataset.json, the manifest and the tokenizer are checked, the
 * training order is mapped. Training shards are mapped when they are first read, a limited number
 * at once, so a data set of 100,000 shards opens in less than a second. Depends on base, meta,
 * manifest, shard_pool, order. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "data/meta.h"
#include "data/order.h"
#include "data/shard_pool.h"

/* Must not be moved or copied while it is open. */
typedef struct {
  char dir[FILE_PATH_MAX];
  Meta meta;
  ShardPool pool;          /* shards of all splits, in the order of the splits */
  size_t base[SPLITS];     /* number in the pool of the split's first shard */
  uint64_t *first[SPLITS]; /* first pair of each shard, and one past the last */
  Order order;             /* of train */
} DataSet;

/* Checks what all readers rely on: the tokenizer is the one that made the ids, no sentence is
 * longer than max_tokens, and every shard exists with the recorded size. Opens the shards of valid
 * and test and the first one of train, which checks their headers, vocabularies and tokenizer
 * hashes; other training shards are checked when they are first read, ids when they are read. */
NODISCARD Err dataset_open(DataSet *d, const char *dir);
/* For prepare, while there is no order yet. */
NODISCARD Err dataset_open_shards(DataSet *d, const char *dir);
/* Warns if a window of the training order has more shards than may be mapped at once. Batches mix
 * all pairs of a window, so almost every pair would then map a shard anew. */
void dataset_warn_windows(const DataSet *d);
void dataset_close(DataSet *d);
/* Path of a file in the directory. */
NODISCARD Err dataset_path(const DataSet *d, const char *name, char out[FILE_PATH_MAX]);
/* Where a pair is: number of its shard in the split, number of the pair in the shard. */
typedef struct {
  size_t shard;
  uint64_t within;
} PairPlace;
PairPlace dataset_locate(const DataSet *d, Split split, uint64_t i);
/* A section of code that reads pairs; a thread may have several. A shard that it got stays
 * mapped until its next call of dataset_shard or dataset_find, or until it leaves. */
typedef struct {
  const DataSet *data;
  PoolReader pool;
} DataReader;
void dataset_enter(DataSet *d, DataReader *r);
void dataset_leave(DataReader *r);
/* Shard number s of the split. */
NODISCARD Err dataset_shard(DataReader *r, Split split, size_t s, Shard **shard);
/* The shard of pair i of the split, and the pair's number in it. */
NODISCARD Err dataset_find(DataReader *r, Split split, uint64_t i, Shard **shard,
                           uint64_t *within);
/* Shard number s, or NULL where it is not open yet; for prefetching. */
const Shard *dataset_peek(const DataReader *r, Split split, size_t s);

/* Compares the SHA-256 of a file of the data set with the one that prepare recorded. */
NODISCARD Err dataset_verify_file(const DataSet *d, const MetaFile *file);
/* Reads every byte and compares checksums and hashes. */
NODISCARD Err dataset_verify(DataSet *d);

#endif
