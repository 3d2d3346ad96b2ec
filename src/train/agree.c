/* Compares the options of ranks, and the options of a resumed run with its earlier ones.
 * Depends on base, comm, data. */
#include "train/agree.h"

#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/place.h"

/* One line "name = value" of a config text. */
typedef struct {
  const char *name, *value;
  size_t name_len, value_len;
} Entry;

static const char *next_entry(const char *at, Entry *e) {
  size_t len = strcspn(at, "\n");
  size_t name = strcspn(at, " =\n");
  if (name > len) name = len;
  size_t value = name + strspn(at + name, " =");
  if (value > len) value = len;
  *e = (Entry){at, at + value, name, len - value};
  return at + len + (at[len] == '\n');
}

static bool is_same_name(const Entry *a, const Entry *b) {
  return a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
}

/* Finds entry number `nth`, counted from 0, among those with the name of `what`. */
static bool find_entry(const char *record, const Entry *what, size_t nth, Entry *e) {
  for (const char *at = record; *at;) {
    at = next_entry(at, e);
    if (is_same_name(e, what) && nth-- == 0) return true;
  }
  return false;
}

/* Finds the entry of `other` that corresponds to `what`, an entry of `record`. If an option is
 * given several times (--train), its nth occurrence in `record` corresponds to the nth in
 * `other`. */
static bool find_counterpart(const char *record, const Entry *what, const char *other,
                             Entry *e) {
  size_t nth = 0;
  while (find_entry(record, what, nth, e) && e->name != what->name) nth++;
  return find_entry(other, what, nth, e);
}

static bool is_one_of(const Entry *e, const char *const *names) {
  for (; *names; names++)
    if (strlen(*names) == e->name_len && memcmp(*names, e->name, e->name_len) == 0) return true;
  return false;
}

static bool is_same_value(const Entry *a, const Entry *b) {
  return a->value_len == b->value_len && memcmp(a->value, b->value, a->value_len) == 0;
}

typedef enum { ONLY_LISTED, ALL_BUT_LISTED } Selection;

/* Appends "--lr is 1 and was 2" for every option that differs; `selection` limits the
 * comparison to the options in `names`, or to all others. */
static void list_differences(Str *out, const char *now, const char *before,
                             const char *const *names, Selection selection, const char *is,
                             const char *was) {
  bool within = selection == ONLY_LISTED;
  Entry e, other;
  for (const char *at = now; *at;) {
    at = next_entry(at, &e);
    if (e.name_len == 0 || is_one_of(&e, names) != within) continue;
    bool there = find_counterpart(now, &e, before, &other);
    if (there && is_same_value(&e, &other)) continue;
    str_addf(out, "%s--%.*s %s %.*s", out->len ? "; " : "", (int)e.name_len, e.name, is,
             e.value_len ? (int)e.value_len : 2, e.value_len ? e.value : "on");
    str_addf(out, " and %s %.*s", was, there ? (int)other.value_len : 7,
             there ? other.value : "not set");
  }
  for (const char *at = before; *at;) {
    at = next_entry(at, &e);
    if (e.name_len == 0 || is_one_of(&e, names) != within ||
        find_counterpart(before, &e, now, &other))
      continue;
    str_addf(out, "%s--%.*s %s not set and %s %.*s", out->len ? "; " : "", (int)e.name_len,
             e.name, is, was, e.value_len ? (int)e.value_len : 2, e.value_len ? e.value : "on");
  }
}

/* Options that may differ between ranks. */
static const char *const per_rank_options[] = {"threads", "quiet",  "config", "device",
                                               "input",   "output", NULL};

Err agree_data_hash(const DataSet *data, char hex[65]) {
  char path[FILE_PATH_MAX];
  TRY(dataset_path(data, "dataset.json", path));
  return place_sha256(path, hex);
}

