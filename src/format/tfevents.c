/* Writes TensorBoard's event files. The numbers of fields are those of TensorFlow's event.proto,
 * summary.proto, tensor.proto and of the HParams plug-in's plugin_data.proto. Depends on base. */
#include "format/tfevents.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* Wire types of protobuf. */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { EVENT_SESSION = 7, EVENT_SOURCE = 10, SOURCE_WRITER = 1 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SCALAR = 2, VALUE_HISTOGRAM = 5 };
enum { VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, PLUGIN_NAME = 1, PLUGIN_CONTENT = 2 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRINGS = 8, SHAPE_DIM = 2, DIM_SIZE = 1 };
enum { TYPE_FLOAT = 1, TYPE_STRING = 7 };
enum { HISTOGRAM_MIN = 1, HISTOGRAM_MAX, HISTOGRAM_COUNT, HISTOGRAM_SUM, HISTOGRAM_SQUARES };
enum { HISTOGRAM_LIMITS = 6, HISTOGRAM_BUCKETS = 7 };
enum { HPARAMS_START = 3, START_HPARAMS = 1, START_TIME = 5, MAP_KEY = 1, MAP_VALUE = 2 };
enum { PB_NUMBER = 2, PB_TEXT = 3 };

#define CRC_MASK 0xa282ead8u

/* Four bits at a time: entry i is the CRC of the four bits i, polynomial 0x82f63b78 (reflected
 * Castagnoli). Records are a few kilobytes, so a larger table would gain nothing. */
uint32_t tfevents_crc32c(uint32_t crc, const void *bytes, size_t len) {
  static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                     0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                     0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                     0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
  const uint8_t *at = bytes;
  crc = ~crc;
  for (size_t i = 0; i < len; i++) {
    crc ^= at[i];
    crc = (crc >> 4) ^ table[crc & 15];
    crc = (crc >> 4) ^ table[crc & 15];
  }
  return ~crc;
}

uint32_t tfevents_masked_crc(const void *bytes, size_t len) {
  uint32_t crc = tfevents_crc32c(0, bytes, len);
  return ((crc >> 15) | (crc << 17)) + CRC_MASK;
}

static size_t encode_fixed(uint8_t *out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
  return bytes;
}

static void add_fixed(Str *out, uint64_t value, size_t bytes) {
  uint8_t text[8];
  encode_fixed(text, value, bytes);
  str_addn(out, (const char *)text, bytes);
}

static size_t encode_varint(uint8_t *out, uint64_t value) {
  size_t n = 0;
  for (; value >= 128; value >>= 7) out[n++] = (uint8_t)(value | 128);
  out[n++] = (uint8_t)value;
  return n;
}

static void add_varint(Str *out, uint64_t value) {
  uint8_t text[10];
  str_addn(out, (const char *)text, encode_varint(text, value));
}

static void add_key(Str *out, int field, int wire) {
  add_varint(out, (uint64_t)field << 3 | (uint64_t)wire);
}

static void add_double_bits(Str *out, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  add_fixed(out, bits, sizeof bits);
}

/* The functions add_… of single fields omit a value of zero, as protobuf does. */

static void add_int(Str *out, int field, uint64_t value) {
  if (!value) return;
  add_key(out, field, WIRE_VARINT);
  add_varint(out, value);
}

static void add_double(Str *out, int field, double value) {
  const double zero = 0;
  if (memcmp(&value, &zero, sizeof value) == 0) return; /* but -0.0 is written */
  add_key(out, field, WIRE_64);
  add_double_bits(out, value);
}

static void add_bytes(Str *out, int field, const char *bytes, size_t len) {
  add_key(out, field, WIRE_BYTES);
  add_varint(out, len);
  str_addn(out, bytes, len);
}

/* Adds a text. Each byte that is not UTF-8 becomes U+FFFD, because readers refuse a message whose
 * strings are not UTF-8. */
