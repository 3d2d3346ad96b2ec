/* Presets: the form of the reference models; tiny and small are for CPUs.
 * Relies on base/err. */
#include "model/config.h"

#include <string.h>

Err config_preset(ModelConfig *c, const char *name) {
  static const struct {
    const char *name;
    int d, ff, layers, heads;
    float drop_activation, drop_residual;
  } presets[] = {
      {"tiny", 128, 512, 3, 4, 0.1f, 0.1f},
      {"small", 256, 1024, 4, 4, 0.1f, 0.1f},
      {"base", 512, 2048, 6, 8, 0.1f, 0.1f},
      {"big", 1024, 4096, 6, 16, 0.3f, 0.3f},
  };
  for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
    if (strcmp(presets[i].name, name) != 0) continue;
    c->d = presets[i].d, c->ff = presets[i].ff, c->heads = presets[i].heads;
    c->layers[0] = c->layers[1] = presets[i].layers;
    c->pre_norm = true, c->attention_bias = false;
    c->activation = ACT_RELU, c->positions = POSITION_HALVES, c->tying = TIE_ALL;
    c->drop_embed = presets[i].drop_residual, c->drop_attention = 0.1f;
    c->drop_activation = presets[i].drop_activation,
    c->drop_residual = presets[i].drop_residual;
    c->norm_epsilon = 1e-6f;
    return ERR_OK;
  }
  return err_set(ERR_USAGE, "there is no preset '%s'; there are tiny, small, base and big",
                 name);
}

Err config_check(const ModelConfig *c) {
  if (c->heads < 1 || c->d % c->heads != 0) {
    return err_set(ERR_USAGE, "%d heads do not divide a width of %d; choose heads that do",
                   c->heads, c->d);
  }
  if (c->positions != POSITION_LEARNED && c->d % 2 != 0)
    return err_set(ERR_USAGE, "sinusoidal positions need an even width, not %d", c->d);
  return ERR_OK;
}
