/* Writes, finds, verifies and loads checkpoints. Depends on base, model/store, record. */
#include "train/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "train/record.h"

#define STEP_NAME 32 /* size of a buffer for the name step-N */

static Err join_checkpoint_path(char out[FILE_PATH_MAX], const char *run, const char *name) {
  char dir[FILE_PATH_MAX];
  TRY(file_join(dir, run, "checkpoints"));
  return file_join(out, dir, name);
}

static Err save_array(const char *dir, const Params *p, const float *array, Part part,
                      Record *r) {
  char path[FILE_PATH_MAX];
  FileSum sum;
  TRY(file_join(path, dir, record_name[part]));
  TRY(store_save_summed(p, array, path, &sum));
  r->part[part] = (PartSum){true, true, sum.bytes, sum.crc};
  return ERR_OK;
}

/* Copies the files of the task into the checkpoint. */
static Err copy_files(const char *dir, const TrainArrays *a, Record *r, StoreSums *sums) {
  char path[FILE_PATH_MAX];
  for (size_t i = 0; i < a->files; i++) {
    RecordFile *file = &r->file[r->files++];
    snprintf(file->name, sizeof file->name, "%s", a->file[i].name);
    TRY(file_join(path, dir, file->name));
    if (a->contents)
      TRY(file_write(path, str_text(&a->contents[i]), a->contents[i].len));
    else
      TRY(place_copy(a->file[i].path, path));
    TRY(record_sum(path, &file->sum));
    store_add_file(sums, file->name, (FileSum){file->sum.bytes, file->sum.crc});
  }
  return ERR_OK;
}

static Err write_files(const char *dir, const TrainArrays *a, const TrainCounters *c) {
  char path[FILE_PATH_MAX];
  StoreSums sums = {.known = true};
  Record r = {.counters = *c, .second = a->second};
  if (a->second) r.seconds = a->params->count;
  TRY(copy_files(dir, a, &r, &sums));
  TRY(save_array(dir, a->params, a->e ? a->e : a->w, PART_WEIGHTS, &r));
  sums.weights = (FileSum){r.part[PART_WEIGHTS].bytes, r.part[PART_WEIGHTS].crc};
  TRY(store_save_config(a->config, &sums, dir));
  TRY(file_join(path, dir, record_name[PART_MODEL]));
  TRY(record_sum(path, &r.part[PART_MODEL]));
  if (a->e) TRY(save_array(dir, a->params, a->w, PART_TRAINING, &r));
  if (a->m) TRY(save_array(dir, a->params, a->m, PART_MOMENT1, &r));
  if (a->v) TRY(save_array(dir, a->params, a->v, PART_MOMENT2, &r));
  TRY(record_write(dir, &r));
  return file_sync_dir(dir);
}

/* A link is created under a temporary name and then renamed, so that at any time the old or the
 * new link exists. It is created before the checkpoint is renamed, because creating it can fail
 * on a full disk. */
enum { LATEST, BEST, LINKS };
static const char *const links[LINKS] = {"latest", "best"};
static const char *const temporary_links[LINKS] = {"latest.tmp", "best.tmp"};
static const char *const moved_dirs[LINKS] = {"latest.copy", "best.copy"};

static Err make_temporary_link(const char *run, int i, const char *to) {
  char beside[FILE_PATH_MAX];
  TRY(join_checkpoint_path(beside, run, temporary_links[i]));
  if (unlink(beside) != 0 && errno != ENOENT) return err_errno("cannot remove", beside);
  return symlink(to, beside) == 0 ? ERR_OK : err_errno("cannot create", beside);
}

/* Renames `from` to `to`, and the directory that is there to `aside`. After a failure that is renamed
 * back. */
static Err replace_dir(const char *from, const char *to, const char *aside) {
  TRY(file_remove_all(aside));
  Err err = file_rename(to, aside);
  if (!err) err = file_rename(from, to);
  if (err && !file_exists(to) && rename(aside, to) != 0)
    log_warn("cannot rename %s back to %s; rename it by hand", aside, to);
  return err;
}

