/* Writes logs of Weights & Biases runs. The numbers of fields are those of wandb_internal.proto.
 * Depends on base, hparams, protobuf. */
#include "format/wandb.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/crc.h"
#include "format/hparams.h"
#include "format/wandb_file.h"

enum {
  RUN_ID = 1,
  RUN_PROJECT = 3,
  RUN_CONFIG = 4,
  RUN_NAME = 8,
  RUN_HOST = 13,
  RUN_START = 17
};
enum { ENVIRONMENT_SYSTEM = 1, ENVIRONMENT_START = 3, ENVIRONMENT_PROGRAM = 6 };
enum { ENVIRONMENT_HOST = 12, ENVIRONMENT_CORES = 16, ENVIRONMENT_THREADS = 17 };
enum { ENVIRONMENT_MEMORY = 21, MEMORY_TOTAL = 1, ENVIRONMENT_WRITER = 199 };
enum { HEADER_VERSION = 1, VERSION_PRODUCER = 1, VERSION_MIN_CONSUMER = 2 };
enum { EXIT_CODE = 1, EXIT_RUNTIME = 2 };

/* The earliest version of wandb that reads the file. */
#define MIN_CONSUMER "0.40.0"

Err wandb_check(const WandbLog *log) {
  TRY(str_check(&log->message));
  return str_check(&log->out);
}

void wandb_free(WandbLog *log) {
  str_free(&log->out);
  str_free(&log->message);
}

/* Fragments. */

static void add_fragment(Str *out, int type, const char *data, size_t len) {
  const char byte = (char)type;
  uint32_t crc = crc_add(crc_add(0, &byte, 1), data, len);
  proto_add_fixed(out, crc, 4);
  proto_add_fixed(out, len, 2);
  str_addc(out, byte);
  str_addn(out, data, len);
}

/* Appends the message to `out`, cut into fragments at the ends of blocks. */
static void add_record(WandbLog *log) {
  const char *at = str_text(&log->message);
  size_t left = log->message.len;
  bool is_first = true, is_last = false;
  while (!is_last && !log->out.failed && !log->message.failed) {
    size_t used = (size_t)((log->offset + log->out.len) % WANDB_BLOCK);
    size_t room = WANDB_BLOCK - used;
    for (; room<WANDB_FRAGMENT; room = room> 1 ? room - 1 : WANDB_BLOCK)
      str_addc(&log->out, '\0');
    size_t most = room - WANDB_FRAGMENT;
    is_last = left <= most;
    size_t len = is_last ? left : most;
    int type = is_first && is_last ? WANDB_WHOLE
               : is_first          ? WANDB_FIRST
               : is_last           ? WANDB_LAST
                                   : WANDB_MIDDLE;
    add_fragment(&log->out, type, at, len);
    at += len;
    left -= len;
    is_first = false;
  }
}

/* Messages. */

static void begin_record(WandbLog *log, WandbType type) {
  str_clear(&log->message);
  log->body = proto_begin(&log->message, (int)type);
}

static void end_record(WandbLog *log) {
  proto_end(&log->message, log->body);
  add_record(log);
}

static void add_time(Str *out, int field, double time) {
  double whole = floor(time);
  size_t message = proto_begin(out, field);
  proto_add_int(out, WANDB_SECONDS, (uint64_t)whole);
  proto_add_int(out, WANDB_NANOS, (uint64_t)((time - whole) * 1e9));
  proto_end(out, message);
}

static void add_item(Str *out, int field, const char *key, size_t key_len, const char *json) {
  size_t item = proto_begin(out, field);
  proto_add_text(out, WANDB_ITEM_KEY, key, key_len);
  proto_add_string(out, WANDB_ITEM_JSON, json);
  proto_end(out, item);
}

/* Appends a JSON string. Bytes that are not UTF-8 are replaced later, by proto_add_string. */
static void add_json_string(Str *out, const char *text, size_t len) {
  str_addc(out, '"');
  for (size_t i = 0; i < len; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c == '"' || c == '\\') str_addc(out, '\\');
    if (c < ' ')
      str_addf(out, "\\u%04x", c);
    else
      str_addc(out, text[i]);
  }
  str_addc(out, '"');
}

/* A number in another notation than JSON's, such as "+.5", is written anew. */
static void add_options(Str *out, const char *options) {
  Str copy = {0}, json = {0};
  Hparam h;
  double number;
  while (hparams_next(&options, &h)) {
    str_clear(&json);
    if (hparams_is_number(&h, &copy, &number))
      str_addf(&json, "%.17g", number);
    else
      add_json_string(&json, h.text, h.text_len);
    add_item(out, WANDB_ITEMS, h.name, h.name_len, str_text(&json));
  }
  if (copy.failed || json.failed) out->failed = true;
  str_free(&copy);
  str_free(&json);
}

