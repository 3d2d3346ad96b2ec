/* Configuration of a model of any family. Each family lists the fields of its struct in one
 * table (ConfigField), which is used to read them from model.json, to write and to compare
 * them. Depends on base, Jansson. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct ModelFamily ModelFamily; /* defined in model/model.h */

#define CONFIG_BYTES 256 /* largest size of a family's configuration struct */

/* `own` holds the configuration struct of the family (TransformerConfig for translation). Has
 * no pointers into itself, so it can be copied by assignment. */
typedef struct {
  const ModelFamily *family;
  _Alignas(8) char own[CONFIG_BYTES];
} ModelConfig;

typedef enum {
  FIELD_INT,    /* int in [min, max] */
  FIELD_FLOAT,  /* float in [min, max] */
  FIELD_FLAG,   /* bool; false if model.json does not have it */
  FIELD_CHOICE, /* int, enum or bool: index of a name in `choices` */
  FIELD_ID,     /* int in [min, the value of the int at `vocab`) */
} FieldKind;

typedef struct {
  const char *key; /* name in model.json; NULL ends the table */
  FieldKind kind;
  size_t offset, size; /* position in the family's struct; set by CONFIG_FIELD */
  double min, max;
  const char *const *choices; /* names of the values of a FIELD_CHOICE; ends with NULL */
  size_t vocab; /* for FIELD_ID: offset of the int that holds the vocabulary size */
  /* A resumed run may change the value, because the shapes of the weights do not depend on
   * it. */
  bool may_change;
} ConfigField;

#define CONFIG_FIELD(Struct, member) \
  .offset = offsetof(Struct, member), .size = sizeof(((Struct *)0)->member)

struct json_t;
/* Adds the fields of the configuration to the JSON object `root`. Returns false if out of
 * memory. */
bool config_write(const ModelConfig *config, struct json_t *root);
/* Reads the fields of config->family from `root`. The error names `path`, the first field that is
 * missing or has a wrong type or value, and the values that it may have. */
NODISCARD Err config_read(ModelConfig *config, const struct json_t *root, const char *path);
/* Returns the first field that differs and may not change, or NULL if the weights of one model
 * fit the other. Both must be of the same family. */
const ConfigField *config_difference(const ModelConfig *a, const ModelConfig *b);
/* Prints the value of a field as in model.json, for messages. */
void config_print(const ConfigField *field, const ModelConfig *config, char *out, size_t size);
/* Sets the error for a member that is missing or has a wrong type or value. `expected` says what it
 * must be: "a string". */
Err config_damaged(const char *path, const char *key, const char *expected);

#endif