static Err replace_link(const char *run, int i) {
  char link[FILE_PATH_MAX], beside[FILE_PATH_MAX], copy[FILE_PATH_MAX];
  struct stat st;
  TRY(join_checkpoint_path(link, run, links[i]));
  TRY(join_checkpoint_path(beside, run, temporary_links[i]));
  if (lstat(link, &st) != 0 || !S_ISDIR(st.st_mode)) return file_rename(beside, link);
  /* In a copy of a run made with cp -L, `latest` is a directory, which rename() cannot replace
   * with a link. */
  TRY(join_checkpoint_path(copy, run, moved_dirs[i]));
  TRY(replace_dir(beside, link, copy));
  if (file_remove_all(copy)) log_warn("%s", err_message());
  return ERR_OK;
}

/* Renames the complete directory to step-N. An older checkpoint of the same step is first
 * renamed to step-N.old, which checkpoint_find also accepts, so that one of the two can be
 * found at any time. */
static Err move_into_place(const char *run, const char *beside, const char *name) {
  char dir[FILE_PATH_MAX], old[FILE_PATH_MAX], old_name[STEP_NAME + 4];
  TRY(join_checkpoint_path(dir, run, name));
  if (!file_exists(dir)) return file_rename(beside, dir);
  snprintf(old_name, sizeof old_name, "%s.old", name);
  TRY(join_checkpoint_path(old, run, old_name));
  return replace_dir(beside, dir, old);
}

static Err write_checkpoint(const char *run, const char *beside, const char *name,
                            const TrainArrays *a, const TrainCounters *c) {
  TRY(file_remove_all(beside));
  TRY(file_mkdirs(beside));
  TRY(write_files(beside, a, c));
  TRY(make_temporary_link(run, LATEST, name));
  TRY(move_into_place(run, beside, name));
  return replace_link(run, LATEST);
}

static void remove_temporary_link(const char *run, int i) {
  char half[FILE_PATH_MAX];
  if (!join_checkpoint_path(half, run, temporary_links[i])) unlink(half);
}

static void name_step(char name[STEP_NAME], uint64_t step) {
  snprintf(name, STEP_NAME, "step-%08" PRIu64, step);
}

Err checkpoint_save(const char *run, const TrainArrays *a, const TrainCounters *c) {
  char name[STEP_NAME], beside[FILE_PATH_MAX];
  name_step(name, c->step);
  TRY(join_checkpoint_path(beside, run, "unfinished"));
  Err err = write_checkpoint(run, beside, name, a, c);
  if (!err) return ERR_OK;
  ErrRecord why = err_take(err);
  if (file_remove_all(beside)) log_warn("%s", err_message());
  remove_temporary_link(run, LATEST);
  return err_give(&why);
}

/* Moves the link before it writes training.json: if the process dies in between, a resumed run
 * validates this step again. */
static Err add_validation(const char *run, const char *name, const char *dir,
                          const TrainCounters *c, bool best, Record *r) {
  if (best) {
    TRY(make_temporary_link(run, BEST, name));
    TRY(replace_link(run, BEST));
  }
  r->counters.best_score = c->best_score;
  r->counters.best_step = c->best_step;
  r->counters.worse = c->worse;
  r->counters.validated = c->validated;
  if (c->seconds > r->counters.seconds) r->counters.seconds = c->seconds;
  return record_write(dir, r);
}

Err checkpoint_add_validation(const char *run, const TrainCounters *c, bool best) {
  char name[STEP_NAME], dir[FILE_PATH_MAX];
  Record r;
  bool whole;
  name_step(name, c->step);
  TRY(join_checkpoint_path(dir, run, name));
  TRY(record_read(dir, &r, &whole));
  if (!whole) return ERR_WORK; /* err_message() says what is damaged */
  Err err = add_validation(run, name, dir, c, best, &r);
  record_free(&r);
  if (err) remove_temporary_link(run, BEST);
  return err;
}

/* Parses step-N or step-N.old; returns false for any other name. */
static bool parse_name(CheckpointName *c, const char *name) {
  char *end;
  if (!str_starts(name, "step-") || name[5] < '0' || name[5] > '9') return false;
  if (strlen(name) >= sizeof c->name) return false;
  errno = 0;
  c->step = strtoull(name + 5, &end, 10);
  c->old = strcmp(end, ".old") == 0;
  snprintf(c->name, sizeof c->name, "%s", name);
  return errno == 0 && (*end == '\0' || c->old);
}

/* Order for qsort: newest first; step-N before step-N.old. */
static int compare_names(const void *a, const void *b) {
  const CheckpointName *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? 1 : -1;
  return (int)x->old - (int)y->old;
}

