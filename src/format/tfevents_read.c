/* Reads TensorBoard's event files. Depends on base, protobuf. */
#include <string.h>

#include "base/place.h"
#include "format/protobuf.h"
#include "format/tfevents.h"

#define HEADER_BYTES 12 /* length and its checksum */
#define FOOTER_BYTES 4  /* checksum of the message */

/* Checks the fields of all values of a summary, so that tfevents_next_value cannot fail. */
static bool check_summary(ProtoBytes b) {
  ProtoField value, f;
  while (b.at < b.end) {
    if (!proto_read_field(&b, &value)) return false;
    if (!proto_is_bytes(&value, 1)) continue;
    while (value.bytes.at < value.bytes.end)
      if (!proto_read_field(&value.bytes, &f)) return false;
  }
  return true;
}

static bool read_session(ProtoBytes b, bool *is_start) {
  ProtoField f;
  while (b.at < b.end) {
    if (!proto_read_field(&b, &f)) return false;
    if (f.id == 1 && f.wire == 0) *is_start = f.number == 1;
  }
  return true;
}

static bool read_event(ProtoBytes b, TfEvent *e) {
  ProtoField f;
  while (b.at < b.end) {
    if (!proto_read_field(&b, &f)) return false;
    if (f.id == 1 && f.wire == 1) memcpy(&e->time, &f.number, sizeof e->time);
    if (f.id == 2 && f.wire == 0) e->step = (int64_t)f.number;
    if (proto_is_bytes(&f, 7) && !read_session(f.bytes, &e->is_start)) return false;
    if (!proto_is_bytes(&f, 5)) continue;
    if (!check_summary(f.bytes)) return false;
    e->summary = f.bytes.at;
    e->summary_len = (size_t)(f.bytes.end - f.bytes.at);
  }
  return true;
}

static void read_value(ProtoBytes b, TfValue *v) {
  ProtoField f;
  *v = (TfValue){.tag = "", .kind = TF_OTHER};
  while (b.at < b.end && proto_read_field(&b, &f)) {
    if (proto_is_bytes(&f, 1)) {
      v->tag = (const char *)f.bytes.at;
      v->tag_len = (size_t)f.number;
    }
    if (f.id == 2 && f.wire == 5) {
      uint32_t bits = (uint32_t)f.number;
      v->kind = TF_SCALAR;
      memcpy(&v->scalar, &bits, sizeof bits);
    }
    if (proto_is_bytes(&f, 5) || proto_is_bytes(&f, 8)) {
      v->kind = f.id == 5 ? TF_HISTOGRAM : TF_TENSOR;
      v->bytes = f.bytes.at;
      v->len = (size_t)f.number;
    }
  }
}

bool tfevents_next_value(const TfEvent *event, size_t *at, TfValue *value) {
  ProtoField f;
  while (*at < event->summary_len) {
    ProtoBytes b = {event->summary + *at, event->summary + event->summary_len};
    if (!proto_read_field(&b, &f)) return false;
    *at = (size_t)(b.at - event->summary);
    if (!proto_is_bytes(&f, 1)) continue;
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
  if (proto_get_fixed(message + len, 4) != tfevents_masked_crc(message, len))
    return report_damage(path, "the checksum of a message is wrong", offset);
  if (!read_event((ProtoBytes){message, message + len}, &event))
    return report_damage(path, "a message is not an event", offset);
  return visit(context, &event);
}

static Err visit_records(const PlacePin *map, TfVisit visit, void *context) {
  size_t at = 0;
  while (map->size - at >= HEADER_BYTES) {
    const uint8_t *header = map->bytes + at;
    size_t left = map->size - at - HEADER_BYTES;
    uint64_t len = proto_get_fixed(header, 8);
    if (proto_get_fixed(header + 8, 4) != tfevents_masked_crc(header, 8))
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
