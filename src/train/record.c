/* Reads and writes training.json. Depends on base, Jansson, zlib. */
#include "train/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/filesum.h"
#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/place.h"
#include "train/task.h"

#define FORMAT  "trireme-training"
#define VERSION 2 /* version 1 had no checksums, no moving average, and always both m and v */
#define LIMIT   ((size_t)1 << 22)

#define FIRST_TASK "translate" /* the task of checkpoints that do not record one */

const char *const record_name[PARTS] = {"model.json", "weights.safetensors",
                                        "training.safetensors", "moment1.safetensors",
                                        "moment2.safetensors"};

#define DIGITS 8

static void print_crc(uint32_t crc, char out[DIGITS + 1]) {
  snprintf(out, DIGITS + 1, "%08" PRIx32, crc);
}

/* Return the keys of the counters in training.json. A task names them; a task that this program
 * does not know, from a checkpoint of another version, gets general names. */
static const char *get_predictions_key(const TrainCounters *c) {
  const TaskKind *kind = task_find(c->task);
  return kind ? kind->predictions_total : "predictions";
}

static const char *get_examples_key(const TrainCounters *c) {
  const TaskKind *kind = task_find(c->task);
  return kind ? kind->examples_total : "examples";
}

/* Returns false if a number is infinite or NaN: JSON cannot hold it, and training cannot
 * continue with it. */
static bool all_finite(const Record *r) {
  const TrainCounters *c = &r->counters;
  bool finite = isfinite(c->best_score) && isfinite(c->seconds) && isfinite(c->lr_scale) &&
                isfinite(c->scaler.scale);
  for (size_t i = 0; i < r->seconds && finite; i++) finite = isfinite(r->second[i]);
  return finite;
}

static json_t *print_sum(const PartSum *sum) {
  char digits[DIGITS + 1];
  print_crc(sum->crc, digits);
  return json_pack("{s:I, s:s}", "bytes", (json_int_t)sum->bytes, "crc32", digits);
}

/* Returns NULL if memory runs out. */
static json_t *print_files(const Record *r) {
  json_t *files = json_object();
  int failed = 0;
  for (int i = 0; i < PARTS; i++)
    if (r->part[i].there)
      failed |= json_object_set_new(files, record_name[i], print_sum(&r->part[i]));
  for (size_t i = 0; i < r->files; i++)
    failed |= json_object_set_new(files, r->file[i].name, print_sum(&r->file[i].sum));
  if (!failed) return files;
  json_decref(files);
  return NULL;
}

/* Returns NULL if memory runs out. */
static json_t *print_second(const Record *r) {
  json_t *list = json_array();
  int failed = 0;
  for (size_t i = 0; i < r->seconds; i++)
    failed |= json_array_append_new(list, json_real(r->second[i]));
  if (!failed) return list;
  json_decref(list);
  return NULL;
}

/* Returns NULL if memory runs out. */
static char *print_record(const Record *r) {
  const TrainCounters *c = &r->counters;
  json_t *root = json_pack(
      "{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:i, s:I, s:f, s:f, s:i, "
      "s:f, "
      "s:I, s:s, s:o}",
      "format", FORMAT, "version", VERSION, "checksum", JSONDOC_NO_SUM, "task", c->task, "step",
      (json_int_t)c->step, get_predictions_key(c), (json_int_t)c->predictions,
      get_examples_key(c), (json_int_t)c->examples, "micro_batches",
      (json_int_t)c->micro_batches, "batch_tokens", (json_int_t)c->batch_tokens, "seed",
      (json_int_t)c->seed, "best_score", c->best_score, "best_step", (json_int_t)c->best_step,
      "worse", c->worse, "validated", (json_int_t)c->validated, "seconds", c->seconds,
      "lr_scale", c->lr_scale, "rollbacks", c->rollbacks, "loss_scale", c->scaler.scale,
      "clean_steps", (json_int_t)c->scaler.clean, "data", c->data, "files", print_files(r));
  if (root && r->second && json_object_set_new(root, "second", print_second(r)) != 0) {
    json_decref(root);
    return NULL;
  }
  /* 17 significant digits restore every double exactly */
  char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
  json_decref(root);
  return text;
}

Err record_write(const char *dir, const Record *r) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, "training.json"));
  if (!all_finite(r)) {
    return err_set(ERR_WORK,
                   "cannot write %s: a counter or moment of step %" PRIu64
                   " is not finite; lower --lr",
                   path, r->counters.step);
  }
  char *text = print_record(r);
  if (!text) return err_set(ERR_WORK, "cannot write %s: out of memory", path);
  Str out = {0};
  str_addf(&out, "%s\n", text);
  free(text); /* allocated by Jansson with malloc */
  Err err = str_check(&out);
  if (!err) {
    jsondoc_seal(&out);
    err = file_write(path, out.s, out.len);
  }
  str_free(&out);
  return err;
}

/* Reading. A missing value gets its default, because an older version may have written the file. A
 * value of another type or out of range makes the file damaged. */