/* Reads the target of a link; "" if there is no link. */
static Err read_link(char to[FILE_PATH_MAX], const char *run, int i) {
  char path[FILE_PATH_MAX];
  TRY(join_checkpoint_path(path, run, links[i]));
  ssize_t n = readlink(path, to, FILE_PATH_MAX - 1);
  to[n > 0 ? n : 0] = '\0';
  /* In a copy of a run made with cp -L, the link is a directory. */
  if (n < 0 && file_is_dir(path)) snprintf(to, FILE_PATH_MAX, "%s", links[i]);
  return ERR_OK;
}

/* Returns true if there is a complete checkpoint of `step` in this directory; verify: checks its
 * files, too. */
static bool holds_step(const char *dir, uint64_t step, bool verify) {
  Record r;
  bool whole;
  if (record_read(dir, &r, &whole) || !whole) return false;
  uint64_t at = r.counters.step;
  record_free(&r);
  if (at != step || !verify) return at == step;
  return checkpoint_check(dir, /*model_only=*/true, &whole) == ERR_OK && whole;
}

Err checkpoint_settle_best(const char *run, uint64_t step, bool *is_there, bool *is_moved) {
  char name[STEP_NAME], now[FILE_PATH_MAX], dir[FILE_PATH_MAX], link[FILE_PATH_MAX];
  name_step(name, step);
  *is_moved = false;
  TRY(read_link(now, run, BEST));
  TRY(join_checkpoint_path(link, run, links[BEST]));
  bool is_named = strcmp(now, name) == 0 || strcmp(now, links[BEST]) == 0;
  *is_there = step && is_named && holds_step(link, step, /*verify=*/false);
  if (*is_there) return ERR_OK;
  TRY(join_checkpoint_path(dir, run, name));
  *is_there = step && holds_step(dir, step, /*verify=*/true);
  *is_moved = *is_there || *now;
  if (*is_there) {
    TRY(make_temporary_link(run, BEST, name));
    return replace_link(run, BEST);
  }
  /* In a copy made with cp -L it is a directory, which stays. */
  if (*now && strcmp(now, links[BEST]) != 0 && unlink(link) != 0)
    return err_errno("cannot remove", link);
  return ERR_OK;
}

static Err add_checkpoint(void *context, const char *file_name) {
  CheckpointList *list = context;
  CheckpointName name = {0};
  if (!parse_name(&name, file_name)) return ERR_OK;
  TRY(mem_grow(&list->at, &list->cap, list->count + 1, sizeof *list->at));
  list->at[list->count++] = name;
  return ERR_OK;
}

Err checkpoint_list(CheckpointList *list, const char *run) {
  char path[FILE_PATH_MAX], latest[FILE_PATH_MAX];
  CheckpointName last;
  *list = (CheckpointList){0};
  TRY(file_join(path, run, "checkpoints"));
  if (place_type(path) != PLACE_DIRECTORY) return ERR_OK;
  TRY(read_link(latest, run, LATEST));
  Err err = place_list(path, add_checkpoint, list);
  if (err) {
    checkpoint_list_free(list);
    return err;
  }
  if (list->count) qsort(list->at, list->count, sizeof *list->at, compare_names);
  bool linked = parse_name(&last, latest);
  for (size_t i = 0; i < list->count; i++)
    list->at[i].ahead = linked && list->at[i].step > last.step;
  return ERR_OK;
}

void checkpoint_list_free(CheckpointList *list) {
  mem_free(list->at);
  *list = (CheckpointList){0};
}

bool save_steps_have(SaveSteps s, uint64_t step) {
  if (!s.save_every && !s.valid_every) return true;
  return (s.save_every && step % s.save_every == 0) ||
         (s.valid_every && step % s.valid_every == 0);
}

/* What checkpoint_prune needs to choose. */
typedef struct {
  char latest[FILE_PATH_MAX], best[FILE_PATH_MAX]; /* targets of the links */
  SaveSteps steps;
} Kept;

/* Returns true if the checkpoint takes one of the `keep` places before others. */
static bool is_counted(const Kept *k, const CheckpointName *c) {
  return !c->ahead && (save_steps_have(k->steps, c->step) || strcmp(c->name, k->latest) == 0);
}