Err agree_ranks(Comm *comm, const char *record, const char *what, const char *hash) {
  if (comm_size(comm) == 1) return ERR_OK;
  Str mine = {0}, wrong = {0};
  char **list = NULL;
  Err err;
  str_addf(&mine, "%s\nversion = %s\n%s = %.16s\n", record, TRIREME_VERSION, what, hash);
  TRY_DONE(str_check(&mine));
  TRY_DONE(comm_gather_text(comm, "options", mine.s, mine.len, &list));
  /* All ranks have the same list, find the same difference and fail; only rank 0 prints the
   * error. */
  for (int r = 1; r < comm_size(comm) && !wrong.len; r++) {
    list_differences(&wrong, list[r], list[0], per_rank_options, ALL_BUT_LISTED, "is",
                     "on rank 0");
    if (wrong.len)
      err = err_set(ERR_USAGE,
                    "rank %d on %s has other options than rank 0: %s; start all ranks with the "
                    "same options, version and data",
                    r, comm_host(comm, r), str_text(&wrong));
  }
done:
  mem_free(list);
  str_free(&mine);
  str_free(&wrong);
  return err;
}

/* Options that may change without a warning when a run is resumed: they set durations,
 * intervals, paths and devices. */
static const char *const free_options[] = {
    "steps", "epochs", "max-time", "resume", "auto-resume", "threads", "quiet", "config",
    "log-every", "peer-checkpoint", "valid-every", "save-every", "keep-checkpoints", "patience",
    "average-checkpoints", "rank-timeout", "data", "run", "shard-optimizer", "bucket-size",
    "nccl-ctas", "reserve-sms", "tune", "overlap", "allreduce-transport", "device",
    "max-rollbacks", "accept-data", "tensorboard", "histogram-every", "trace", "trace-from",
    "wandb", "wandb-project", "init-from", /* only a new run uses it */
    /* micro-batches is compared with the value in the checkpoint instead. */
    "micro-batches", NULL};
/* Options that must not change, because the order of the data or the saved state depends on
 * them. */
static const char *const fixed_options[] = {
    "task", "seed", "batch-tokens", "optimizer", "ema-decay", "metric", NULL};

#define LISTED 64 /* largest number of options in all three lists */

/* Appends `names` to the list `all`, which ends with NULL. */
static void append_names(const char *all[LISTED], const char *const *names) {
  size_t n = 0;
  while (all[n]) n++;
  for (; names && *names; names++) {
    assert(n + 1 < LISTED);
    all[n++] = *names;
  }
}

Err agree_resume(const char *path, const char *record, const char *const *task_options) {
  Str text = {0}, saved = {0}, wrong = {0}, other = {0};
  const char *all[LISTED] = {0};
  append_names(all, free_options);
  append_names(all, fixed_options);
  append_names(all, task_options);
  Err err;
  TRY_DONE(file_read(path, (size_t)1 << 20, &text));
  /* Replace former names of options, written by an earlier version. */
  opt_rename("train", str_text(&text), &saved);
  TRY_DONE(str_check(&saved));
  list_differences(&wrong, record, str_text(&saved), fixed_options, ONLY_LISTED, "is", "was");
  list_differences(&other, record, str_text(&saved), all, ALL_BUT_LISTED, "is", "was");
  TRY_DONE(str_check(&wrong));
  TRY_DONE(str_check(&other));
  if (wrong.len)
    err = err_set(ERR_USAGE,
                  "this run cannot be resumed with other options: %s; pass the run's own, or "
                  "begin a new run with another --run",
                  wrong.s);
  else if (other.len)
    log_warn(
        "resumed with other options: %s; if this is not intended, stop and pass the run's own",
        other.s);
done:
  str_free(&text);
  str_free(&saved);
  str_free(&wrong);
  str_free(&other);
  return err;
}

Err agree_saved(const char *path, const char *name, uint64_t *value) {
  Str saved = {0};
  Entry e;
  char digits[32];
  int64_t number = 0;
  *value = 0;
  Err err = file_read(path, (size_t)1 << 20, &saved);
  if (!err &&
      find_entry(str_text(&saved), &(Entry){.name = name, .name_len = strlen(name)}, 0, &e)) {
    snprintf(digits, sizeof digits, "%.*s", (int)(e.value_len < 31 ? e.value_len : 31),
             e.value);
    err = str_count(digits, &number);
    if (err) err = err_context("%s: %s", path, name);
    *value = number > 0 ? (uint64_t)number : 0;
  }
  str_free(&saved);
  return err;
}
