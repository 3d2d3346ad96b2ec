/* Reads logs of Weights & Biases runs. Depends on base, protobuf. */
#include <string.h>

#include "base/crc.h"
#include "base/file.h"
#include "base/place.h"
#include "format/wandb.h"
#include "format/wandb_file.h"

/* Messages. */

static bool is_varint(const ProtoField *f, uint64_t id) {
  return f->id == id && f->wire == PROTO_VARINT;
}

static bool read_step(ProtoBytes b, uint64_t *step) {
  ProtoField f;
  while (b.at < b.end) {
    if (!proto_read_field(&b, &f)) return false;
    if (is_varint(&f, WANDB_STEP_NUM)) *step = f.number;
  }
  return true;
}

static bool read_time(ProtoBytes b, double *time) {
  ProtoField f;
  *time = 0;
  while (b.at < b.end) {
    if (!proto_read_field(&b, &f)) return false;
    if (is_varint(&f, WANDB_SECONDS)) *time += (double)(int64_t)f.number;
    if (is_varint(&f, WANDB_NANOS)) *time += 1e-9 * (double)(int32_t)f.number;
  }
  return true;
}

static bool is_item(const WandbRecord *r, const ProtoField *f) {
  return proto_is_bytes(f, r->type == WANDB_STATS ? WANDB_STATS_ITEMS : WANDB_ITEMS);
}

static bool has_items(const WandbRecord *r) {
  return r->type == WANDB_HISTORY || r->type == WANDB_SUMMARY || r->type == WANDB_CONFIG ||
         r->type == WANDB_STATS;
}

/* Reads key and text of a value. Of a nested key, such as _wandb.runtime, only the last
 * part is read. */
static bool read_item(ProtoBytes b, WandbItem *item) {
  ProtoField f;
  *item = (WandbItem){.key = "", .json = ""};
  while (b.at < b.end) {
    if (!proto_read_field(&b, &f)) return false;
    if (proto_is_bytes(&f, WANDB_ITEM_KEY) || proto_is_bytes(&f, WANDB_ITEM_NESTED_KEY)) {
      item->key = (const char *)f.bytes.at;
      item->key_len = (size_t)f.number;
    }
    if (proto_is_bytes(&f, WANDB_ITEM_JSON)) {
      item->json = (const char *)f.bytes.at;
      item->json_len = (size_t)f.number;
    }
  }
  return true;
}

/* Reads step and time and checks all values, so that wandb_next_item cannot fail. */
static bool read_body(WandbRecord *r) {
  ProtoBytes b = r->body;
  ProtoField f;
  WandbItem item;
  while (b.at < b.end) {
    if (!proto_read_field(&b, &f)) return false;
    if (has_items(r) && is_item(r, &f) && !read_item(f.bytes, &item)) return false;
    if (r->type == WANDB_HISTORY && proto_is_bytes(&f, WANDB_HISTORY_STEP) &&
        !read_step(f.bytes, &r->step))
      return false;
    bool is_time = (r->type == WANDB_STATS && proto_is_bytes(&f, WANDB_STATS_TIME)) ||
                   (r->type == WANDB_RUN && proto_is_bytes(&f, WANDB_RUN_START));
    if (is_time && !read_time(f.bytes, &r->time)) return false;
  }
  return true;
}

static bool is_known(uint64_t type) {
  return type == WANDB_HISTORY || type == WANDB_SUMMARY || type == WANDB_CONFIG ||
         type == WANDB_STATS || type == WANDB_RUN || type == WANDB_EXIT ||
         type == WANDB_HEADER || type == WANDB_ENVIRONMENT;
}

static bool read_record(ProtoBytes b, WandbRecord *r) {
  ProtoField f;
  while (b.at < b.end) {
    if (!proto_read_field(&b, &f)) return false;
    if (f.wire != PROTO_BYTES || !is_known(f.id)) continue;
    r->type = (WandbType)f.id;
    r->body = f.bytes;
  }
  return !r->type || read_body(r);
}

