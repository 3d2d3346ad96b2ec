/* Samples of hosts (system.jsonl) as hostile bytes, converted to records of Weights & Biases: the
 * records must be complete, and the lines must be read to the last line break. Depends on
 * train/wandb_stats. */
#include "train/wandb_stats.h"

#include "fuzz_file.h"

#define LIMIT ((size_t)1 << 15) /* shorter than what is read at once */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Err count_record(void *context, const WandbRecord *r) {
  (void)r;
  ++*(size_t *)context;
  return ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > LIMIT) return 0;
  WandbStats stats = {0};
  WandbLog log = {0};
  size_t lines = size, records = 0;
  uint64_t end;
  while (lines > 0 && data[lines - 1] != '\n') lines--;
  snprintf(stats.path, sizeof stats.path, "%s", fuzz_file(data, size));
  wandb_add_header(&log, "fuzz");
  REQUIRE(stats_add(&stats, &log) == ERR_OK);
  REQUIRE(stats.at == lines);
  REQUIRE(wandb_check(&log) == ERR_OK);
  REQUIRE(wandb_read(fuzz_file((const uint8_t *)log.out.s, log.out.len), count_record, &records,
                     &end) == ERR_OK);
  REQUIRE(end == log.out.len && records >= 1);
  stats_close(&stats);
  wandb_free(&log);
  return 0;
}