typedef struct {
  const json_t *root;
  const char *wrong; /* key of a value that cannot be used; NULL: none */
} Reader;

static const json_t *find_value(Reader *in, const char *key, bool (*is_valid)(const json_t *)) {
  const json_t *j = json_object_get(in->root, key);
  if (!j || is_valid(j)) return j;
  in->wrong = key;
  return NULL;
}

static bool is_count(const json_t *j) {
  return json_is_integer(j) && json_integer_value(j) >= 0;
}

static bool is_int(const json_t *j) {
  return is_count(j) && json_integer_value(j) <= INT_MAX;
}

static bool is_real(const json_t *j) {
  return json_is_number(j);
}

static bool is_positive(const json_t *j) {
  return json_is_number(j) && json_number_value(j) > 0;
}

static bool is_not_negative(const json_t *j) {
  return json_is_number(j) && json_number_value(j) >= 0;
}

static bool is_task(const json_t *j) {
  return json_is_string(j) && json_string_length(j) < sizeof((TrainCounters *)0)->task;
}

/* Older versions wrote no hash. */
static bool is_hash(const json_t *j) {
  size_t len = json_string_length(j);
  return json_is_string(j) && (len == 0 || len == sizeof((TrainCounters *)0)->data - 1);
}

static bool is_list_of_numbers(const json_t *j) {
  for (size_t i = 0; i < json_array_size(j); i++)
    if (!json_is_number(json_array_get(j, i))) return false;
  return json_is_array(j);
}

static uint64_t get_count(Reader *in, const char *key, uint64_t missing) {
  const json_t *j = find_value(in, key, is_count);
  return j ? (uint64_t)json_integer_value(j) : missing;
}

static int get_int(Reader *in, const char *key) {
  return (int)json_integer_value(find_value(in, key, is_int));
}

static double get_real(Reader *in, const char *key, bool (*is_valid)(const json_t *),
                       double missing) {
  const json_t *j = find_value(in, key, is_valid);
  return j ? json_number_value(j) : missing;
}

static bool parse_crc(const char *digits, uint32_t *crc) {
  if (!digits || strlen(digits) != DIGITS) return false;
  if (strspn(digits, "0123456789abcdefABCDEF") != DIGITS) return false;
  *crc = (uint32_t)strtoul(digits, NULL, 16);
  return true;
}

static bool read_sum(PartSum *sum, const json_t *j) {
  const json_t *bytes = json_object_get(j, "bytes");
  *sum = (PartSum){.there = true, .summed = true};
  sum->bytes = (uint64_t)json_integer_value(bytes);
  return is_count(bytes) &&
         parse_crc(json_string_value(json_object_get(j, "crc32")), &sum->crc);
}

/* Returns the part whose file has this name, or PARTS. */
static int find_part(const char *name) {
  int i = 0;
  while (i < PARTS && strcmp(record_name[i], name) != 0) i++;
  return i;
}

static RecordFile *add_file(Record *r, const char *name) {
  RecordFile *file = &r->file[r->files++];
  snprintf(file->name, sizeof file->name, "%s", name);
  return file;
}

static bool read_files(Record *r, json_t *files) {
  const char *name;
  json_t *j;
  json_object_foreach(files, name, j) {
    int part = find_part(name);
    bool fits = store_is_name(name) && r->files < STORE_FILES;
    if (part == PARTS && !fits) return false;
    if (!read_sum(part < PARTS ? &r->part[part] : &add_file(r, name)->sum, j)) return false;
  }
  return r->part[PART_MODEL].there && r->part[PART_WEIGHTS].there;
}

/* Version 1 does not list its files: it always had the two moments and a tokenizer, and no EMA. */
static void assume_files(Record *r) {
  for (int i = 0; i < PARTS; i++) r->part[i].there = i != PART_TRAINING;
  add_file(r, "tokenizer.model")->sum.there = true;
}

static Err read_second(Record *r, Reader *in) {
  const json_t *list = find_value(in, "second", is_list_of_numbers);
  if (!list) return ERR_OK;
  r->seconds = json_array_size(list);
  TRY(mem_alloc(&r->second, r->seconds, sizeof *r->second));
  for (size_t i = 0; i < r->seconds; i++)
    r->second[i] = json_number_value(json_array_get(list, i));
  return ERR_OK;
}

