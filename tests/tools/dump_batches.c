/* dump_batches DATASET CAPACITY SEED EPOCHS: prints the numbers of the pairs of every batch,
 * one line per batch, to compare formats and versions. Depends on data/batch. */
#include <stdio.h>
#include <stdlib.h>

#include "data/batch.h"

static Err dump_epochs(DataSet *d, const OrderPlan *plan, uint64_t seed, uint64_t epochs) {
  Batch b;
  TRY(batch_new(&b, plan->capacity, plan->most_sentences));
  Err err = ERR_OK;
  for (uint64_t i = 0; i < epochs * plan->batches && !err; i++) {
    err = batch_fill(&b, d, plan, seed, i / plan->batches, i % plan->batches);
    for (uint32_t k = 0; k < b.sentences && !err; k++)
      printf("%s%llu", k ? " " : "", (unsigned long long)b.pair[k]);
    putchar('\n');
  }
  batch_free(&b);
  return err;
}

int main(int argc, char **argv) {
  DataSet d;
  OrderPlan plan = {0};
  if (argc != 5) {
    fputs("usage: dump_batches DATASET CAPACITY SEED EPOCHS\n", stderr);
    return 2;
  }
  Err err = dataset_open(&d, argv[1]);
  if (!err) err = order_plan(&plan, &d.order, (uint32_t)atoi(argv[2]));
  if (!err)
    err = dump_epochs(&d, &plan, strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
  if (err) fprintf(stderr, "%s\n", err_message());
  order_plan_free(&plan);
  dataset_close(&d);
  return (int)err;
}
