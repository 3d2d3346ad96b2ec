/* Encodes and parses messages. Depends on channel, base/jsondoc, Jansson. */
#include "launch/protocol.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/utf8.h"

#define BODY_MAX ((size_t)64 << 10) /* largest JSON body in bytes */
#define TEXT_MAX 2048               /* size of a buffer for an error or a reason */
/* Bytes of BODY_MAX reserved for members that are added to a copy of a body. */
#define BODY_RESERVE ((size_t)4 << 10)

static Err check_length(size_t len, size_t max) {
  if (len <= max) return ERR_OK;
  return err_set(ERR_WORK,
                 "a launch message of %zu bytes exceeds %zu: the command line or an "
                 "environment variable is too long; put options into a --config file",
                 len, max);
}

static Err send_text(Channel *c, uint8_t type, const char *text) {
  size_t len = strlen(text);
  TRY(check_length(len, BODY_MAX));
  return channel_send(c, type, text, len);
}

json_t *protocol_make_text(const char *text) {
  char plain[TEXT_MAX];
  utf8_visible(text, plain, sizeof plain);
  return json_string(plain);
}

Err protocol_check_size(const json_t *body) {
  size_t len = json_dumpb(body, NULL, 0, JSON_COMPACT);
  return check_length(len, BODY_MAX - BODY_RESERVE);
}

Err protocol_send(Channel *c, uint8_t type, json_t *body) {
  char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
  json_decref(body);
  if (!text) return err_set(ERR_WORK, "out of memory for a launch message");
  Err err = send_text(c, type, text);
  free(text); /* allocated by Jansson with malloc */
  return err;
}

Err protocol_parse(const Frame *f, const char *peer, json_t **body) {
  json_error_t wrong;
  *body = NULL;
  if (f->len > BODY_MAX)
    return err_set(ERR_WORK,
                   "%s sent a message of type %d with %zu bytes, at most %zu are allowed; "
                   "install the same version of trireme on all machines",
                   peer, f->type, f->len, BODY_MAX);
  TRY(jsondoc_check((const char *)f->data, f->len, peer));
  *body = json_loadb((const char *)f->data, f->len, JSON_REJECT_DUPLICATES, &wrong);
  if (!*body)
    return err_set(ERR_WORK,
                   "%s sent a message of type %d that is not JSON, at byte %d: %s; install the "
                   "same version of trireme on all machines",
                   peer, f->type, wrong.position, wrong.text);
  if (json_is_object(*body)) return ERR_OK;
  json_decref(*body);
  *body = NULL;
  return err_set(ERR_WORK,
                 "%s sent a message of type %d that is not a JSON object; install the same "
                 "version of trireme on all machines",
                 peer, f->type);
}

int64_t protocol_int(const json_t *body, const char *name, int64_t missing) {
  const json_t *value = json_object_get(body, name);
  return json_is_integer(value) ? (int64_t)json_integer_value(value) : missing;
}

int64_t protocol_between(const json_t *body, const char *name, int64_t least, int64_t most,
                         int64_t otherwise) {
  const json_t *value = json_object_get(body, name);
  if (!json_is_integer(value)) return otherwise;
  int64_t number = (int64_t)json_integer_value(value);
  return number >= least && number <= most ? number : otherwise;
}

const char *protocol_text(const json_t *body, const char *name) {
  const char *text = json_string_value(json_object_get(body, name));
  return text ? text : "";
}

static void put_u32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get_u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

Err output_send(Channel *c, const OutputHeader *header, const void *bytes, size_t len) {
  uint8_t frame[OUTPUT_HEADER_BYTES + OUTPUT_MAX];
  if (len > OUTPUT_MAX) return err_set(ERR_WORK, "output of %zu bytes in one message", len);
  put_u32(frame, header->generation);
  put_u32(frame + 4, header->rank);
  frame[8] = header->stream;
  memcpy(frame + OUTPUT_HEADER_BYTES, bytes, len);
  return channel_send(c, MSG_OUTPUT, frame, OUTPUT_HEADER_BYTES + len);
}

bool output_parse(const Frame *f, OutputHeader *header, const uint8_t **bytes, size_t *len) {
  if (f->len < OUTPUT_HEADER_BYTES) return false;
  header->generation = get_u32(f->data);
  header->rank = get_u32(f->data + 4);
  header->stream = f->data[8];
  *bytes = f->data + OUTPUT_HEADER_BYTES;
  *len = f->len - OUTPUT_HEADER_BYTES;
  return header->stream >= OUTPUT_STDOUT && header->stream <= OUTPUT_TERMINAL;
}
