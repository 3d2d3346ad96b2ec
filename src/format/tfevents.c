/* Writes TensorBoard's event files. The numbers of fields are those of TensorFlow's event.proto,
 * summary.proto, tensor.proto and of the HParams plug-in's plugin_data.proto. Depends on hparams, protobuf. */
#include "format/tfevents.h"

#include <string.h>

#include "format/hparams.h"
#include "format/protobuf.h"

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

/* Records. */

#define HEADER_BYTES 12 /* length and its checksum */

static size_t begin_event(Str *out, double time, uint64_t step) {
  const char header[HEADER_BYTES] = {0};
  size_t begin = out->len;
  str_addn(out, header, sizeof header);
  proto_add_double(out, EVENT_TIME, time);
  proto_add_int(out, EVENT_STEP, step);
  return begin;
}

/* Fills in the header of the record that begins at `begin`, and adds the checksum. */
static void end_event(Str *out, size_t begin) {
  if (out->failed) return;
  uint8_t *header = (uint8_t *)out->s + begin;
  const uint8_t *message = header + HEADER_BYTES;
  size_t len = out->len - begin - HEADER_BYTES;
  proto_put_fixed(header, len, 8);
  proto_put_fixed(header + 8, tfevents_masked_crc(header, 8), 4);
  proto_add_fixed(out, tfevents_masked_crc(message, len), 4);
}

void tfevents_add_version(Str *out, double time) {
  const uint64_t no_step = 0;
  size_t event = begin_event(out, time, no_step);
  proto_add_string(out, EVENT_VERSION, "brain.Event:2");
  size_t source = proto_begin(out, EVENT_SOURCE);
  proto_add_string(out, SOURCE_WRITER, "trireme");
  proto_end(out, source);
  end_event(out, event);
}

void tfevents_add_start(Str *out, double time, uint64_t step) {
  size_t event = begin_event(out, time, step);
  size_t session = proto_begin(out, EVENT_SESSION);
  proto_add_int(out, SESSION_STATUS, SESSION_START);
  proto_end(out, session);
  end_event(out, event);
}

TfSummary tfevents_begin(Str *out, double time, uint64_t step) {
  TfSummary s = {.out = out};
  s.record = begin_event(out, time, step);
  s.summary = proto_begin(out, EVENT_SUMMARY);
  return s;
}

void tfevents_end(const TfSummary *s) {
  proto_end(s->out, s->summary);
  end_event(s->out, s->record);
}

/* Values. */

static size_t begin_value(const TfSummary *s, const char *tag) {
  size_t value = proto_begin(s->out, SUMMARY_VALUE);
  proto_add_string(s->out, VALUE_TAG, tag);
  return value;
}

void tfevents_add_scalar(const TfSummary *s, const char *tag, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  size_t at = begin_value(s, tag);
  proto_add_key(s->out, VALUE_SCALAR, PROTO_32);
  proto_add_fixed(s->out, bits, sizeof bits);
  proto_end(s->out, at);
}

static void add_doubles(Str *out, int field, const double *value, size_t n) {
  if (!n) return;
  proto_add_key(out, field, PROTO_BYTES);
  proto_add_varint(out, n * sizeof *value);
  for (size_t i = 0; i < n; i++) proto_add_double_bits(out, value[i]);
}

void tfevents_add_histogram(const TfSummary *s, const char *tag, const TfHistogram *h) {
  Str *out = s->out;
  size_t value = begin_value(s, tag);
  size_t histogram = proto_begin(out, VALUE_HISTOGRAM);
  proto_add_double(out, HISTOGRAM_MIN, h->min);
  proto_add_double(out, HISTOGRAM_MAX, h->max);
  proto_add_double(out, HISTOGRAM_COUNT, h->count);
  proto_add_double(out, HISTOGRAM_SUM, h->sum);
  proto_add_double(out, HISTOGRAM_SQUARES, h->square_sum);
  add_doubles(out, HISTOGRAM_LIMITS, h->limit, h->buckets);
  add_doubles(out, HISTOGRAM_BUCKETS, h->bucket, h->buckets);
  proto_end(out, histogram);
  proto_end(out, value);
}

static void add_dimension(Str *out, size_t size) {
  size_t dim = proto_begin(out, SHAPE_DIM);
  proto_add_int(out, DIM_SIZE, size);
  proto_end(out, dim);
}

/* Adds the metadata by which TensorBoard finds the plug-in that shows a tensor. */
static size_t begin_plugin(Str *out, const char *name, size_t *metadata) {
  *metadata = proto_begin(out, VALUE_METADATA);
  size_t plugin = proto_begin(out, METADATA_PLUGIN);
  proto_add_string(out, PLUGIN_NAME, name);
  return plugin;
}

static void end_plugin(Str *out, size_t plugin, size_t metadata) {
  proto_end(out, plugin);
  proto_end(out, metadata);
}

void tfevents_add_table(const TfSummary *s, const char *tag, const char *cells, size_t rows,
                        size_t columns) {
  Str *out = s->out;
  size_t metadata, value = begin_value(s, tag);
  size_t tensor = proto_begin(out, VALUE_TENSOR);
  proto_add_int(out, TENSOR_TYPE, TYPE_STRING);
  size_t shape = proto_begin(out, TENSOR_SHAPE);
  add_dimension(out, rows);
  add_dimension(out, columns);
  proto_end(out, shape);
  for (size_t i = 0; i < rows * columns; i++) {
    proto_add_string(out, TENSOR_STRINGS, cells);
    cells += strlen(cells) + 1;
  }
  proto_end(out, tensor);
  size_t plugin = begin_plugin(out, "text", &metadata);
  end_plugin(out, plugin, metadata);
  proto_end(out, value);
}

/* Adds entries of the map from names of options to google.protobuf.Value. */
static void add_options(Str *out, const char *options) {
  Str copy = {0};
  Hparam h;
  double number;
  while (hparams_next(&options, &h)) {
    size_t entry = proto_begin(out, START_HPARAMS);
    proto_add_text(out, MAP_KEY, h.name, h.name_len);
    size_t value = proto_begin(out, MAP_VALUE);
    if (hparams_is_number(&h, &copy, &number)) {
      proto_add_key(out, PB_NUMBER, PROTO_64); /* written even if it is 0 */
      proto_add_double_bits(out, number);
    } else {
      proto_add_text(out, PB_TEXT, h.text, h.text_len);
    }
    proto_end(out, value);
    proto_end(out, entry);
  }
  if (copy.failed) out->failed = true;
  str_free(&copy);
}

/* The dashboard reads the metadata only; the tensor is an empty vector. */
void tfevents_add_hparams(const TfSummary *s, const char *options, double time) {
  Str *out = s->out;
  size_t metadata, value = begin_value(s, TFEVENTS_HPARAMS_TAG);
  size_t tensor = proto_begin(out, VALUE_TENSOR);
  proto_add_int(out, TENSOR_TYPE, TYPE_FLOAT);
  size_t shape = proto_begin(out, TENSOR_SHAPE);
  add_dimension(out, 0);
  proto_end(out, shape);
  proto_end(out, tensor);
  size_t plugin = begin_plugin(out, "hparams", &metadata);
  size_t content = proto_begin(out, PLUGIN_CONTENT);
  size_t start = proto_begin(out, HPARAMS_START);
  add_options(out, options);
  proto_add_double(out, START_TIME, time);
  proto_end(out, start);
  proto_end(out, content);
  end_plugin(out, plugin, metadata);
  proto_end(out, value);
}