static void read_counters(TrainCounters *c, Reader *in) {
  const char *task = json_string_value(find_value(in, "task", is_task));
  const char *data = json_string_value(find_value(in, "data", is_hash));
  snprintf(c->task, sizeof c->task, "%s", task ? task : FIRST_TASK);
  snprintf(c->data, sizeof c->data, "%s", data ? data : "");
  c->step = get_count(in, "step", 0);
  c->predictions = get_count(in, get_predictions_key(c), 0);
  c->examples = get_count(in, get_examples_key(c), 0);
  c->micro_batches = get_count(in, "micro_batches", 0);
  c->batch_tokens = get_count(in, "batch_tokens", 0);
  c->seed = get_count(in, "seed", 0);
  /* Older versions wrote "best_bleu": they had translation as the only task. */
  c->best_score = get_real(in, "best_score", is_real, get_real(in, "best_bleu", is_real, 0));
  c->best_step = get_count(in, "best_step", 0);
  c->worse = get_int(in, "worse");
  /* Older versions validated before they saved, so a saved step was validated. */
  c->validated = get_count(in, "validated", c->step);
  c->seconds = get_real(in, "seconds", is_not_negative, 0);
  c->lr_scale = get_real(in, "lr_scale", is_positive, 1);
  c->rollbacks = get_int(in, "rollbacks");
  c->scaler.scale = get_real(in, "loss_scale", is_not_negative, 0);
  c->scaler.clean = get_count(in, "clean_steps", 0);
}

/* Returns true if `root` has the format of a training.json and a correct checksum. */
static bool is_sound(const json_t *root, const Str *text) {
  const char *format = json_string_value(json_object_get(root, "format"));
  const char *digits = json_string_value(json_object_get(root, "checksum"));
  if (!format || strcmp(format, FORMAT) != 0) return false;
  if (!json_is_integer(json_object_get(root, "step"))) return false;
  json_int_t version = json_integer_value(json_object_get(root, "version"));
  if (version < 1) return false;
  if (!digits) return version == 1;
  return jsondoc_is_sealed(text->s, text->len);
}

/* Reads the record from `root`; *whole is false if format, checksum, list of files or a value are
 * wrong. */
static Err read_root(Record *r, const json_t *root, const Str *text, const char *path,
                     bool *whole) {
  bool sound = is_sound(root, text);
  json_int_t version = json_integer_value(json_object_get(root, "version"));
  if (sound && version > VERSION) {
    return err_set(ERR_WORK,
                   "%s has version %d, this trireme reads up to %d; use a newer trireme", path,
                   (int)version, VERSION);
  }
  Reader in = {.root = root};
  *whole = sound && (version == 1 || read_files(r, json_object_get(root, "files")));
  if (*whole && version == 1) assume_files(r);
  if (!*whole) {
    err_set(ERR_WORK, "%s is damaged: %s", path,
            sound ? "its list of files is invalid" : "its format or checksum is wrong");
    return ERR_OK;
  }
  read_counters(&r->counters, &in);
  TRY(read_second(r, &in));
  *whole = !in.wrong;
  if (in.wrong) err_set(ERR_WORK, "%s is damaged: its '%s' is invalid", path, in.wrong);
  return ERR_OK;
}

Err record_read(const char *dir, Record *r, bool *whole) {
  char path[FILE_PATH_MAX];
  Str text = {0};
  json_error_t error;
  *r = (Record){0};
  *whole = false;
  TRY(file_join(path, dir, "training.json"));
  Err err = place_read_all(path, LIMIT, &text);
  if (err && !text.failed)
    /* A missing or unreadable file counts as damaged; err_message() has the reason. */
    err = ERR_OK;
  else if (!err && jsondoc_check(str_text(&text), text.len, path) == ERR_OK) {
    json_t *root = json_loadb(str_text(&text), text.len, JSON_REJECT_DUPLICATES, &error);
    if (root)
      err = read_root(r, root, &text, path, whole);
    else if (json_error_code(&error) == json_error_out_of_memory)
      err = err_set(ERR_WORK, "cannot read %s: out of memory", path);
    else
      err_set(ERR_WORK, "%s is damaged: line %d is not JSON", path, error.line);
    json_decref(root);
  }
  str_free(&text);
  if (err || !*whole) record_free(r);
  return err;
}

void record_free(Record *r) {
  mem_free(r->second);
  *r = (Record){0};
}

Err record_sum(const char *path, PartSum *sum) {
  FileSum now;
  TRY(filesum_file(path, &now));
  *sum = (PartSum){.there = true, .summed = true, .bytes = now.bytes, .crc = now.crc};
  return ERR_OK;
}

static Err check_sum(const char *dir, const char *name, const PartSum *sum) {
  char path[FILE_PATH_MAX];
  FileSum now = {0}, then = {sum->bytes, sum->crc};
  TRY(file_join(path, dir, name));
  TRY(place_size(path, &now.bytes));
  if (!sum->summed) return ERR_OK;
  if (now.bytes == then.bytes) TRY(filesum_file(path, &now));
  return filesum_compare(path, now, then);
}

Err record_check(const char *dir, const Record *r, Part part) {
  return check_sum(dir, record_name[part], &r->part[part]);
}

Err record_check_file(const char *dir, const RecordFile *file) {
  return check_sum(dir, file->name, &file->sum);
}

const RecordFile *record_find_file(const Record *r, const char *name) {
  for (size_t i = 0; i < r->files; i++)
    if (strcmp(r->file[i].name, name) == 0) return &r->file[i];
  return NULL;
}
