/* Facts from the files of a run other than its measurements. The files are untrusted: sizes are
 * limited, and the number of JSON values is checked before parsing. Depends on base, Jansson. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "monitor/facts_internal.h"

#define FILE_LIMIT   ((size_t)16 << 20)
#define CONFIG_LIMIT ((size_t)64 << 10) /* bytes of a config */
#define LOG_END      4096 /* bytes at the end of log.txt in which its last line is */

/* Reads "dir/name". An empty text if it does not exist, cannot be read or is too large. */
static void read_text(const char *dir, const char *name, size_t limit, Str *text) {
  char path[FILE_PATH_MAX];
  if (file_join(path, dir, name) || !file_exists(path)) return;
  if (file_read(path, limit, text)) str_clear(text);
}

/* Parses JSON; NULL if it is none. */
static json_t *parse(const char *text, size_t len) {
  if (len == 0 || jsondoc_check(text, len, "file of a run")) return NULL;
  return json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
}

static json_t *read_json(const char *dir, const char *name) {
  Str text = {0};
  read_text(dir, name, FILE_LIMIT, &text);
  json_t *json = parse(str_text(&text), text.len);
  str_free(&text);
  return json;
}

static double get_number(const json_t *json, const char *key) {
  const json_t *value = json_object_get(json, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A number of things: whole, and exact in a double. Anything else is unknown. */
static double get_count(const json_t *json, const char *key) {
  double value = get_number(json, key);
  return value >= 0 && value <= 9007199254740992.0 && floor(value) == value ? value : NAN;
}

/* A number of ranks: at least one. */
static double get_ranks(const json_t *line) {
  double ranks = get_count(line, "ranks");
  return ranks >= 1 ? ranks : NAN;
}

/* Copies a text for a page: control characters are escaped. */
static void get_text(const json_t *json, const char *key, char *out, size_t room) {
  const char *text = json_string_value(json_object_get(json, key));
  if (text) utf8_visible(text, out, room);
}

static int compare_names(const void *a, const void *b) {
  const char *const *left = a, *const *right = b;
  return strcmp(*left, *right);
}

/* Counts the different names in a list; NAN if there are none. */
static double count_hosts(const json_t *hosts) {
  size_t n = json_array_size(hosts), names = 0, count = 0;
  const char **name;
  if (n == 0 || mem_alloc(&name, n, sizeof *name)) return NAN;
  for (size_t i = 0; i < n; i++) {
    const char *text = json_string_value(json_array_get(hosts, i));
    if (text) name[names++] = text;
  }
  qsort(name, names, sizeof *name, compare_names);
  for (size_t i = 0; i < names; i++) count += i == 0 || strcmp(name[i], name[i - 1]) != 0;
  mem_free(name);
  return count ? (double)count : NAN;
}

/* Returns true if both are the same, or both unknown. */
static bool is_same(double a, double b) {
  return a == b || (isnan(a) && isnan(b));
}

static void take_process(RunFacts *f, const json_t *line) {
  double ranks = f->ranks, hosts = f->hosts, step = get_count(line, "step");
  char device[FACTS_TEXT];
  memcpy(device, f->device, sizeof device);
  f->ranks = get_ranks(line);
  f->hosts = count_hosts(json_object_get(line, "hosts"));
  f->threads = get_count(line, "threads");
  f->parameters = get_count(line, "parameters");
  f->gradient_bytes = get_count(line, "gradient_bytes");
  f->planned_steps = get_count(line, "steps");
  f->warmup_steps = get_count(line, "warmup_steps");
  get_text(line, "version", f->version, sizeof f->version);
  get_text(line, "compiler", f->compiler, sizeof f->compiler);
  get_text(line, "system", f->system, sizeof f->system);
  f->device[0] = 0;
  get_text(line, "device", f->device, sizeof f->device);
  get_text(line, "transport", f->transport, sizeof f->transport);
  get_text(line, "allreduce", f->allreduce, sizeof f->allreduce);
  get_text(line, "directory", f->directory, sizeof f->directory);
  str_clear(&f->command);
  const char *command = json_string_value(json_object_get(line, "command"));
  if (command) str_add(&f->command, command);
  bool is_changed =
      !is_same(ranks, f->ranks) || !is_same(hosts, f->hosts) || strcmp(device, f->device) != 0;
  if (is_changed && f->processes > 1 && !isnan(step)) f->since_step = step;
}

static void read_processes(RunFacts *f) {
  Str text = {0};
  read_text(f->dir, "processes.jsonl", FILE_LIMIT, &text);
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

/* Takes the error of a line of log.txt, "TIME  trireme: ERROR". */
static void take_error(RunFacts *f, const char *line) {
  const char *mark = "  trireme: ", *at = strstr(line, mark);
  size_t time = strcspn(line, " ");
  if (!at || at != line + time) return;
  utf8_visible(at + strlen(mark), f->error, sizeof f->error);
  f->has_diverged = strstr(f->error, "--max-rollbacks") != NULL;
}

/* A process that ends with an error writes it as the last line of log.txt. */
static void read_error(RunFacts *f) {
  char path[FILE_PATH_MAX], text[LOG_END + 1];
  int fd;
  uint64_t bytes;
  if (file_join(path, f->dir, "log.txt") || file_open(path, &fd, &bytes)) return;
  ssize_t got = pread(fd, text, LOG_END, (off_t)(bytes > LOG_END ? bytes - LOG_END : 0));
  close(fd);
  if (got < 1 || text[got - 1] != '\n') return;
  text[got - 1] = 0;
  const char *line = strrchr(text, '\n');
  take_error(f, line ? line + 1 : text);
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
  f->target_tokens = get_count(training, "target_tokens");
  f->checkpoint_step = get_count(training, "step");
  get_text(training, "task", f->task, sizeof f->task);
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

static void read_labels(RunFacts *f, const json_t *labels, const json_t *labeled) {
  const json_t *names = json_object_get(labels, "names");
  if (!json_is_array(names)) return;
  f->labels = (double)json_array_size(names);
  get_text(labels, "kind", f->label_kind, sizeof f->label_kind);
  for (size_t i = 0; i < json_array_size(names) && i < FACTS_LABELS; i++) {
    LabelCount *label = &f->label[f->label_count++];
    const json_t *texts = json_array_get(labeled, i);
    const char *name = json_string_value(json_array_get(names, i));
    utf8_visible(name ? name : "", label->name, sizeof label->name);
    label->texts = json_is_integer(texts) ? (double)json_integer_value(texts) : NAN;
  }
}

/* Reads what dataset.json says of texts, with or without labels. */
static void read_texts(RunFacts *f, const json_t *set, const json_t *train) {
  f->has_texts = true;
  f->train_texts = get_count(train, "examples");
  f->train_lines = get_count(train, "rows");
  f->text_bytes = get_count(train, "text_bytes");
  f->train_text_tokens = get_count(train, "tokens");
  read_labels(f, json_object_get(set, "labels"), json_object_get(train, "labeled"));
}

static void read_pairs(RunFacts *f, const json_t *train) {
  const json_t *bytes = json_object_get(train, "text_bytes");
  const json_t *tokens = json_object_get(train, "tokens");
  f->train_pairs = get_count(train, "pairs");
  f->train_lines = get_count(train, "lines");
  f->text_bytes = get_count(bytes, "source") + get_count(bytes, "target");
  f->source_tokens = get_count(tokens, "source");
  f->data_target_tokens = get_count(tokens, "target");
}

/* Takes the task from the config, or else from the checkpoint, which read_checkpoint has read. */
static void read_task(RunFacts *f) {
  facts_option(f, "task", f->task, sizeof f->task);
  f->is_classifier = strcmp(f->task, "classify") == 0;
  f->is_text_task = f->is_classifier || strcmp(f->task, "mlm") == 0;
}

static void read_data(RunFacts *f) {
  char path[FILE_PATH_MAX];
  if (!find_data(f, path)) return;
  snprintf(f->data_dir, sizeof f->data_dir, "%s", path);
  json_t *set = read_json(path, "dataset.json");
  const json_t *train = json_object_get(json_object_get(set, "splits"), "train");
  if (json_object_get(set, "texts"))
    read_texts(f, set, train);
  else
    read_pairs(f, train);
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
  read_text(f->dir, "config", CONFIG_LIMIT, &f->config);
  read_processes(f);
  read_error(f);
  read_checkpoint(f);
  read_task(f);
  read_data(f);
  TRY(str_check(&f->command));
  return str_check(&f->config);
}
