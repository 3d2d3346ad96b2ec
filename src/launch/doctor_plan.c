/* Computes what a planned run needs, from the checkpoint of an existing run or from a preset.
 * Depends on model, train/checkpoint, data/meta. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/meta.h"
#include "launch/doctor.h"
#include "model/presets.h"
#include "train/checkpoint.h"
#include "train/record.h"

#define META_LIMIT ((size_t)64 << 20) /* largest dataset.json in bytes */

static Err count_parameters(const ModelConfig *config, uint64_t *parameters) {
  Params params = {0};
  Err err = config->family->lay_out_params(&params, config);
  *parameters = params.total;
  params_free(&params);
  return err;
}

static Err read_vocab(const char *data, int *vocab) {
  char path[FILE_PATH_MAX];
  Str text = {0};
  Meta meta = {0};
  TRY(file_join(path, data, "dataset.json"));
  Err err = file_read(path, META_LIMIT, &text);
  if (!err) err = meta_parse(&meta, str_text(&text), text.len, path);
  if (!err) *vocab = meta.vocab;
  meta_free(&meta);
  str_free(&text);
  return err;
}

static Err plan_preset(const DoctorSpec *spec, RunNeeds *n) {
  ModelConfig config;
  int size = spec->vocab;
  char vocab[32];
  if (spec->data) TRY(read_vocab(spec->data, &size));
  TRY(presets_configure(&config, spec->preset, size));
  TRY(count_parameters(&config, &n->parameters));
  snprintf(n->about, sizeof n->about, "preset %s with a vocabulary of %s", spec->preset,
           str_of_count(vocab, (uint64_t)size));
  n->checkpoint = 3 * sizeof(float) * n->parameters;
  return ERR_OK;
}

/* Adds up the bytes of the files that a checkpoint's training.json lists. */
static Err count_record(const char *dir, uint64_t *bytes) {
  Record r = {0};
  bool whole;
  TRY(record_read(dir, &r, &whole));
  if (!whole) return err_context("%s", dir);
  *bytes = 0;
  for (int p = 0; p < PARTS; p++)
    if (r.part[p].there) *bytes += r.part[p].bytes;
  for (size_t i = 0; i < r.files; i++) *bytes += r.file[i].sum.bytes;
  record_free(&r);
  return ERR_OK;
}

static Err count_checkpoints(const char *run, size_t *count) {
  CheckpointList list = {0};
  Err err = checkpoint_list(&list, run);
  *count = list.count;
  checkpoint_list_free(&list);
  return err;
}

static Err plan_existing(const DoctorSpec *spec, const char *dir, RunNeeds *n) {
  ModelConfig config;
  size_t count;
  TRY(store_load_config(&config, NULL, dir));
  TRY(count_parameters(&config, &n->parameters));
  TRY(count_record(dir, &n->checkpoint));
  TRY(count_checkpoints(spec->run, &count));
  n->disk_used = count * n->checkpoint;
  snprintf(n->about, sizeof n->about, "the model of the run %.100s", spec->run);
  return ERR_OK;
}

Err doctor_plan(const DoctorSpec *spec, RunNeeds *n) {
  char dir[FILE_PATH_MAX];
  bool found = false;
  *n = (RunNeeds){0};
  if (spec->run && file_is_dir(spec->run)) TRY(checkpoint_find(spec->run, dir, &found));
  TRY(found ? plan_existing(spec, dir, n) : plan_preset(spec, n));
  n->gradient = sizeof(float) * n->parameters;
  /* Checkpoints: those kept, the best one and one being written; and the averaged weights. */
  n->disk = ((uint64_t)spec->keep + 2) * n->checkpoint + n->gradient;
  if (n->disk_used > n->disk) n->disk_used = n->disk;
  /* GPU: weights, gradient, m and v. Host memory holds in addition the snapshot that is being
   * saved, which has all of these except the gradient. */
  n->memory_gpu = 4 * n->gradient;
  n->memory = 7 * n->gradient;
  return ERR_OK;
}
