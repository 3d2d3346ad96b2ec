/* Reads, writes and compares the fields of a model's configuration. Depends on Jansson. */
#include "model/config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

Err config_damaged(const char *path, const char *key, const char *expected) {
  return err_set(ERR_WORK, "%s is damaged: '%s' is missing or is not %s; copy the model again",
                 path, key, expected);
}

/* Sets the error for a choice that has none of its values. */
static Err refuse_choice(const ConfigField *f, const char *path) {
  char expected[256];
  int n = snprintf(expected, sizeof expected, "one of \"%s\"", f->choices[0]);
  for (int i = 1; f->choices[i] && n > 0 && n < (int)sizeof expected; i++)
    n += snprintf(expected + n, sizeof expected - (size_t)n, ", \"%s\"", f->choices[i]);
  return config_damaged(path, f->key, expected);
}

/* Sets the error for a number that is not one, or not in [f->min, max]. */
static Err refuse_number(const ConfigField *f, const char *kind, double max, const char *path) {
  char expected[96];
  snprintf(expected, sizeof expected, "%s from %.10g to %.10g", kind, f->min, max);
  return config_damaged(path, f->key, expected);
}

static int get_int(const ConfigField *f, const char *own) {
  int value;
  if (f->size == sizeof(bool)) return *(const bool *)(own + f->offset);
  memcpy(&value, own + f->offset, sizeof value);
  return value;
}

static void set_int(const ConfigField *f, char *own, int value) {
  if (f->size == sizeof(bool))
    *(bool *)(own + f->offset) = value != 0;
  else
    memcpy(own + f->offset, &value, sizeof value);
}

static float get_float(const ConfigField *f, const char *own) {
  float value;
  memcpy(&value, own + f->offset, sizeof value);
  return value;
}

static json_t *print_field(const ConfigField *f, const char *own) {
  switch (f->kind) {
    case FIELD_FLOAT:
      return json_real((double)get_float(f, own));
    case FIELD_FLAG:
      return json_boolean(get_int(f, own));
    case FIELD_CHOICE:
      return json_string(f->choices[get_int(f, own)]);
    default:
      return json_integer(get_int(f, own));
  }
}

bool config_write(const ModelConfig *c, json_t *root) {
  for (const ConfigField *f = c->family->fields; f->key; f++)
    if (json_object_set_new(root, f->key, print_field(f, c->own)) != 0) return false;
  return true;
}

static Err read_int(const ConfigField *f, const json_t *j, char *own, double max,
                    const char *path) {
  double value = (double)json_integer_value(j);
  if (!json_is_integer(j) || value < f->min || value > max)
    return refuse_number(f, "an integer", max, path);
  set_int(f, own, (int)json_integer_value(j));
  return ERR_OK;
}

static Err read_float(const ConfigField *f, const json_t *j, char *own, const char *path) {
  double value = json_number_value(j);
  float rounded = (float)value;
  if (!json_is_number(j) || !(value >= f->min && value <= f->max))
    return refuse_number(f, "a number", f->max, path);
  memcpy(own + f->offset, &rounded, sizeof rounded);
  return ERR_OK;
}

static Err read_choice(const ConfigField *f, const json_t *j, char *own, const char *path) {
  const char *text = json_string_value(j);
  for (int i = 0; text && f->choices[i]; i++) {
    if (strcmp(text, f->choices[i]) != 0) continue;
    set_int(f, own, i);
    return ERR_OK;
  }
  return refuse_choice(f, path);
}

static Err read_flag(const ConfigField *f, const json_t *j, char *own, const char *path) {
  if (j && !json_is_boolean(j)) return config_damaged(path, f->key, "true or false");
  set_int(f, own, json_is_true(j));
  return ERR_OK;
}

static Err read_field(const ConfigField *f, const json_t *root, char *own, const char *path) {
  const json_t *j = json_object_get(root, f->key);
  int vocab;
  switch (f->kind) {
    case FIELD_FLOAT:
      return read_float(f, j, own, path);
    case FIELD_FLAG:
      return read_flag(f, j, own, path);
    case FIELD_CHOICE:
      return read_choice(f, j, own, path);
    case FIELD_ID:
      memcpy(&vocab, own + f->vocab, sizeof vocab);
      return read_int(f, j, own, vocab - 1, path);
    default:
      return read_int(f, j, own, f->max, path);
  }
}

Err config_read(ModelConfig *c, const json_t *root, const char *path) {
  memset(c->own, 0, sizeof c->own);
  for (const ConfigField *f = c->family->fields; f->key; f++)
    TRY(read_field(f, root, c->own, path));
  if (c->family->check(c) == ERR_OK) return ERR_OK;
  /* The family names the options that would set these fields; here the file is at fault. */
  ErrRecord why = err_copy();
  return err_set(ERR_WORK,
                 "%s is damaged: its members contradict each other (%s); copy the model again",
                 path, why.text);
}

const ConfigField *config_difference(const ModelConfig *a, const ModelConfig *b) {
  for (const ConfigField *f = a->family->fields; f->key; f++)
    if (!f->may_change && memcmp(a->own + f->offset, b->own + f->offset, f->size) != 0)
      return f;
  return NULL;
}

void config_print(const ConfigField *f, const ModelConfig *c, char *out, size_t size) {
  if (f->kind == FIELD_FLOAT)
    snprintf(out, size, "%g", (double)get_float(f, c->own));
  else if (f->kind == FIELD_CHOICE)
    snprintf(out, size, "%s", f->choices[get_int(f, c->own)]);
  else
    snprintf(out, size, "%d", get_int(f, c->own));
}
