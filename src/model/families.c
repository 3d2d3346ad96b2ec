/* The model families that there are. A new one is one file and one line here. */
#include "model/transformer.h"

const ModelFamily *const model_families[] = {&transformer_family, NULL};
