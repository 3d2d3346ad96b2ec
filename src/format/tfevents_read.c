/* Reads TensorBoard's event files. Depends on base. */
#include <string.h>

#include "base/place.h"
#include "format/tfevents.h"

#define HEADER_BYTES 12 /* length and its checksum */
#define FOOTER_BYTES 4  /* checksum of the message */

/* The part of a message that has not been read. */
typedef struct {
  const uint8_t *at, *end;
} Bytes;

/* A field of a message. Fixed and variable integers are in `number`. */
typedef struct {
  uint64_t id; /* number of the field */
  int wire;    /* wire type: 0 varint, 1 64-bit, 2 bytes, 5 32-bit */
  uint64_t number;
  Bytes bytes;
} Field;

static uint64_t decode_fixed(const uint8_t *at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

static bool read_fixed(Bytes *b, size_t bytes, uint64_t *value) {
  if ((size_t)(b->end - b->at) < bytes) return false;
  *value = decode_fixed(b->at, bytes);
  b->at += bytes;
  return true;
}

static bool read_varint(Bytes *b, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 64 && b->at < b->end; shift += 7) {
    uint8_t byte = *b->at++;
    *value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

/* Reads the next field; returns false if the message is damaged. Call it only while b->at is
 * before b->end. */
static bool read_field(Bytes *b, Field *f) {
  uint64_t key;
  *f = (Field){0};
  if (!read_varint(b, &key)) return false;
  f->id = key >> 3;
  f->wire = (int)(key & 7);
  if (f->wire == 0) return read_varint(b, &f->number);
  if (f->wire == 1) return read_fixed(b, 8, &f->number);
  if (f->wire == 5) return read_fixed(b, 4, &f->number);
  if (f->wire != 2 || !read_varint(b, &f->number)) return false;
  if (f->number > (uint64_t)(b->end - b->at)) return false;
  f->bytes = (Bytes){b->at, b->at + f->number};
  b->at += f->number;
  return true;
}

static bool is_bytes(const Field *f, uint64_t id) {
  return f->id == id && f->wire == 2;
}

/* Checks the fields of all values of a summary, so that tfevents_next_value cannot fail. */
static bool check_summary(Bytes b) {
  Field value, f;
  while (b.at < b.end) {
    if (!read_field(&b, &value)) return false;
    if (!is_bytes(&value, 1)) continue;
    while (value.bytes.at < value.bytes.end)
      if (!read_field(&value.bytes, &f)) return false;
  }
  return true;
}

static bool read_session(Bytes b, bool *is_start) {
  Field f;
  while (b.at < b.end) {
    if (!read_field(&b, &f)) return false;
    if (f.id == 1 && f.wire == 0) *is_start = f.number == 1;
  }
  return true;
}

static bool read_event(Bytes b, TfEvent *e) {
  Field f;
  while (b.at < b.end) {
    if (!read_field(&b, &f)) return false;
    if (f.id == 1 && f.wire == 1) memcpy(&e->time, &f.number, sizeof e->time);
    if (f.id == 2 && f.wire == 0) e->step = (int64_t)f.number;
    if (is_bytes(&f, 7) && !read_session(f.bytes, &e->is_start)) return false;
    if (!is_bytes(&f, 5)) continue;
    if (!check_summary(f.bytes)) return false;
    e->summary = f.bytes.at;
    e->summary_len = (size_t)(f.bytes.end - f.bytes.at);
  }
  return true;
}

static void read_value(Bytes b, TfValue *v) {
  Field f;
  *v = (TfValue){.tag = "", .kind = TF_OTHER};
  while (b.at < b.end && read_field(&b, &f)) {
    if (is_bytes(&f, 1)) {
      v->tag = (const char *)f.bytes.at;
      v->tag_len = (size_t)f.number;
    }
    if (f.id == 2 && f.wire == 5) {
      uint32_t bits = (uint32_t)f.number;
      v->kind = TF_SCALAR;
      memcpy(&v->scalar, &bits, sizeof bits);
    }
    if (is_bytes(&f, 5) || is_bytes(&f, 8)) {
      v->kind = f.id == 5 ? TF_HISTOGRAM : TF_TENSOR;
      v->bytes = f.bytes.at;
      v->len = (size_t)f.number;
    }
  }
}

bool tfevents_next_value(const TfEvent *event, size_t *at, TfValue *value) {
  Field f;
  while (*at < event->summary_len) {
    Bytes b = {event->summary + *at, event->summary + event->summary_len};
    if (!read_field(&b, &f)) return false;
    *at = (size_t)(b.at - event->summary);
    if (!is_bytes(&f, 1)) continue;
    read_value(f.bytes, value);
    return true;
  }
  return false;
}

static Err report_damage(const char *path, const char *what, uint64_t offset) {
  return err_set(ERR_WORK, "%s is damaged: %s (record at byte %llu)", path, what,
                 (unsigned long long)offset);
}

static Err visit_record(const char *path, const uint8_t *message, size_t len, uint64_t offset,
                        TfVisit visit, void *context) {
  TfEvent event = {.offset = offset};
  if (decode_fixed(message + len, 4) != tfevents_masked_crc(message, len))
    return report_damage(path, "the checksum of a message is wrong", offset);
  if (!read_event((Bytes){message, message + len}, &event))
    return report_damage(path, "a message is not an event", offset);
  return visit(context, &event);
}

static Err visit_records(const PlacePin *map, TfVisit visit, void *context) {
  size_t at = 0;
  while (map->size - at >= HEADER_BYTES) {
    const uint8_t *header = map->bytes + at;
    size_t left = map->size - at - HEADER_BYTES;
    uint64_t len = decode_fixed(header, 8);
    if (decode_fixed(header + 8, 4) != tfevents_masked_crc(header, 8))
      return report_damage(map->path, "the checksum of a length is wrong", at);
    if (left < FOOTER_BYTES || len > left - FOOTER_BYTES) return ERR_OK;
    TRY(visit_record(map->path, header + HEADER_BYTES, (size_t)len, at, visit, context));
    at += HEADER_BYTES + (size_t)len + FOOTER_BYTES;
  }
  return ERR_OK;
}

Err tfevents_read(const char *path, TfVisit visit, void *context) {
  PlacePin map;
  TRY(place_pin_file(&map, path));
  Err err = visit_records(&map, visit, context);
  place_unpin(&map);
  return err;
}
