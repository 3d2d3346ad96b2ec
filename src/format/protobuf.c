/* Writes and reads messages of Protocol Buffers. Depends on base. */
#include "format/protobuf.h"

#include <string.h>

#include "base/utf8.h"

void proto_put_fixed(uint8_t *out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

void proto_add_fixed(Str *out, uint64_t value, size_t bytes) {
  uint8_t text[8];
  proto_put_fixed(text, value, sizeof text);
  str_addn(out, (const char *)text, bytes);
}

static size_t put_varint(uint8_t *out, uint64_t value) {
  size_t n = 0;
  for (; value >= 128; value >>= 7) out[n++] = (uint8_t)(value | 128);
  out[n++] = (uint8_t)value;
  return n;
}

void proto_add_varint(Str *out, uint64_t value) {
  uint8_t text[10];
  str_addn(out, (const char *)text, put_varint(text, value));
}

void proto_add_key(Str *out, int field, int wire) {
  proto_add_varint(out, (uint64_t)field << 3 | (uint64_t)wire);
}

void proto_add_double_bits(Str *out, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  proto_add_fixed(out, bits, sizeof bits);
}

void proto_add_int(Str *out, int field, uint64_t value) {
  if (!value) return;
  proto_add_key(out, field, PROTO_VARINT);
  proto_add_varint(out, value);
}

void proto_add_double(Str *out, int field, double value) {
  const double zero = 0;
  if (memcmp(&value, &zero, sizeof value) == 0) return; /* but -0.0 is written */
  proto_add_key(out, field, PROTO_64);
  proto_add_double_bits(out, value);
}

void proto_add_bytes(Str *out, int field, const char *bytes, size_t len) {
  proto_add_key(out, field, PROTO_BYTES);
  proto_add_varint(out, len);
  str_addn(out, bytes, len);
}

void proto_add_text(Str *out, int field, const char *text, size_t len) {
  size_t valid = utf8_valid(text, len);
  if (valid == len) {
    proto_add_bytes(out, field, text, len);
    return;
  }
  Str copy = {0};
  for (;; valid = utf8_valid(text, len)) {
    str_addn(&copy, text, valid);
    if (valid == len) break;
    str_add(&copy, "\xef\xbf\xbd");
    text += valid + 1;
    len -= valid + 1;
  }
  proto_add_bytes(out, field, str_text(&copy), copy.len);
  if (copy.failed) out->failed = true;
  str_free(&copy);
}

void proto_add_string(Str *out, int field, const char *text) {
  proto_add_text(out, field, text, strlen(text));
}

size_t proto_begin(Str *out, int field) {
  proto_add_key(out, field, PROTO_BYTES);
  return out->len;
}

void proto_end(Str *out, size_t begin) {
  uint8_t text[10];
  if (out->failed) return;
  size_t len = out->len - begin, n = put_varint(text, len);
  str_addn(out, (const char *)text, n);
  if (out->failed) return;
  memmove(out->s + begin + n, out->s + begin, len);
  memcpy(out->s + begin, text, n);
}

uint64_t proto_get_fixed(const uint8_t *at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

static bool read_fixed(ProtoBytes *b, size_t bytes, uint64_t *value) {
  if ((size_t)(b->end - b->at) < bytes) return false;
  *value = proto_get_fixed(b->at, bytes);
  b->at += bytes;
  return true;
}

static bool read_varint(ProtoBytes *b, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 64 && b->at < b->end; shift += 7) {
    uint8_t byte = *b->at++;
    *value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

bool proto_read_field(ProtoBytes *b, ProtoField *f) {
  uint64_t key;
  *f = (ProtoField){0};
  if (!read_varint(b, &key)) return false;
  f->id = key >> 3;
  f->wire = (int)(key & 7);
  if (f->wire == PROTO_VARINT) return read_varint(b, &f->number);
  if (f->wire == PROTO_64) return read_fixed(b, 8, &f->number);
  if (f->wire == PROTO_32) return read_fixed(b, 4, &f->number);
  if (f->wire != PROTO_BYTES || !read_varint(b, &f->number)) return false;
  if (f->number > (uint64_t)(b->end - b->at)) return false;
  f->bytes = (ProtoBytes){b->at, b->at + f->number};
  b->at += f->number;
  return true;
}

bool proto_is_bytes(const ProtoField *f, uint64_t id) {
  return f->id == id && f->wire == PROTO_BYTES;
}
