/* Checkpoint averaging. Depends on base, model/store, checkpoint. */
#include "train/average.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "train/checkpoint.h"

typedef struct {
  ModelConfig config;
  StoreSums files; /* files of the task in the newest checkpoint */
  Params params;
  double *sum; /* (padded) sum in fp64, so that only the mean is rounded to fp32 */
  float *w;    /* (padded) weights of one checkpoint; at the end the mean */
  int count;
  bool others;          /* there are checkpoints of other steps */
  uint64_t first, last; /* lowest and highest step of the averaged checkpoints */
  char newest[FILE_PATH_MAX];
  ErrRecord left_out; /* why the last checkpoint that is left out is not complete */
} Average;

static Err begin_sum(Average *a, const char *dir) {
  memcpy(a->newest, dir, FILE_PATH_MAX);
  TRY(store_load_config(&a->config, &a->files, dir));
  TRY(a->config.family->lay_out_params(&a->params, &a->config));
  TRY(mem_alloc_aligned(&a->sum, a->params.padded * sizeof *a->sum));
  return mem_alloc_aligned(&a->w, a->params.padded * sizeof *a->w);
}

static Err add_checkpoint(Average *a, const char *dir, uint64_t step) {
  char path[FILE_PATH_MAX];
  if (a->count == 0) TRY(begin_sum(a, dir));
  TRY(file_join(path, dir, "weights.safetensors"));
  TRY(store_load_array(&a->params, a->w, path));
  for (size_t i = 0; i < a->params.padded; i++) a->sum[i] += (double)a->w[i];
  if (a->count++ == 0) a->last = step;
  a->first = step;
  return ERR_OK;
}

static Err add_checkpoints(Average *a, const char *run, int k, SaveSteps steps) {
  char parent[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  CheckpointList list;
  TRY(file_join(parent, run, "checkpoints"));
  TRY(checkpoint_list(&list, run));
  Err err = ERR_OK;
  for (size_t i = 0; i < list.count && a->count < k && !err; i++) {
    const CheckpointName *c = &list.at[i];
    bool whole, counted = a->count && c->step == a->first;
    if (c->ahead || counted) continue;
    if (a->count && !save_steps_have(steps, c->step)) {
      a->others = true;
      continue;
    }
    err = file_join(dir, parent, c->name);
    if (!err) err = checkpoint_check(dir, /*model_only=*/true, &whole);
    if (err) break;
    if (whole) {
      err = add_checkpoint(a, dir, c->step);
      continue;
    }
    a->left_out = err_take(ERR_WORK);
    log_warn("a checkpoint is left out of the average: %s", a->left_out.text);
  }
  checkpoint_list_free(&list);
  return err;
}

static Err write_files(const Average *a, const char *dir) {
  char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
  TRY(file_mkdirs(dir));
  StoreSums sums = {.known = true};
  for (size_t i = 0; i < a->files.files; i++) {
    const char *name = a->files.file[i].name;
    FileSum sum;
    TRY(file_join(from, a->newest, name));
    TRY(file_join(to, dir, name));
    TRY(place_copy(from, to));
    TRY(filesum_file(to, &sum));
    store_add_file(&sums, name, sum);
  }
  TRY(file_join(to, dir, "weights.safetensors"));
  TRY(store_save_summed(&a->params, a->w, to, &sums.weights));
  TRY(store_save_config(&a->config, &sums, dir));
  return file_sync_dir(dir);
}

/* Refuses to replace anything except an averaged model, which can be computed again. */
static Err check_target(const char *out) {
  char model[FILE_PATH_MAX], training[FILE_PATH_MAX];
  TRY(file_join(model, out, "model.json"));
  TRY(file_join(training, out, "training.json"));
  if (!file_exists(out) || (file_exists(model) && !file_exists(training))) return ERR_OK;
  return err_set(ERR_USAGE, "%s exists and is not an averaged model; choose another directory",
                 out);
}

static Err append_suffix(char to[FILE_PATH_MAX], const char *out, const char *suffix) {
  int n = snprintf(to, FILE_PATH_MAX, "%s%s", out, suffix);
  return n > 0 && n < FILE_PATH_MAX
             ? ERR_OK
             : err_set(ERR_WORK, "the path %s is too long; choose a shorter one", out);
}

static Err write_model(const Average *a, const char *out) {
  char next[FILE_PATH_MAX], old[FILE_PATH_MAX];
  TRY(append_suffix(next, out, ".unfinished"));
  TRY(append_suffix(old, out, ".replaced"));
  TRY(file_remove_all(next));
  Err err = write_files(a, next);
  if (!err) err = file_remove_all(old);
  if (!err && file_exists(out)) err = file_rename(out, old);
  if (!err) err = file_rename(next, out);
  if (!err) return file_remove_all(old);
  ErrRecord why = err_take(err);
  if (file_exists(old) && !file_exists(out) && rename(old, out) != 0)
    log_warn("cannot rename %s back to %s; rename it by hand", old, out);
  if (file_remove_all(next)) log_warn("%s", err_message());
  return err_give(&why);
}

static Err average_into(Average *a, const char *run, int k, SaveSteps steps, const char *out) {
  TRY(check_target(out));
  TRY(add_checkpoints(a, run, k, steps));
  if (a->count == 0 && *a->left_out.text)
    return err_set(ERR_WORK, "%s has no complete checkpoint to average: %s", run,
                   a->left_out.text);
  if (a->count == 0)
    return err_set(ERR_WORK, "%s has no checkpoint to average; train first", run);
  if (a->count == 1) {
    log_info("average  none: the run has one checkpoint%s, of step %" PRIu64
             "; save more often (--save-every) to average several",
             a->others ? " that counts (others were written by stops)" : "", a->last);
    return ERR_OK;
  }
  for (size_t i = 0; i < a->params.padded; i++) a->w[i] = (float)(a->sum[i] / a->count);
  TRY(write_model(a, out));
  char fewer[48] = "";
  if (a->count < k) snprintf(fewer, sizeof fewer, " (--average-checkpoints %d)", k);
  log_info("average of %d checkpoints%s, steps %" PRIu64 " to %" PRIu64 ": %s", a->count, fewer,
           a->first, a->last, out);
  return ERR_OK;
}

Err average_last(const char *run, int k, SaveSteps steps, const char *out, int *count) {
  Average *a;
  char place[FILE_PATH_MAX];
  *count = 0;
  if (k < 2) return err_set(ERR_USAGE, "cannot average %d checkpoints; pass 2 or more", k);
  /* Remove trailing slashes, because suffixes are appended to the path. */
  TRY(file_join(place, out, ""));
  for (size_t n = strlen(place); n > 1 && place[n - 1] == '/';) place[--n] = '\0';
  TRY(mem_alloc(&a, 1, sizeof *a));
  Err err = average_into(a, run, k, steps, place);
  *count = a->count;
  params_free(&a->params);
  mem_free(a->sum);
  mem_free(a->w);
  mem_free(a);
  return err;
}
