/* A prepared data set, opened: dataset.json checked against its shards, which
 * are mapped and read in place. Relies on base, meta, shard, order. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "data/meta.h"
#include "data/order.h"
#include "data/shard.h"

typedef struct {
  char dir[FILE_PATH_MAX];
  Meta meta;
  Shard *shard[SPLITS];    /* meta.split[s].shards of them */
  uint64_t *first[SPLITS]; /* first pair of each shard, and one past the last */
  Order order;             /* of train */
} DataSet;

/* Everything that the rest trusts is checked: the tokenizer is the one that made the ids, its
 * vocabulary is that of the shards, no sentence is longer than max_tokens. What lies in the
 * shards is checked when it is read. */
NODISCARD Err dataset_open(DataSet *d, const char *dir);
/* For prepare, while there is no order yet. */
NODISCARD Err dataset_open_shards(DataSet *d, const char *dir);
void dataset_close(DataSet *d);
/* Path of a file in the directory. */
NODISCARD Err dataset_path(const DataSet *d, const char *name, char out[FILE_PATH_MAX]);
/* The shard of pair i of the split, and the pair's number in it. */
Shard *dataset_find(const DataSet *d, Split split, uint64_t i, uint64_t *within);
/* Reads every byte and checks it; hashes too. */
NODISCARD Err dataset_verify(DataSet *d);

#endif