bool wandb_next_item(const WandbRecord *record, ProtoBytes *at, WandbItem *item) {
  ProtoField f;
  if (!has_items(record)) return false;
  while (at->at < at->end && proto_read_field(at, &f))
    if (is_item(record, &f)) return read_item(f.bytes, item);
  return false;
}

/* Fragments. */

typedef struct {
  const PlacePin *map;
  size_t at;   /* position in the file */
  Str message; /* fragments of the current record */
} Reader;

typedef enum { READ_RECORD, READ_END, READ_DAMAGED } ReadResult;

typedef struct {
  int type;
  const uint8_t *data;
  size_t len;
} Fragment;

static bool is_zero(const uint8_t *bytes, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (bytes[i]) return false;
  return true;
}

/* Reads the next fragment. READ_END: it is not complete. */
static ReadResult read_fragment(Reader *r, Fragment *f) {
  size_t room = WANDB_BLOCK - r->at % WANDB_BLOCK, left = r->map->size - r->at;
  if (room < WANDB_FRAGMENT) {
    if (left < room) return READ_END;
    if (!is_zero(r->map->bytes + r->at, room)) return READ_DAMAGED;
    r->at += room;
    left -= room;
    room = WANDB_BLOCK;
  }
  if (left < WANDB_FRAGMENT) return READ_END;
  const uint8_t *head = r->map->bytes + r->at;
  *f = (Fragment){head[6], head + WANDB_FRAGMENT, (size_t)proto_get_fixed(head + 4, 2)};
  if (f->len > room - WANDB_FRAGMENT) return READ_DAMAGED;
  if (f->len > left - WANDB_FRAGMENT) return READ_END;
  if (crc_add(0, head + 6, 1 + f->len) != proto_get_fixed(head, 4)) return READ_DAMAGED;
  r->at += WANDB_FRAGMENT + f->len;
  return READ_RECORD;
}

/* Reads the fragments of the next record. READ_END: the last of them is missing. */
static ReadResult read_message(Reader *r) {
  bool is_first = true;
  str_clear(&r->message);
  for (;; is_first = false) {
    Fragment f;
    ReadResult result = read_fragment(r, &f);
    if (result != READ_RECORD) return result;
    bool is_begin = f.type == WANDB_WHOLE || f.type == WANDB_FIRST;
    if (f.type < WANDB_WHOLE || f.type > WANDB_LAST || is_begin != is_first)
      return READ_DAMAGED;
    str_addn(&r->message, (const char *)f.data, f.len);
    if (f.type == WANDB_WHOLE || f.type == WANDB_LAST) return READ_RECORD;
  }
}

static Err read_records(Reader *r, WandbVisit visit, void *context, uint64_t *end) {
  for (;;) {
    WandbRecord record = {.offset = r->at};
    ReadResult result = read_message(r);
    if (result == READ_END) return ERR_OK;
    TRY(str_check(&r->message));
    const uint8_t *message = (const uint8_t *)str_text(&r->message);
    if (result == READ_DAMAGED ||
        !read_record((ProtoBytes){message, message + r->message.len}, &record))
      return err_set(ERR_WORK, "%s is damaged: the record at byte %llu is not one of wandb's",
                     r->map->path, (unsigned long long)record.offset);
    record.end = r->at;
    TRY(visit(context, &record));
    *end = r->at;
  }
}

Err wandb_read(const char *path, WandbVisit visit, void *context, uint64_t *end) {
  PlacePin map;
  *end = 0;
  TRY(place_pin_file(&map, path));
  Reader r = {.map = &map, .at = WANDB_MAGIC_BYTES};
  size_t known = map.size < WANDB_MAGIC_BYTES ? map.size : WANDB_MAGIC_BYTES;
  Err err = ERR_OK;
  if (known && memcmp(map.bytes, WANDB_MAGIC, known) != 0) {
    err = err_set(ERR_WORK, "%s is not the log of a Weights & Biases run; move it away", path);
  } else if (known == WANDB_MAGIC_BYTES) {
    *end = WANDB_MAGIC_BYTES;
    err = read_records(&r, visit, context, end);
  }
  str_free(&r.message);
  place_unpin(&map);
  return err;
}
