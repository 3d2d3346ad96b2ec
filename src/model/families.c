/* The table of model families. A new family is a new file and one line here. */
#include "model/bert.h"
#include "model/transformer.h"

const ModelFamily *const model_families[] = {&transformer_family, &bert_family, NULL};
