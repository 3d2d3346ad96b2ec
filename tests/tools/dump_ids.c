/* dump_ids DATASET SPLIT SIDE: prints the token ids of every sentence, one line each, in the
 * order of the shards, to compare them with spm_encode. Depends on data/dataset. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

static Err dump_split(DataReader *r, Split split, int side) {
  static int32_t ids[SHARD_LONGEST];
  for (size_t s = 0; s < r->data->meta.split[split].shards; s++) {
    Shard *shard;
    TRY(dataset_shard(r, split, s, &shard));
    for (uint64_t i = 0; i < shard->examples; i++) {
      ShardView view;
      TRY(shard_pair(shard, i, &view));
      TRY(shard_copy(shard, &view, side, ids));
      for (uint32_t k = 0; k < view.len[side]; k++) printf("%s%d", k ? " " : "", ids[k]);
      putchar('\n');
    }
  }
  return ERR_OK;
}

int main(int argc, char **argv) {
  DataSet d;
  if (argc != 4) {
    fputs("usage: dump_ids DATASET train|valid|test source|target\n", stderr);
    return 2;
  }
  Split split = strcmp(argv[2], "train") == 0   ? SPLIT_TRAIN
                : strcmp(argv[2], "valid") == 0 ? SPLIT_VALID
                                                : SPLIT_TEST;
  Err err = dataset_open(&d, argv[1]);
  if (!err) {
    DataReader reader;
    dataset_enter(&d, &reader);
    err = dump_split(&reader, split, strcmp(argv[3], "target") == 0);
    dataset_leave(&reader);
  }
  if (err) fprintf(stderr, "%s\n", err_message());
  dataset_close(&d);
  return (int)err;
}
