/* Presets of all model families. Depends on model.h. */
#ifndef MODEL_PRESETS_H
#define MODEL_PRESETS_H

#include "model/model.h"

/* Sets the configuration of a preset of any family (ModelFamily.configure_preset). */
NODISCARD Err presets_configure(ModelConfig *config, const char *preset, int vocab);

#endif