void wandb_add_header(WandbLog *log, const char *producer) {
  str_addn(&log->out, WANDB_MAGIC, WANDB_MAGIC_BYTES);
  begin_record(log, WANDB_HEADER);
  size_t version = proto_begin(&log->message, HEADER_VERSION);
  proto_add_string(&log->message, VERSION_PRODUCER, producer);
  proto_add_string(&log->message, VERSION_MIN_CONSUMER, MIN_CONSUMER);
  proto_end(&log->message, version);
  end_record(log);
}

void wandb_add_run(WandbLog *log, const WandbRun *run) {
  Str *out = &log->message;
  begin_record(log, WANDB_RUN);
  proto_add_string(out, RUN_ID, run->id);
  proto_add_string(out, RUN_PROJECT, run->project);
  size_t config = proto_begin(out, RUN_CONFIG);
  add_options(out, run->options);
  proto_end(out, config);
  proto_add_string(out, RUN_NAME, run->name);
  proto_add_string(out, RUN_HOST, run->host);
  add_time(out, WANDB_RUN_START, run->start);
  end_record(log);
}

void wandb_add_config(WandbLog *log, const char *options) {
  begin_record(log, WANDB_CONFIG);
  add_options(&log->message, options);
  end_record(log);
}

void wandb_add_environment(WandbLog *log, const WandbEnvironment *e) {
  Str *out = &log->message;
  begin_record(log, WANDB_ENVIRONMENT);
  proto_add_string(out, ENVIRONMENT_SYSTEM, e->system);
  add_time(out, ENVIRONMENT_START, e->start);
  proto_add_string(out, ENVIRONMENT_PROGRAM, e->program);
  proto_add_string(out, ENVIRONMENT_HOST, e->host);
  proto_add_int(out, ENVIRONMENT_CORES, e->cores);
  proto_add_int(out, ENVIRONMENT_THREADS, e->cores);
  size_t memory = proto_begin(out, ENVIRONMENT_MEMORY);
  proto_add_int(out, MEMORY_TOTAL, e->memory);
  proto_end(out, memory);
  proto_add_string(out, ENVIRONMENT_WRITER, e->id);
  end_record(log);
}

/* Values. */

static void begin_values(WandbLog *log, WandbType type, int item_field) {
  begin_record(log, type);
  log->item_field = item_field;
  log->has_step = false;
}

void wandb_begin_history(WandbLog *log, uint64_t step) {
  begin_values(log, WANDB_HISTORY, WANDB_ITEMS);
  log->has_step = true;
  log->step = step;
}

/* The page of a run shows _wandb.runtime, a value in an object, as its duration. */
void wandb_begin_summary(WandbLog *log, double seconds) {
  char json[WANDB_NUMBER];
  begin_values(log, WANDB_SUMMARY, WANDB_ITEMS);
  wandb_print_number(json, floor(seconds));
  size_t item = proto_begin(&log->message, WANDB_ITEMS);
  proto_add_string(&log->message, WANDB_ITEM_NESTED_KEY, "_wandb");
  proto_add_string(&log->message, WANDB_ITEM_NESTED_KEY, "runtime");
  proto_add_string(&log->message, WANDB_ITEM_JSON, json);
  proto_end(&log->message, item);
}

void wandb_begin_stats(WandbLog *log, double time) {
  begin_values(log, WANDB_STATS, WANDB_STATS_ITEMS);
  add_time(&log->message, WANDB_STATS_TIME, time);
}

void wandb_add_item(WandbLog *log, const char *key, const char *json) {
  add_item(&log->message, log->item_field, key, strlen(key), json);
}

void wandb_add_number(WandbLog *log, const char *key, double value) {
  char json[WANDB_NUMBER];
  wandb_print_number(json, value);
  wandb_add_item(log, key, json);
}

void wandb_end(WandbLog *log) {
  if (log->has_step) {
    size_t step = proto_begin(&log->message, WANDB_HISTORY_STEP);
    proto_add_int(&log->message, WANDB_STEP_NUM, log->step);
    proto_end(&log->message, step);
  }
  end_record(log);
}

void wandb_add_exit(WandbLog *log, int code, double seconds) {
  begin_record(log, WANDB_EXIT);
  proto_add_int(&log->message, EXIT_CODE, (uint64_t)code);
  proto_add_int(&log->message, EXIT_RUNTIME, (uint64_t)seconds);
  end_record(log);
}

void wandb_print_number(char out[WANDB_NUMBER], double value) {
  if (isfinite(value))
    snprintf(out, WANDB_NUMBER, "%.10g", value);
  else if (isnan(value))
    snprintf(out, WANDB_NUMBER, "NaN");
  else
    snprintf(out, WANDB_NUMBER, value > 0 ? "Infinity" : "-Infinity");
}
