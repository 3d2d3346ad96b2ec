/* Messages of Protocol Buffers, written and read field by field without a schema. Formats that
 * consist of such messages (tfevents.h) use it; no protobuf library is needed. Depends on base. */
#ifndef FORMAT_PROTOBUF_H
#define FORMAT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Wire types. */
enum { PROTO_VARINT = 0, PROTO_64 = 1, PROTO_BYTES = 2, PROTO_32 = 5 };

/* Writer. Functions append to `out`; check the Str at the end (str_check). */

/* Appends or writes the `bytes` (at most 8) low bytes of a value, little-endian. */
void proto_add_fixed(Str *out, uint64_t value, size_t bytes);
void proto_put_fixed(uint8_t *out, uint64_t value, size_t bytes);
void proto_add_varint(Str *out, uint64_t value);
void proto_add_key(Str *out, int field, int wire);
void proto_add_double_bits(Str *out, double value); /* 8 bytes, without a key */

/* Append a field; a value of zero is omitted, as protobuf does. -0.0 is written. */
void proto_add_int(Str *out, int field, uint64_t value);
void proto_add_double(Str *out, int field, double value);
void proto_add_bytes(Str *out, int field, const char *bytes, size_t len);
/* Append a text. Each byte that is not UTF-8 becomes U+FFFD, because readers refuse a message whose
 * strings are not UTF-8. */
void proto_add_text(Str *out, int field, const char *text, size_t len);
void proto_add_string(Str *out, int field, const char *text);

/* Begins a message within a message; returns its position for proto_end. */
size_t proto_begin(Str *out, int field);
/* Inserts the length of the message that begins at `begin`. */
void proto_end(Str *out, size_t begin);

/* Reader. */

/* The part of a message that has not been read. */
typedef struct {
  const uint8_t *at, *end;
} ProtoBytes;

/* A field of a message. Fixed and variable integers, and the length of bytes, are in
 * `number`. */
typedef struct {
  uint64_t id; /* number of the field */
  int wire;
  uint64_t number;
  ProtoBytes bytes; /* valid for PROTO_BYTES */
} ProtoField;

uint64_t proto_get_fixed(const uint8_t *at, size_t bytes);
/* Reads the next field; returns false if the message is damaged. Call it only while b->at is
 * before b->end. */
bool proto_read_field(ProtoBytes *b, ProtoField *f);
/* Returns true if the field has this number and is bytes, a text or a message. */
bool proto_is_bytes(const ProtoField *f, uint64_t id);

#endif
