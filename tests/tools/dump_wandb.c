/* Prints the records of the log of a Weights & Biases run, one per line:
 *   TYPE [STEP] KEY=JSON …
 * TYPE is history, summary, config, stats, run, exit, header, environment or other; STEP is that of a
 * history record. A last line "end N" has the position in the file up to which records are complete.
 *   dump_wandb FILE
 * Exit status 1 if the file is damaged. Depends on format/wandb. */
#include <inttypes.h>
#include <stdio.h>

#include "format/wandb.h"

static const char *get_type_name(WandbType type) {
  if (type == WANDB_HISTORY) return "history";
  if (type == WANDB_SUMMARY) return "summary";
  if (type == WANDB_CONFIG) return "config";
  if (type == WANDB_STATS) return "stats";
  if (type == WANDB_RUN) return "run";
  if (type == WANDB_EXIT) return "exit";
  if (type == WANDB_HEADER) return "header";
  return type == WANDB_ENVIRONMENT ? "environment" : "other";
}

static Err print_record(void *context, const WandbRecord *r) {
  ProtoBytes at = r->body;
  WandbItem item;
  (void)context;
  printf("%s", get_type_name(r->type));
  if (r->type == WANDB_HISTORY) printf(" %" PRIu64, r->step);
  while (wandb_next_item(r, &at, &item))
    printf(" %.*s=%.*s", (int)item.key_len, item.key, (int)item.json_len, item.json);
  putchar('\n');
  return ERR_OK;
}

int main(int argc, char **argv) {
  uint64_t end;
  if (argc != 2) {
    fputs("usage: dump_wandb FILE\n", stderr);
    return 2;
  }
  Err err = wandb_read(argv[1], print_record, NULL, &end);
  printf("end %" PRIu64 "\n", end);
  if (err) fprintf(stderr, "dump_wandb: %s\n", err_message());
  return err ? 1 : 0;
}