static Err remove_others(const char *run, const Kept *k, const CheckpointList *list, int keep) {
  char path[FILE_PATH_MAX];
  int counted = 0, others = keep;
  for (size_t i = 0; i < list->count; i++) others -= is_counted(k, &list->at[i]);
  for (size_t i = 0; i < list->count; i++) {
    const CheckpointName *c = &list->at[i];
    bool is_replaced = i > 0 && c->step == list->at[i - 1].step;
    if (c->ahead || strcmp(c->name, k->latest) == 0 || strcmp(c->name, k->best) == 0) {
      counted += is_counted(k, c);
      continue;
    }
    if (!is_replaced && (is_counted(k, c) ? counted++ < keep : others-- > 0)) continue;
    TRY(join_checkpoint_path(path, run, c->name));
    TRY(file_remove_all(path));
  }
  return ERR_OK;
}

Err checkpoint_prune(const char *run, int keep, SaveSteps steps) {
  Kept kept = {.steps = steps};
  CheckpointList list;
  TRY(read_link(kept.latest, run, LATEST));
  TRY(read_link(kept.best, run, BEST));
  TRY(checkpoint_list(&list, run));
  Err err = remove_others(run, &kept, &list, keep);
  checkpoint_list_free(&list);
  return err;
}

Err checkpoint_check(const char *dir, bool model_only, bool *whole) {
  Record r;
  TRY(record_read(dir, &r, whole));
  int parts = model_only ? PART_WEIGHTS + 1 : PARTS;
  for (size_t i = 0; i < r.files && *whole; i++)
    *whole = record_check_file(dir, &r.file[i]) == ERR_OK;
  for (int i = 0; i < parts && *whole; i++)
    *whole = !r.part[i].there || record_check(dir, &r, (Part)i) == ERR_OK;
  record_free(&r);
  return ERR_OK;
}

static Err find_whole(const char *run, const CheckpointList *list, const char *latest,
                      char dir[FILE_PATH_MAX]) {
  ErrRecord why;
  bool whole = false;
  TRY(join_checkpoint_path(dir, run, *latest ? latest : "latest"));
  if (*latest)
    TRY(checkpoint_check(dir, /*model_only=*/false, &whole));
  else
    err_set(ERR_WORK, "%s is missing", dir);
  if (whole) return ERR_OK;
  why = err_take(ERR_WORK);
  for (size_t i = 0; i < list->count; i++) {
    if (strcmp(list->at[i].name, latest) == 0) continue;
    TRY(join_checkpoint_path(dir, run, list->at[i].name));
    TRY(checkpoint_check(dir, /*model_only=*/false, &whole));
    if (whole) {
      log_warn("%s; %s is taken instead", why.text, dir);
      return ERR_OK;
    }
    log_warn("%s", err_message());
  }
  return err_set(
      ERR_WORK,
      "no checkpoint of %s is complete (%s); restore one from a copy, or choose another --run",
      run, why.text);
}

Err checkpoint_find(const char *run, char dir[FILE_PATH_MAX], bool *found) {
  char latest[FILE_PATH_MAX];
  CheckpointList list;
  TRY(read_link(latest, run, LATEST));
  TRY(checkpoint_list(&list, run));
  *found = *latest || list.count;
  Err err = *found ? find_whole(run, &list, latest, dir) : ERR_OK;
  checkpoint_list_free(&list);
  return err;
}

static Err compare_configs(const char *dir, const ModelConfig *saved, const ModelConfig *now) {
  char then_text[64], now_text[64];
  if (saved->family != now->family)
    return err_set(ERR_USAGE,
                   "%s has a different model: the family is %s in the checkpoint, but %s with "
                   "these options; to resume, pass the options of the run",
                   dir, saved->family->name, now->family->name);
  const ConfigField *field = config_difference(saved, now);
  if (!field) return ERR_OK;
  config_print(field, saved, then_text, sizeof then_text);
  config_print(field, now, now_text, sizeof now_text);
  return err_set(
      ERR_USAGE,
      "%s has a different model: '%s' is %s in the checkpoint, but %s with these options; "
      "to resume, pass the options of the run",
      dir, field->key, then_text, now_text);
}

/* With another tokenizer, or another list of labels, the same ids have other meanings. */
static Err check_files(const char *dir, const TrainArrays *a, const Record *r) {
  for (size_t i = 0; i < a->files; i++) {
    const ModelFile *file = &a->file[i];
    const RecordFile *saved = record_find_file(r, file->name);
    PartSum now;
    if (!saved || !saved->sum.summed) continue;
    TRY(record_sum(file->path, &now));
    if (now.bytes != saved->sum.bytes || now.crc != saved->sum.crc)
      return err_set(ERR_USAGE,
                     "%s was trained with another %s than %s; give the same data to resume",
                     dir, file->what, file->path);
  }
  return ERR_OK;
}

