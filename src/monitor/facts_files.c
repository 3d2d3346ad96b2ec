/* Facts from the files of a run other than its measurements. The files are untrusted: sizes are
 * limited, and the number of JSON values is checked before parsing. Depends on base, Jansson. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/jsondoc.h"
#include "base/utf8.h"
#include "monitor/facts_internal.h"

#define FILE_LIMIT ((size_t)16 << 20)

/* Reads "dir/name". An empty text if it does not exist or cannot be read. */
static void read_text(const char *dir, const char *name, Str *text) {
  char path[FILE_PATH_MAX];
  if (file_join(path, dir, name) || !file_exists(path)) return;
  if (file_read(path, FILE_LIMIT, text)) str_clear(text);
}

/* Parses JSON; NULL if it is none. */
static json_t *parse(const char *text, size_t len) {
  if (len == 0 || jsondoc_check(text, len, "file of a run")) return NULL;
  return json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
}

static json_t *read_json(const char *dir, const char *name) {
  Str text = {0};
  read_text(dir, name, &text);
  json_t *json = parse(str_text(&text), text.len);
  str_free(&text);
  return json;
}

static double get_number(const json_t *json, const char *key) {
  const json_t *value = json_object_get(json, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Copies a text for a page: control characters are escaped. */
static void get_text(const json_t *json, const char *key, char *out, size_t room) {
  const char *text = json_string_value(json_object_get(json, key));
  if (text) utf8_visible(text, out, room);
}

/* Counts the different names in a list. */
static double count_hosts(const json_t *hosts) {
  size_t count = 0, n = json_array_size(hosts);
  for (size_t i = 0; i < n; i++) {
    const char *name = json_string_value(json_array_get(hosts, i));
    bool is_new = name != NULL;
    for (size_t k = 0; k < i && is_new; k++) {
      const char *other = json_string_value(json_array_get(hosts, k));
      if (other && strcmp(other, name) == 0) is_new = false;
    }
    count += is_new;
  }
  return count ? (double)count : NAN;
}

static void take_process(RunFacts *f, const json_t *line) {
  f->ranks = get_number(line, "ranks");
  f->hosts = count_hosts(json_object_get(line, "hosts"));
  f->threads = get_number(line, "threads");
  f->parameters = get_number(line, "parameters");
  f->gradient_bytes = get_number(line, "gradient_bytes");
  f->planned_steps = get_number(line, "steps");
  get_text(line, "version", f->version, sizeof f->version);
  get_text(line, "compiler", f->compiler, sizeof f->compiler);
  get_text(line, "system", f->system, sizeof f->system);
  get_text(line, "device", f->device, sizeof f->device);
  get_text(line, "transport", f->transport, sizeof f->transport);
  get_text(line, "allreduce", f->allreduce, sizeof f->allreduce);
  get_text(line, "directory", f->directory, sizeof f->directory);
  str_clear(&f->command);
  const char *command = json_string_value(json_object_get(line, "command"));
  if (command) str_add(&f->command, command);
}

static void read_processes(RunFacts *f) {
  Str text = {0};
  read_text(f->dir, "processes.jsonl", &text);
  for (const char *at = str_text(&text); *at;) {
    size_t len = strcspn(at, "\n");
    json_t *line = parse(at, len);
    if (line) {
      f->processes = isnan(f->processes) ? 1 : f->processes + 1;
      if (f->processes == 1) f->began = get_number(line, "time");
      take_process(f, line);
    }
    json_decref(line);
    at += len;
    if (*at) at++;
  }
  f->is_on_gpu = str_starts(f->device, "cuda");
  str_free(&text);
}

static void read_model(RunFacts *f, const char *dir) {
  static const char *const rates[] = {"drop_embed", "drop_attention", "drop_activation",
                                      "drop_residual"};
  json_t *model = read_json(dir, "model.json");
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
    double rate = get_number(model, rates[i]);
    if (!isnan(rate) && !(f->dropout >= rate)) f->dropout = rate;
  }
  json_decref(model);
  json_t *training = read_json(dir, "training.json");
  f->target_tokens = get_number(training, "target_tokens");
  f->pairs_seen = get_number(training, "pairs");
  json_decref(training);
}

static int compare_files(const void *a, const void *b) {
  const CheckpointFile *left = a, *right = b;
  return strcmp(left->name, right->name);
}

/* Lists the files of a checkpoint with their sizes. */
static void list_checkpoint(RunFacts *f, const char *dir) {
  char path[FILE_PATH_MAX];
  DIR *entries = opendir(dir);
  if (!entries) return;
  f->checkpoint_bytes = 0;
  for (struct dirent *entry; (entry = readdir(entries));) {
    struct stat st;
    if (file_join(path, dir, entry->d_name) || stat(path, &st) || !S_ISREG(st.st_mode))
      continue;
    f->checkpoint_bytes += (double)st.st_size;
    if (f->file_count == FACTS_FILES) continue;
    CheckpointFile *file = &f->file[f->file_count++];
    utf8_visible(entry->d_name, file->name, sizeof file->name);
    file->bytes = (double)st.st_size;
  }
  closedir(entries);
  qsort(f->file, f->file_count, sizeof *f->file, compare_files);
}

static void count_checkpoints(RunFacts *f) {
  char path[FILE_PATH_MAX];
  if (file_join(path, f->dir, "checkpoints")) return;
  DIR *entries = opendir(path);
  if (!entries) return;
  f->checkpoints = 0;
  for (struct dirent *entry; (entry = readdir(entries));)
    if (str_starts(entry->d_name, "step-") && !str_ends(entry->d_name, ".old"))
      f->checkpoints++;
  closedir(entries);
}

static void read_checkpoint(RunFacts *f) {
  char path[FILE_PATH_MAX];
  if (file_join(path, f->dir, "checkpoints/latest") || !file_is_dir(path)) return;
  snprintf(f->checkpoint, sizeof f->checkpoint, "checkpoints/latest");
  list_checkpoint(f, path);
  count_checkpoints(f);
  read_model(f, path);
}

/* Copies the value of an option as it is in the file. */
static bool get_option(const RunFacts *f, const char *name, char *out, size_t room) {
  size_t len = strlen(name);
  bool is_found = false;
  for (const char *at = str_text(&f->config); *at;) {
    size_t line = strcspn(at, "\n");
    if (strncmp(at, name, len) == 0 && strncmp(at + len, " = ", 3) == 0) {
      const char *value = at + len + 3, *end = at + line;
      if (end - value >= 2 && *value == '"' && end[-1] == '"') {
        value++;
        end--;
      }
      snprintf(out, room, "%.*s", (int)(end - value), value);
      is_found = true;
    }
    at += line;
    if (*at) at++;
  }
  return is_found;
}

bool facts_option(const RunFacts *f, const char *name, char *out, size_t room) {
  char value[FILE_PATH_MAX];
  if (!get_option(f, name, value, sizeof value)) return false;
  utf8_visible(value, out, room);
  return true;
}

/* Finds the data set: its path is relative to the directory in which training was called. */
static bool find_data(RunFacts *f, char path[FILE_PATH_MAX]) {
  char data[1024];
  if (!get_option(f, "data", data, sizeof data)) return false;
  snprintf(f->data_dir, sizeof f->data_dir, "%s", data);
  bool is_relative = data[0] != '/' && f->directory[0];
  if (is_relative && !file_join(path, f->directory, data) && file_is_dir(path)) return true;
  snprintf(path, FILE_PATH_MAX, "%s", data);
  return file_is_dir(path);
}

static void read_data(RunFacts *f) {
  char path[FILE_PATH_MAX];
  if (!find_data(f, path)) return;
  snprintf(f->data_dir, sizeof f->data_dir, "%s", path);
  json_t *set = read_json(path, "dataset.json");
  const json_t *train = json_object_get(json_object_get(set, "splits"), "train");
  const json_t *bytes = json_object_get(train, "text_bytes");
  const json_t *tokens = json_object_get(train, "tokens");
  f->train_pairs = get_number(train, "pairs");
  f->train_lines = get_number(train, "lines");
  f->text_bytes = get_number(bytes, "source") + get_number(bytes, "target");
  f->source_tokens = get_number(tokens, "source");
  f->data_target_tokens = get_number(tokens, "target");
  json_decref(set);
}

Err facts_read_files(RunFacts *f) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, f->dir, "config"));
  if (!f->log.has_metrics && !file_exists(path))
    return err_set(ERR_WORK,
                   "%s is no run: it has neither a config nor metrics.jsonl; give a directory "
                   "that train --run wrote",
                   f->dir);
  read_text(f->dir, "config", &f->config);
  read_processes(f);
  read_checkpoint(f);
  read_data(f);
  TRY(str_check(&f->command));
  return str_check(&f->config);
}
