/* Checkpoints on disk. Relies on base, model/store, Jansson. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

static Err in_checkpoints(char out[FILE_PATH_MAX], const char *run, const char *name) {
  char dir[FILE_PATH_MAX];
  TRY(file_join(dir, run, "checkpoints"));
  return file_join(out, dir, name);
}

static Err write_counters(const TrainCounters *c, const char *path) {
  json_t *root = json_pack("{s:s, s:i, s:I, s:I, s:I, s:f, s:I, s:i, s:f}", "format",
                           "trireme-training", "version", 1, "step", (json_int_t)c->step,
                           "target_tokens", (json_int_t)c->target_tokens, "pairs",
                           (json_int_t)c->pairs, "best_bleu", c->best_bleu, "best_step",
                           (json_int_t)c->best_step, "worse", c->worse, "seconds", c->seconds);
  char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
  json_decref(root);
  if (!text) return err_set(ERR_WORK, "cannot write %s: out of memory", path);
  Err err = file_write(path, text, strlen(text));
  free(text); /* Jansson's own memory */
  return err;
}

static Err read_counters(TrainCounters *c, const char *path) {
  Str text = {0};
  json_error_t error;
  Err err = file_read(path, (size_t)1 << 16, &text);
  json_t *root = err ? NULL : json_loadb(str_text(&text), text.len, 0, &error);
  json_int_t step, tokens, pairs, best_step;
  if (!err && (!root || json_unpack(root, "{s:I, s:I, s:I, s:F, s:I, s:i, s:F}", "step", &step,
                                    "target_tokens", &tokens, "pairs", &pairs, "best_bleu",
                                    &c->best_bleu, "best_step", &best_step, "worse", &c->worse,
                                    "seconds", &c->seconds) != 0)) {
    err = err_set(ERR_WORK, "%s is damaged: it is not the record of a checkpoint", path);
  }
  if (!err)
    c->step = (uint64_t)step, c->target_tokens = (uint64_t)tokens, c->pairs = (uint64_t)pairs,
    c->best_step = (uint64_t)best_step;
  json_decref(root);
  str_free(&text);
  return err;
}

/* Points a link at the checkpoint, in one move. */
static Err point(const char *run, const char *name, const char *to) {
  char link[FILE_PATH_MAX], beside[FILE_PATH_MAX];
  TRY(in_checkpoints(link, run, name));
  TRY(in_checkpoints(beside, run, "link.tmp"));
  if (unlink(beside) != 0 && errno != ENOENT) return err_errno("cannot remove", beside);
  if (symlink(to, beside) != 0) return err_errno("cannot create", beside);
  return file_rename(beside, link);
}

static Err fill(const char *dir, const TrainArrays *a, const TrainCounters *c) {
  char path[FILE_PATH_MAX];
  TRY(store_save_config(a->config, dir));
  TRY(file_join(path, dir, "tokenizer.model"));
  TRY(file_copy(a->tokenizer, path));
  TRY(file_join(path, dir, "weights.safetensors"));
  TRY(store_save_array(a->params, a->w, path));
  TRY(file_join(path, dir, "moment1.safetensors"));
  TRY(store_save_array(a->params, a->m, path));
  TRY(file_join(path, dir, "moment2.safetensors"));
  TRY(store_save_array(a->params, a->v, path));
  TRY(file_join(path, dir, "training.json"));
  TRY(write_counters(c, path));
  return file_sync_dir(dir);
}

Err checkpoint_save(const char *run, const TrainArrays *a, const TrainCounters *c, bool best) {
  char name[32], dir[FILE_PATH_MAX], beside[FILE_PATH_MAX];
  snprintf(name, sizeof name, "step-%08" PRIu64, c->step);
  TRY(in_checkpoints(dir, run, name));
  if (!file_exists(dir)) {
    TRY(in_checkpoints(beside, run, "unfinished"));
    TRY(file_remove_all(beside));
    TRY(file_mkdirs(beside));
    TRY(fill(beside, a, c));
    TRY(file_rename(beside, dir));
  } else { /* saved already; the validation since changed the counters only */
    char path[FILE_PATH_MAX];
    TRY(file_join(path, dir, "training.json"));
    TRY(write_counters(c, path));
  }
  if (best) TRY(point(run, "best", name));
  return point(run, "latest", name);
}

/* Dropout may change on the way; what the weights mean may not. */
static bool same_model(const ModelConfig *x, const ModelConfig *y) {
  return x->vocab == y->vocab && x->d == y->d && x->ff == y->ff && x->heads == y->heads &&
         x->layers[0] == y->layers[0] && x->layers[1] == y->layers[1] &&
         x->longest == y->longest && x->pre_norm == y->pre_norm &&
         x->attention_bias == y->attention_bias && x->activation == y->activation &&
         x->positions == y->positions && x->tying == y->tying;
}

Err checkpoint_load(const char *run, const TrainArrays *a, TrainCounters *c) {
  char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
  ModelConfig saved;
  TRY(in_checkpoints(dir, run, "latest"));
  TRY(store_load_config(&saved, dir));
  if (!same_model(&saved, a->config)) {
    return err_set(
        ERR_USAGE,
        "%s is of another model than these options describe; give the same ones to resume",
        dir);
  }
  TRY(file_join(path, dir, "weights.safetensors"));
  TRY(store_load_array(a->params, a->w, path));
  TRY(file_join(path, dir, "moment1.safetensors"));
  TRY(store_load_array(a->params, a->m, path));
  TRY(file_join(path, dir, "moment2.safetensors"));
  TRY(store_load_array(a->params, a->v, path));
  TRY(file_join(path, dir, "training.json"));
  return read_counters(c, path);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_step(const struct dirent *entry) {
  return str_starts(entry->d_name, "step-");
}

Err checkpoint_prune(const char *run, int keep) {
  char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], kept[2][FILE_PATH_MAX] = {{0}};
  static const char *const links[2] = {"latest", "best"};
  TRY(file_join(dir, run, "checkpoints"));
  for (int i = 0; i < 2; i++) {
    TRY(file_join(path, dir, links[i]));
    ssize_t n = readlink(path, kept[i], FILE_PATH_MAX - 1);
    if (n >= 0) kept[i][n] = '\0';
  }
  struct dirent **list;
  int n = scandir(dir, &list, is_step, by_name);
  if (n < 0) return err_errno("cannot read the directory", dir);
  Err err = ERR_OK;
  for (int i = 0; i < n; i++) {
    bool linked =
        strcmp(list[i]->d_name, kept[0]) == 0 || strcmp(list[i]->d_name, kept[1]) == 0;
    if (!err && i < n - keep && !linked) {
      err = file_join(path, dir, list[i]->d_name);
      if (!err) err = file_remove_all(path);
    }
    free(list[i]); /* scandir's own memory */
  }
  free(list);
  return err;
}