static void add_text(Str *out, int field, const char *text, size_t len) {
  size_t valid = utf8_valid(text, len);
  if (valid == len) {
    add_bytes(out, field, text, len);
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
  add_bytes(out, field, str_text(&copy), copy.len);
  if (copy.failed) out->failed = true;
  str_free(&copy);
}

static void add_string(Str *out, int field, const char *text) {
  add_text(out, field, text, strlen(text));
}

/* Begins a message within a message; returns its position for end_message. */
static size_t begin_message(Str *out, int field) {
  add_key(out, field, WIRE_BYTES);
  return out->len;
}

/* Inserts the length of the message that begins at `begin`. */
static void end_message(Str *out, size_t begin) {
  uint8_t text[10];
  if (out->failed) return;
  size_t len = out->len - begin, n = encode_varint(text, len);
  str_addn(out, (const char *)text, n);
  if (out->failed) return;
  memmove(out->s + begin + n, out->s + begin, len);
  memcpy(out->s + begin, text, n);
}

/* Records. */

#define HEADER_BYTES 12 /* length and its checksum */

static size_t begin_event(Str *out, double time, uint64_t step) {
  const char header[HEADER_BYTES] = {0};
  size_t begin = out->len;
  str_addn(out, header, sizeof header);
  add_double(out, EVENT_TIME, time);
  add_int(out, EVENT_STEP, step);
  return begin;
}

/* Fills in the header of the record that begins at `begin`, and adds the checksum. */
static void end_event(Str *out, size_t begin) {
  if (out->failed) return;
  uint8_t *header = (uint8_t *)out->s + begin;
  const uint8_t *message = header + HEADER_BYTES;
  size_t len = out->len - begin - HEADER_BYTES;
  encode_fixed(header, len, 8);
  encode_fixed(header + 8, tfevents_masked_crc(header, 8), 4);
  add_fixed(out, tfevents_masked_crc(message, len), 4);
}

void tfevents_add_version(Str *out, double time) {
  const uint64_t no_step = 0;
  size_t event = begin_event(out, time, no_step);
  add_string(out, EVENT_VERSION, "brain.Event:2");
  size_t source = begin_message(out, EVENT_SOURCE);
  add_string(out, SOURCE_WRITER, "trireme");
  end_message(out, source);
  end_event(out, event);
}

void tfevents_add_start(Str *out, double time, uint64_t step) {
  size_t event = begin_event(out, time, step);
  size_t session = begin_message(out, EVENT_SESSION);
  add_int(out, SESSION_STATUS, SESSION_START);
  end_message(out, session);
  end_event(out, event);
}

TfSummary tfevents_begin(Str *out, double time, uint64_t step) {
  TfSummary s = {.out = out};
  s.record = begin_event(out, time, step);
  s.summary = begin_message(out, EVENT_SUMMARY);
  return s;
}

void tfevents_end(const TfSummary *s) {
  end_message(s->out, s->summary);
  end_event(s->out, s->record);
}

/* Values. */

static size_t begin_value(const TfSummary *s, const char *tag) {
  size_t value = begin_message(s->out, SUMMARY_VALUE);
  add_string(s->out, VALUE_TAG, tag);
  return value;
}

void tfevents_add_scalar(const TfSummary *s, const char *tag, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  size_t at = begin_value(s, tag);
  add_key(s->out, VALUE_SCALAR, WIRE_32);
  add_fixed(s->out, bits, sizeof bits);
  end_message(s->out, at);
}

static void add_doubles(Str *out, int field, const double *value, size_t n) {
  if (!n) return;
  add_key(out, field, WIRE_BYTES);
  add_varint(out, n * sizeof *value);
  for (size_t i = 0; i < n; i++) add_double_bits(out, value[i]);
}

void tfevents_add_histogram(const TfSummary *s, const char *tag, const TfHistogram *h) {
  Str *out = s->out;
  size_t value = begin_value(s, tag);
  size_t histogram = begin_message(out, VALUE_HISTOGRAM);
  add_double(out, HISTOGRAM_MIN, h->min);
  add_double(out, HISTOGRAM_MAX, h->max);
  add_double(out, HISTOGRAM_COUNT, h->count);
  add_double(out, HISTOGRAM_SUM, h->sum);
  add_double(out, HISTOGRAM_SQUARES, h->square_sum);
  add_doubles(out, HISTOGRAM_LIMITS, h->limit, h->buckets);
  add_doubles(out, HISTOGRAM_BUCKETS, h->bucket, h->buckets);
  end_message(out, histogram);
  end_message(out, value);
}

static void add_dimension(Str *out, size_t size) {
  size_t dim = begin_message(out, SHAPE_DIM);
  add_int(out, DIM_SIZE, size);
  end_message(out, dim);
}

/* Adds the metadata by which TensorBoard finds the plug-in that shows a tensor. */
static size_t begin_plugin(Str *out, const char *name, size_t *metadata) {
  *metadata = begin_message(out, VALUE_METADATA);
  size_t plugin = begin_message(out, METADATA_PLUGIN);
  add_string(out, PLUGIN_NAME, name);
  return plugin;
}

static void end_plugin(Str *out, size_t plugin, size_t metadata) {
  end_message(out, plugin);
  end_message(out, metadata);
}

void tfevents_add_table(const TfSummary *s, const char *tag, const char *cells, size_t rows,
                        size_t columns) {
  Str *out = s->out;
  size_t metadata, value = begin_value(s, tag);
  size_t tensor = begin_message(out, VALUE_TENSOR);
  add_int(out, TENSOR_TYPE, TYPE_STRING);
  size_t shape = begin_message(out, TENSOR_SHAPE);
  add_dimension(out, rows);
  add_dimension(out, columns);
  end_message(out, shape);
  for (size_t i = 0; i < rows * columns; i++) {
    add_string(out, TENSOR_STRINGS, cells);
    cells += strlen(cells) + 1;
  }
  end_message(out, tensor);
  size_t plugin = begin_plugin(out, "text", &metadata);
  end_plugin(out, plugin, metadata);
  end_message(out, value);
}

/* Returns true if the whole text is a finite number. */
static bool read_number(const char *text, double *number) {
  char *end;
  if (!*text || !strchr("+-.0123456789", *text)) return false; /* no white space, no "nan" */
  *number = strtod(text, &end);
  return !*end && isfinite(*number);
}

/* Adds an entry of the map from names of options to google.protobuf.Value. */
static void add_hparam(Str *out, const char *name, size_t name_len, const char *text,
                       size_t len) {
  Str copy = {0};
  double number;
  str_addn(&copy, text, len);
  size_t entry = begin_message(out, START_HPARAMS);
  add_text(out, MAP_KEY, name, name_len);
  size_t value = begin_message(out, MAP_VALUE);
  if (read_number(str_text(&copy), &number)) {
    add_key(out, PB_NUMBER, WIRE_64); /* written even if it is 0 */
    add_double_bits(out, number);
  } else {
    add_text(out, PB_TEXT, text, len);
  }
  end_message(out, value);
  end_message(out, entry);
  str_free(&copy);
}

static void add_options(Str *out, const char *options) {
  for (const char *line = options; *line;) {
    size_t len = strcspn(line, "\n");
    const char *equals = memchr(line, '=', len);
    if (equals && equals > line) {
      const char *end = line + len, *text = equals + 1;
      while (text < end && *text == ' ') text++;
      size_t name_len = (size_t)(equals - line);
      while (name_len > 1 && line[name_len - 1] == ' ') name_len--;
      add_hparam(out, line, name_len, text, (size_t)(end - text));
    }
    line += len + (line[len] == '\n');
  }
}

/* The dashboard reads the metadata only; the tensor is an empty vector. */
void tfevents_add_hparams(const TfSummary *s, const char *options, double time) {
  Str *out = s->out;
  size_t metadata, value = begin_value(s, TFEVENTS_HPARAMS_TAG);
  size_t tensor = begin_message(out, VALUE_TENSOR);
  add_int(out, TENSOR_TYPE, TYPE_FLOAT);
  size_t shape = begin_message(out, TENSOR_SHAPE);
  add_dimension(out, 0);
  end_message(out, shape);
  end_message(out, tensor);
  size_t plugin = begin_plugin(out, "hparams", &metadata);
  size_t content = begin_message(out, PLUGIN_CONTENT);
  size_t start = begin_message(out, HPARAMS_START);
  add_options(out, options);
  add_double(out, START_TIME, time);
  end_message(out, start);
  end_message(out, content);
  end_plugin(out, plugin, metadata);
  end_message(out, value);
}
