/* dump_texts DATASET SPLIT: prints the examples of a data set of texts, one per line: the
 * targets, the tokens of the first text and the ids, separated by tabs. Depends on data/text_shard. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset.h"
#include "data/text_shard.h"

static Err dump_shard(Shard *shard, const Meta *m, float *target) {
  int32_t ids[SHARD_LONGEST];
  for (uint64_t i = 0; i < shard->examples; i++) {
    uint32_t tokens, first;
    TRY(text_shard_ids(shard, m, i, ids, SHARD_LONGEST, &tokens, &first));
    TRY(text_shard_target(shard, m, i, target));
    for (size_t k = 0; k < text_targets(m->classify); k++)
      printf("%s%g", k ? " " : "", (double)target[k]);
    printf("\t%u\t", first);
    for (uint32_t k = 0; k < tokens; k++) printf("%s%d", k ? " " : "", ids[k]);
    putchar('\n');
  }
  return ERR_OK;
}

static Err dump_split(DataSet *d, int split) {
  DataReader reader;
  float *target;
  TRY(mem_alloc(&target, text_targets(d->meta.classify), sizeof *target));
  dataset_enter(d, &reader);
  Err err = ERR_OK;
  for (size_t s = 0; s < d->meta.split[split].shards && !err; s++) {
    Shard *shard;
    err = dataset_shard(&reader, (Split)split, s, &shard);
    if (!err) err = dump_shard(shard, &d->meta, target);
  }
  dataset_leave(&reader);
  mem_free(target);
  return err;
}

int main(int argc, char **argv) {
  DataSet d = {0};
  int split = 0;
  while (argc == 3 && split < SPLITS && strcmp(split_name[split], argv[2]) != 0) split++;
  if (argc != 3 || split == SPLITS) {
    fputs("usage: dump_texts DATASET train|valid|test\n", stderr);
    return 2;
  }
  const char *task;
  Err err = dataset_find_task(argv[1], &task);
  if (!err)
    err = strcmp(task, "mlm") == 0 ? dataset_open_unlabeled(&d, argv[1])
                                   : dataset_open_texts(&d, argv[1]);
  if (!err) err = dump_split(&d, split);
  if (err) fprintf(stderr, "%s\n", err_message());
  dataset_close(&d);
  return (int)err;
}