static Err check_model(const char *dir, const TrainArrays *a, const Record *r) {
  ModelConfig saved;
  TRY(record_check(dir, r, PART_MODEL));
  TRY(store_load_config(&saved, NULL, dir));
  TRY(compare_configs(dir, &saved, a->config));
  return check_files(dir, a, r);
}

/* Any optimizer can continue with the weights, but only the same one with the saved m and v. */
static Err check_optimizer_state(const char *dir, const TrainArrays *a, const Record *r) {
  bool same = r->part[PART_MOMENT1].there == (a->m != NULL) &&
              r->part[PART_MOMENT2].there == (a->v != NULL) &&
              r->seconds == (a->second ? a->params->count : 0);
  return same ? ERR_OK
              : err_set(ERR_USAGE,
                        "%s was saved by another optimizer; give the same one to resume", dir);
}

static Err load_array(const char *dir, const TrainArrays *a, const Record *r, Part part,
                      float *array) {
  char path[FILE_PATH_MAX];
  TRY(record_check(dir, r, part));
  TRY(file_join(path, dir, record_name[part]));
  return store_load_array(a->params, array, path);
}

/* Called before check_model: with other data the vocabulary differs too, but this error is
 * clearer. */
static Err check_data(const char *dir, const TrainArrays *a, const Record *r) {
  const char *saved = r->counters.data;
  if (!a->data || !*saved || strcmp(a->data, saved) == 0) return ERR_OK;
  return err_set(ERR_USAGE,
                 "%s was trained on another data set: its dataset.json had the SHA-256 %.12s… "
                 "and now has %.12s…; give the run's own --data, or accept this one with "
                 "--accept-data",
                 dir, saved, a->data);
}

/* Checked first: with another task, data and model differ as well. */
static Err check_task(const char *dir, const TrainArrays *a, const Record *r) {
  const char *saved = r->counters.task;
  if (!a->task || strcmp(a->task, saved) == 0) return ERR_OK;
  return err_set(ERR_USAGE,
                 "%s is of a run with --task %s, which cannot continue with --task %s; give "
                 "the run's own --task, or begin a new run with another --run",
                 dir, saved, a->task);
}

Err checkpoint_compare(const char *dir, const TrainArrays *a, TrainCounters *c) {
  Record r;
  bool whole;
  TRY(record_read(dir, &r, &whole));
  if (!whole) return ERR_WORK; /* err_message() says what is damaged */
  Err err = check_task(dir, a, &r);
  if (!err) err = check_data(dir, a, &r);
  if (!err) err = check_model(dir, a, &r);
  if (!err) *c = r.counters;
  record_free(&r);
  return err;
}

static Err load_arrays(const char *dir, const TrainArrays *a, const Record *r) {
  TRY(check_task(dir, a, r));
  TRY(check_data(dir, a, r));
  TRY(check_model(dir, a, r));
  TRY(check_optimizer_state(dir, a, r));
  bool averaged = r->part[PART_TRAINING].there;
  TRY(load_array(dir, a, r, averaged ? PART_TRAINING : PART_WEIGHTS, a->w));
  if (a->e && averaged)
    TRY(load_array(dir, a, r, PART_WEIGHTS, a->e));
  else if (a->e)
    memcpy(a->e, a->w, a->params->padded * sizeof *a->e);
  else if (averaged)
    log_warn(
        "%s has a moving average of the weights, which is dropped; pass the run's --ema-decay "
        "to continue it",
        dir);
  if (a->m) TRY(load_array(dir, a, r, PART_MOMENT1, a->m));
  if (a->v) TRY(load_array(dir, a, r, PART_MOMENT2, a->v));
  if (a->second) memcpy(a->second, r->second, r->seconds * sizeof *r->second);
  return ERR_OK;
}

Err checkpoint_load(const char *dir, const TrainArrays *a, TrainCounters *c) {
  Record r;
  bool whole;
  TRY(record_read(dir, &r, &whole));
  if (!whole) return ERR_WORK; /* err_message() says what is damaged */
  Err err = load_arrays(dir, a, &r);
  if (!err) *c = r.counters;
  record_free(&r);
  return err;
}
