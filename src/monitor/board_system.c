/* Reads system.jsonl for the board. Depends on base, Jansson, board_buckets. */
#include "monitor/board_system.h"

#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/jsondoc.h"
#include "base/mem.h"

#define SYSTEM_TAIL   ((size_t)1 << 20)
#define SAMPLE_PLACES 256
#define SAMPLE_BYTES  ((size_t)16 << 10)
#define LINE_MOST     ((size_t)64 << 10) /* longer lines are skipped; train writes up to 16 kB */

void board_system_free(BoardSystem *s) {
  for (size_t i = 0; i < s->hosts; i++) {
    str_free(&s->host[i].latest);
    buckets_free(&s->host[i].history);
  }
  mem_free(s->host);
  *s = (BoardSystem){.generation = s->generation + 1};
}

/* Returns the host of that name, a new one if needed; NULL if there are too many. */
static BoardHost *get_host(BoardSystem *s, const char *name) {
  for (size_t i = 0; i < s->hosts; i++)
    if (strcmp(s->host[i].name, name) == 0) return &s->host[i];
  if (s->hosts == SYSTEM_HOSTS || strlen(name) >= SYSTEM_NAME) {
    s->is_cut = true;
    return NULL;
  }
  if (mem_grow(&s->host, &s->host_room, s->hosts + 1, sizeof *s->host)) return NULL;
  BoardHost *h = &s->host[s->hosts++];
  *h = (BoardHost){0};
  memcpy(h->name, name, strlen(name) + 1);
  return h;
}

static void add_value(Buckets *b, const char *name, double value) {
  buckets_add(b, buckets_column(b, name, strlen(name)), value);
}

/* Adds a number of the sample, if it was measured. */
static void add_number(Buckets *b, const char *name, const json_t *value) {
  if (json_is_number(value)) add_value(b, name, json_number_value(value));
}

static void add_cpu(Buckets *b, const json_t *cpu) {
  double sum = 0;
  size_t n = json_array_size(cpu);
  for (size_t i = 0; i < n; i++) sum += json_number_value(json_array_get(cpu, i));
  if (n) add_value(b, "cpu", sum / (double)n);
}

/* Adds the sums over all network cards. */
static void add_network(Buckets *b, json_t *net) {
  double received = 0, sent = 0;
  const char *card;
  json_t *value;
  if (json_object_size(net) == 0) return;
  json_object_foreach(net, card, value) {
    if (strcmp(card, "lo") == 0) continue;
    received += json_number_value(json_object_get(value, "received"));
    sent += json_number_value(json_object_get(value, "sent"));
  }
  add_value(b, "received", received);
  add_value(b, "sent", sent);
}

/* Adds one column for each GPU and measurement: gpu0_busy. */
static void add_gpus(Buckets *b, const json_t *gpus) {
  static const char *const names[] = {"busy", "memory_used", "watts", "celsius"};
  enum { GPUS = 8 }; /* those whose columns fit beside the host's */
  for (size_t i = 0; i < json_array_size(gpus) && i < GPUS; i++) {
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
      char column[BUCKETS_NAME];
      snprintf(column, sizeof column, "gpu%zu_%s", i, names[n]);
      add_number(b, column, json_object_get(json_array_get(gpus, i), names[n]));
    }
  }
}

static Err add_sample(BoardHost *h, json_t *sample, double time) {
  static const char *const names[] = {"memory_used",  "process_memory", "disk_read",
                                      "disk_written", "disk_free",      "watts_cpu"};
  Buckets *b = &h->history;
  if (b->count && b->bucket[b->count - 1].last.step >= time) return ERR_OK;
  TRY(buckets_begin(b, (BucketPlace){.step = time}));
  add_cpu(b, json_object_get(sample, "cpu"));
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    add_number(b, names[n], json_object_get(sample, names[n]));
  add_network(b, json_object_get(sample, "net"));
  add_gpus(b, json_object_get(sample, "gpu"));
  return ERR_OK;
}

static Err take_line(BoardSystem *s, const char *text, size_t len) {
  if (len > LINE_MOST || jsondoc_check(text, len, "system.jsonl")) return ERR_OK;
  json_t *sample = json_loadb(text, len, 0, NULL);
  const char *name = json_string_value(json_object_get(sample, "host"));
  double time = json_number_value(json_object_get(sample, "time"));
  BoardHost *h = name && time > 0 ? get_host(s, name) : NULL;
  Err err = ERR_OK;
  if (h) {
    str_clear(&h->latest);
    str_addn(&h->latest, text, len);
    err = add_sample(h, sample, time);
  }
  json_decref(sample);
  return err;
}

/* Takes the complete lines of the file from `offset` on, at most `bytes`; *used: their bytes.
 * `is_inside`: the offset may be within a line, whose rest is skipped. */
static Err take_block(BoardSystem *s, int fd, char *text, uint64_t offset, size_t bytes,
                      bool is_inside, size_t *used) {
  ssize_t got = pread(fd, text, bytes, (off_t)offset);
  const char *stop;
  Err err = ERR_OK;
  *used = 0;
  if (got <= 0) return ERR_OK;
  while (!err && (stop = memchr(text + *used, '\n', (size_t)got - *used))) {
    size_t len = (size_t)(stop - text) - *used;
    if (!is_inside) err = take_line(s, text + *used, len);
    is_inside = false;
    *used += len + 1;
  }
  if (*used == 0 && (size_t)got == bytes) *used = bytes; /* a line that is too long */
  return err;
}

static Err read_new(BoardSystem *s, int fd, char *text) {
  size_t used;
  Err err = ERR_OK;
  if (s->offset == 0 && s->size > SYSTEM_TAIL) {
    uint64_t tail = s->size - SYSTEM_TAIL;
    for (uint64_t i = 0; !err && i < SAMPLE_PLACES; i++)
      err = take_block(s, fd, text, tail / SAMPLE_PLACES * i, SAMPLE_BYTES, i > 0, &used);
    if (!err) err = take_block(s, fd, text, tail, SYSTEM_TAIL, /*is_inside=*/true, &used);
    s->offset = tail + used;
  }
  if (!err) err = take_block(s, fd, text, s->offset, SYSTEM_TAIL, /*is_inside=*/false, &used);
  if (!err) s->offset += used;
  return err;
}

Err board_system_refresh(BoardSystem *s, const char *run) {
  char path[FILE_PATH_MAX], *text;
  struct stat st;
  TRY(file_join(path, run, "system.jsonl"));
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ERR_OK; /* no samples: the page says so */
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return ERR_OK;
  }
  uint64_t device = (uint64_t)st.st_dev, inode = (uint64_t)st.st_ino,
           size = (uint64_t)st.st_size;
  if (s->device != device || s->inode != inode || size < s->size) board_system_free(s);
  s->device = device;
  s->inode = inode;
  s->size = size;
  Err err = mem_alloc(&text, SYSTEM_TAIL, 1);
  if (!err && s->offset < size) err = read_new(s, fd, text);
  mem_free(text);
  close(fd);
  return err;
}
