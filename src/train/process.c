/* Writes RUN/processes.jsonl, from which `report` prints the exact command and versions. Depends on
 * base, Jansson. */
#include "train/process.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/url.h"
#include "base/utf8.h"

#define COMMAND_BYTES ((size_t)64 << 10) /* a longer command line is cut */

/* Returns the command line of this process in shell quotes, without the passwords in URLs. */
static json_t *make_command(void) {
  char words[COMMAND_BYTES], shown[URL_SHOWN_MAX];
  Str line = {0};
  FILE *f = fopen("/proc/self/cmdline", "re");
  size_t len = f ? fread(words, 1, sizeof words - 1, f) : 0;
  if (f) fclose(f);
  words[len] = 0;
  for (size_t at = 0; at < len; at += strlen(words + at) + 1) {
    if (at) str_addc(&line, ' ');
    str_add_shell(&line, url_mask_path(words + at, shown));
  }
  json_t *command = NULL;
  char *text = NULL;
  size_t room = 4 * line.len + 1;
  if (!str_check(&line) && line.len && !mem_alloc(&text, room, 1)) {
    utf8_visible(str_text(&line), text, room);
    command = json_string(text);
  }
  mem_free(text);
  str_free(&line);
  return command;
}

/* Returns the directory in which the command was called: paths in it are relative to that. */
static json_t *make_directory(void) {
  char path[FILE_PATH_MAX];
  return getcwd(path, sizeof path) ? json_string(path) : NULL;
}

static json_t *make_hosts(const Comm *comm) {
  json_t *hosts = json_array();
  for (int r = 0; r < comm_size(comm); r++)
    json_array_append_new(hosts, json_string(comm_host(comm, r)));
  return hosts;
}

static double read_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static json_t *make_system(void) {
  struct utsname u;
  if (uname(&u)) return NULL;
  return json_sprintf("%s %s %s", u.sysname, u.release, u.machine);
}

/* The order of the pairs is that of the line. A member that is NULL is left out. */
static json_t *make_line(const Trainer *t) {
  const World *w = &t->world;
  size_t parameters = t->state.model->params.total;
  /* The flat gradient is all-reduced with its padding. */
  size_t gradient_bytes =
      t->state.model->params.padded * (t->spec->allreduce_bf16 ? 2 : sizeof(float));
  json_t *line = json_object();
  json_object_set_new(line, "time", json_real(read_time()));
  json_object_set_new(line, "step", json_integer((json_int_t)t->run.at.step));
  json_object_set_new(line, "version", json_string(TRIREME_VERSION));
  json_object_set_new(line, "compiler", json_string(__VERSION__));
  json_object_set_new(line, "system", make_system());
  json_object_set_new(line, "command", make_command());
  json_object_set_new(line, "directory", make_directory());
  json_object_set_new(line, "ranks", json_integer(comm_size(w->comm)));
  json_object_set_new(line, "hosts", make_hosts(w->comm));
  json_object_set_new(line, "transport", json_string(comm_about(w->comm)));
  if (*w->allreduce.about)
    json_object_set_new(line, "allreduce", json_string(w->allreduce.about));
  json_object_set_new(line, "device", json_string(w->backend.about));
  json_object_set_new(line, "threads", json_integer(w->backend.threads));
  json_object_set_new(line, "parameters", json_integer((json_int_t)parameters));
  json_object_set_new(line, "gradient_bytes", json_integer((json_int_t)gradient_bytes));
  json_object_set_new(line, "micro_batches", json_integer(t->micro_batches));
  json_object_set_new(line, "batch_tokens", json_integer(t->task->capacity));
  json_object_set_new(line, "packing", json_real(t->task->fill));
  json_object_set_new(line, "steps", json_integer((json_int_t)t->steps));
  json_object_set_new(line, "warmup_steps", json_integer((json_int_t)t->schedule.warmup));
  return line;
}

static Err write_line(const char *dir, const char *text) {
  char path[FILE_PATH_MAX];
  LineFile file;
  TRY(file_join(path, dir, "processes.jsonl"));
  TRY(lines_open(&file, path));
  Err err = lines_add(&file, text, strlen(text));
  lines_close(&file);
  return err;
}

void process_record(const Trainer *t) {
  json_t *line = make_line(t);
  char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
  Str whole = {0};
  str_addf(&whole, "%s\n", text ? text : "");
  Err err =
      text ? str_check(&whole)
           : err_set(ERR_WORK, "out of memory while writing %s/processes.jsonl", t->run.dir);
  if (!err) err = write_line(t->run.dir, whole.s);
  if (err) log_warn("%s; reports will lack the command and versions", err_message());
  str_free(&whole);
  free(text);
  json_decref(line);
}
