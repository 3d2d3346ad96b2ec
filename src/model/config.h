/* Settings of a model of any family, and how model.json stores them: a family lists its fields
 * in one table, which reads, writes and compares them. Depends on base, Jansson. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct ModelFamily ModelFamily; /* model/model.h */

#define CONFIG_BYTES 256 /* at most, of a family's own struct */

/* Copied by value. `own` holds the family's struct (TransformerConfig for the translator). */
typedef struct {
  const ModelFamily *family;
  _Alignas(8) char own[CONFIG_BYTES];
} ModelConfig;

typedef enum {
  FIELD_INT,    /* int in [min, max] */
  FIELD_FLOAT,  /* float in [min, max] */
  FIELD_FLAG,   /* bool; missing is false */
  FIELD_CHOICE, /* int, enum or bool: index of a name in `choices` */
  FIELD_ID,     /* int in [min, the value of the int at `vocab`) */
} FieldKind;

typedef struct {
  const char *key; /* in model.json; NULL ends the table */
  FieldKind kind;
  size_t offset, size; /* in the family's struct; see CONFIG_FIELD */
  double min, max;
  const char *const *choices; /* ends with NULL */
  size_t vocab;               /* offset of the vocabulary's size, for FIELD_ID */
  bool may_change;            /* a resumed run may have another value: the weights still fit */
} ConfigField;

#define CONFIG_FIELD(Struct, member) \
  .offset = offsetof(Struct, member), .size = sizeof(((Struct *)0)->member)

struct json_t;
/* Adds the fields to the object `root`. False: out of memory. */
bool config_write(const ModelConfig *config, struct json_t *root);
/* Reads the fields of config->family from `root`. The error names `path` and the first field
 * that is missing or out of range. */
NODISCARD Err config_read(ModelConfig *config, const struct json_t *root, const char *path);
/* The first field in which the two differ and that may not change, or NULL if weights of one
 * fit the other. Families must be the same. */
const ConfigField *config_difference(const ModelConfig *a, const ModelConfig *b);
/* The value of a field as model.json has it, for messages. */
void config_print(const ConfigField *field, const ModelConfig *config, char *out, size_t size);
/* The error of a field that is missing or has a wrong value. */
Err config_damaged(const char *path, const char *key);

#endif
