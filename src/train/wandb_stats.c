/* Converts samples of hosts to records of Weights & Biases. Depends on format/wandb, base, Jansson. */
#include "train/wandb_stats.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/jsondoc.h"
#include "base/mem.h"

#define CHUNK    ((size_t)1 << 16) /* bytes per read; a line of system.jsonl is shorter */
#define INTERVAL 15.0              /* seconds between records of a host */
#define MB       1048576.0
/* Samples of further hosts, or with a later time (seconds since 1970), are skipped. */
#define MAX_HOSTS 4096
#define MAX_TIME  1e11

struct StatsHost {
  char name[HOST_NAME_MAX + 1];
  bool is_own;    /* the host of this process; the keys of other hosts get a label */
  double time;    /* of the last sample */
  double written; /* time of the last record; 0: none */
  /* Bytes since the first sample: wandb shows totals, samples have rates. */
  double sent, received, disk_read, disk_written;
};

Err stats_open(WandbStats *s, const char *run_dir) {
  *s = (WandbStats){0};
  return file_join(s->path, run_dir, "system.jsonl");
}

void stats_close(WandbStats *s) {
  mem_free(s->host);
  str_free(&s->text);
  s->host = NULL;
  s->hosts = 0;
  s->cap = 0;
}

void stats_restart(WandbStats *s, double after) {
  s->at = 0;
  s->after = after;
  s->hosts = 0;
}

/* Finds a host, or adds it. *host is NULL if there are too many. */
static Err find_host(WandbStats *s, const char *full_name, StatsHost **host) {
  char name[HOST_NAME_MAX + 1], own[HOST_NAME_MAX + 1] = "";
  snprintf(name, sizeof name, "%s", full_name);
  for (size_t i = 0; i < s->hosts; i++) {
    *host = &s->host[i];
    if (strcmp((*host)->name, name) == 0) return ERR_OK;
  }
  *host = NULL;
  if (s->hosts == MAX_HOSTS) return ERR_OK;
  gethostname(own, sizeof own - 1);
  TRY(mem_grow(&s->host, &s->cap, s->hosts + 1, sizeof *s->host));
  *host = &s->host[s->hosts++];
  **host = (StatsHost){.is_own = strcmp(own, name) == 0};
  memcpy((*host)->name, name, sizeof name);
  return ERR_OK;
}

/* Values of a sample. */

/* A sample that is being converted. */
typedef struct {
  WandbLog *log;
  const StatsHost *host;
} Sample;

static void add_number(const Sample *to, const char *key, double value) {
  char labelled[HOST_NAME_MAX + 128];
  snprintf(labelled, sizeof labelled, "%s%s%s", key,
           to->host->is_own ? "" : "/l:", to->host->is_own ? "" : to->host->name);
  wandb_add_number(to->log, labelled, value);
}

/* Reads a number; returns false if it was not measured. */
static bool get_number(const json_t *object, const char *name, double *value) {
  const json_t *v = json_object_get(object, name);
  if (!json_is_number(v)) return false;
  *value = json_number_value(v);
  return true;
}

static void add_cores(const Sample *to, const json_t *sample) {
  const json_t *cores = json_object_get(sample, "cpu"), *core;
  char key[64];
  double sum = 0;
  size_t i, n = json_array_size(cores);
  json_array_foreach(cores, i, core) {
    snprintf(key, sizeof key, "cpu.%zu.cpu_percent", i);
    add_number(to, key, json_number_value(core));
    sum += json_number_value(core);
  }
  if (n) add_number(to, "cpu", sum / (double)n);
}

static void add_memory(const Sample *to, const json_t *sample) {
  double used, total, process;
  bool has_total = get_number(sample, "memory_total", &total) && total > 0;
  if (has_total && get_number(sample, "memory_used", &used)) {
    add_number(to, "memory_percent", 100 * used / total);
    add_number(to, "proc.memory.availableMB", (total - used) / MB);
  }
  if (!get_number(sample, "process_memory", &process)) return;
  add_number(to, "proc.memory.rssMB", process / MB);
  if (has_total) add_number(to, "proc.memory.percent", 100 * process / total);
}

static void add_gpu(const Sample *to, size_t index, const json_t *gpu) {
  static const struct {
    const char *name, *key;
  } keys[] = {{"busy", "gpu"},
              {"memory_used", "memoryAllocatedBytes"},
              {"celsius", "temp"},
              {"watts", "powerWatts"},
              {"watts_limit", "enforcedPowerLimitWatts"},
              {"sm_mhz", "smClock"},
              {"memory_mhz", "memoryClock"}};
  char key[64];
  double value, whole;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (!get_number(gpu, keys[i].name, &value)) continue;
    snprintf(key, sizeof key, "gpu.%zu.%s", index, keys[i].key);
    add_number(to, key, value);
  }
  if (get_number(gpu, "memory_used", &value) && get_number(gpu, "memory_total", &whole) &&
      whole > 0) {
    snprintf(key, sizeof key, "gpu.%zu.memoryAllocated", index);
    add_number(to, key, 100 * value / whole);
  }
  if (get_number(gpu, "watts", &value) && get_number(gpu, "watts_limit", &whole) && whole > 0) {
    snprintf(key, sizeof key, "gpu.%zu.powerPercent", index);
    add_number(to, key, 100 * value / whole);
  }
}

