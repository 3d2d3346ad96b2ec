/* Trains a tiny model for a few steps with every combination of --reproducible,
 * --shard-optimizer, --allreduce-dtype, micro-batches and optimizer, in one start of mpirun.
 * `check_train DATA OUT` writes a run OUT/NAME for each combination; the tests compare their
 * weights. Depends on train. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "model/transformer.h"
#include "train/task_translate.h"
#include "train/train.h"

typedef struct {
  bool reproducible, shard, bf16;
  uint32_t micro_batches;
  OptimKind optim;
} Options;

static TrainSpec make_spec(const Options *w) {
  TrainSpec s = {.batch_tokens = 256,
                 .micro_batches = w->micro_batches,
                 .steps = 2,
                 .seed = 1,
                 .schedule = {.policy = LR_CONSTANT, .lr = 3e-3, .d_model = 32},
                 .optim = {w->optim, 0.9f, 0.997f, 1e-9f, 0},
                 .clip = 0.5f,
                 .smoothing = 0.1f,
                 .shard = w->shard,
                 .allreduce_bf16 = w->bf16,
                 .reproducible = w->reproducible,
                 .bucket = 16384, /* bytes; small, so that there are several buckets */
                 .backend = {.device = "cpu", .precision = "fp32", .threads = 1},
                 .save_every = 1000,
                 .log_every = 1,
                 .keep = 1,
                 .rollbacks = 0};
  return s;
}

static Err train_model(Comm *comm, const char *data, const char *out, const Options *w) {
  TrainSpec s = make_spec(w);
  TrainResult r;
  char name[64], path[FILE_PATH_MAX];
  snprintf(name, sizeof name, "%s-%u-%s%s%s", w->optim == OPTIM_SGD ? "sgd" : "adam",
           w->micro_batches, w->bf16 ? "bf16" : "fp32", w->reproducible ? "-same" : "",
           w->shard ? "-shard" : "");
  TRY(file_join(path, out, name));
  TransformerConfig c = {0};
  TRY(transformer_preset(&c, "tiny"));
  c.d_model = 32;
  c.ffn_dim = 64;
  c.heads = 2;
  c.layers[0] = 1;
  c.layers[1] = 1;
  s.config = transformer_model_config(&c);
  TranslateOptions task = {.beam = {.beam_size = 1, .nbest = 1}};
  s.task = &translate_task;
  s.task_options = &task;
  s.data = data;
  s.run = path;
  return train_run(&s, comm, "", &r);
}

int main(int count, char **argument) {
  Comm *comm = NULL;
  Err err = count == 3 ? comm_open(&comm, 20) : ERR_USAGE;
  log_quiet(true);
  static const OptimKind kinds[] = {OPTIM_ADAM, OPTIM_SGD};
  for (int bits = 0; bits < 32 && !err; bits++) {
    Options w = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) ? 6 : 4,
                 kinds[bits >> 4]};
    if (!w.reproducible && (w.optim == OPTIM_SGD || w.micro_batches == 4)) continue;
    err = train_model(comm, argument[1], argument[2], &w);
  }
  if (err) fprintf(stderr, "check_train: %s\n", err_message());
  comm_close(comm, err);
  return err != ERR_OK;
}