static void add_gpus(const Sample *to, const json_t *sample) {
  const json_t *gpu;
  size_t i;
  json_array_foreach(json_object_get(sample, "gpu"), i, gpu) {
    double index = (double)i;
    get_number(gpu, "index", &index);
    if (index >= 0 && index < 1024) add_gpu(to, (size_t)index, gpu);
  }
}

static void add_totals(const Sample *to, const json_t *sample) {
  const StatsHost *h = to->host;
  double rate;
  if (json_is_object(json_object_get(sample, "net"))) {
    add_number(to, "network.sent", h->sent);
    add_number(to, "network.recv", h->received);
  }
  if (get_number(sample, "disk_read", &rate)) add_number(to, "disk.in", h->disk_read / MB);
  if (get_number(sample, "disk_written", &rate))
    add_number(to, "disk.out", h->disk_written / MB);
}

/* Adds to the totals of the host what it has sent, received, read and written since its previous
 * sample. */
static void count_bytes(StatsHost *h, const json_t *sample, double seconds) {
  const char *name;
  json_t *net = json_object_get(sample, "net"), *card;
  double rate;
  json_object_foreach(net, name, card) {
    if (get_number(card, "sent", &rate)) h->sent += rate * seconds;
    if (get_number(card, "received", &rate)) h->received += rate * seconds;
  }
  if (get_number(sample, "disk_read", &rate)) h->disk_read += rate * seconds;
  if (get_number(sample, "disk_written", &rate)) h->disk_written += rate * seconds;
}

static Err convert_sample(WandbStats *s, const json_t *sample, WandbLog *log) {
  StatsHost *h;
  double time;
  const char *name = json_string_value(json_object_get(sample, "host"));
  if (!name || !get_number(sample, "time", &time)) return ERR_OK;
  if (time <= s->after || time <= 0 || time > MAX_TIME) return ERR_OK;
  TRY(find_host(s, name, &h));
  if (!h) return ERR_OK;
  if (h->time > 0 && time > h->time) count_bytes(h, sample, time - h->time);
  h->time = time;
  if (h->written > 0 && time < h->written + INTERVAL) return ERR_OK;
  h->written = time;
  Sample to = {log, h};
  wandb_begin_stats(log, time);
  add_cores(&to, sample);
  add_memory(&to, sample);
  add_totals(&to, sample);
  add_gpus(&to, sample);
  wandb_end(log);
  return ERR_OK;
}

/* Lines of the file. */

/* Returns true for a sample not later than `after`; it is recognized without parsing the JSON. */
static bool is_early(const char *line, double after) {
  static const char begin[] = "{\"time\":";
  return str_starts(line, begin) && strtod(line + strlen(begin), NULL) <= after;
}

/* Converts a line; one that is not a sample is skipped. */
static Err convert_line(WandbStats *s, const char *line, size_t len, WandbLog *log) {
  if (is_early(line, s->after) || jsondoc_check(line, len, s->path)) return ERR_OK;
  json_t *sample = json_loadb(line, len, 0, NULL);
  Err err = json_is_object(sample) ? convert_sample(s, sample, log) : ERR_OK;
  json_decref(sample);
  return err;
}

/* Converts the whole lines of s->text and moves s->at behind them. */
static Err convert_lines(WandbStats *s, WandbLog *log) {
  char *line = s->text.s, *end = s->text.s + s->text.len, *stop;
  while (line < end && (stop = memchr(line, '\n', (size_t)(end - line)))) {
    *stop = '\0';
    TRY(convert_line(s, line, (size_t)(stop - line), log));
    s->at += (uint64_t)(stop + 1 - line);
    line = stop + 1;
  }
  return ERR_OK;
}

static Err convert_file(WandbStats *s, int fd, WandbLog *log) {
  for (;;) {
    char chunk[CHUNK];
    uint64_t before = s->at;
    ssize_t n = pread(fd, chunk, sizeof chunk, (off_t)s->at);
    if (n < 0) return err_errno("cannot read", s->path);
    str_clear(&s->text);
    str_addn(&s->text, chunk, (size_t)n);
    TRY(str_check(&s->text));
    if (n > 0) TRY(convert_lines(s, log));
    if (s->at > before) continue;
    if ((size_t)n < sizeof chunk) return ERR_OK;
    s->at += (uint64_t)n; /* part of a line that is too long to be a sample */
  }
}

Err stats_add(WandbStats *s, WandbLog *log) {
  int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno == ENOENT ? ERR_OK : err_errno("cannot open", s->path);
  Err err = convert_file(s, fd, log);
  close(fd);
  return err;
}
