/* Presets (base and big are those of "Attention Is All You Need"; tiny and small are for CPUs),
 * and the table of the fields in model.json. Depends on base/err. */
#include "model/transformer_config.h"

#include <string.h>

static const char *const activations[] = {"relu", "gelu", "silu", NULL};
static const char *const positions[] = {"halves", "interleaved", "learned", "marian", NULL};
static const char *const tyings[] = {"all", "decoder", "none", NULL};
static const char *const norms[] = {"post", "pre", NULL};

#define FIELD(member) CONFIG_FIELD(TransformerConfig, member)
#define COUNT(name, member, most) \
  { .key = name, .kind = FIELD_INT, .min = 1, .max = most, FIELD(member) }
#define CHOICE(name, member, list) \
  { .key = name, .kind = FIELD_CHOICE, .choices = list, FIELD(member) }
/* Fields on which the shapes of the weights do not depend. */
#define RATE(name, member, most) \
  { .key = name, .kind = FIELD_FLOAT, .max = most, .may_change = true, FIELD(member) }
#define ID(name, member, least)                                                               \
  {                                                                                           \
    .key = name, .kind = FIELD_ID, .min = least, .vocab = offsetof(TransformerConfig, vocab), \
    .may_change = true, FIELD(member)                                                         \
  }

const ConfigField transformer_fields[] = {
    COUNT("vocab", vocab, 1 << 24),
    COUNT("d", d_model, 1 << 16),
    COUNT("ff", ffn_dim, 1 << 18),
    COUNT("heads", heads, 1 << 10),
    COUNT("encoder_layers", layers[0], 250),
    COUNT("decoder_layers", layers[1], 250),
    COUNT("longest", max_positions, 1 << 16),
    CHOICE("norm", pre_norm, norms),
    {.key = "attention_bias", .kind = FIELD_FLAG, FIELD(attention_bias)},
    {.key = "output_bias", .kind = FIELD_FLAG, FIELD(output_bias)},
    CHOICE("activation", activation, activations),
    CHOICE("positions", positions, positions),
    CHOICE("tied", tying, tyings),
    RATE("norm_epsilon", norm_epsilon, 1),
    RATE("drop_embed", drop_embed, 0.99),
    RATE("drop_attention", drop_attention, 0.99),
    RATE("drop_activation", drop_activation, 0.99),
    RATE("drop_residual", drop_residual, 0.99),
    ID("bos", bos, -1),
    ID("eos", eos, 0),
    ID("pad", pad, -1),
    {0},
};

Err transformer_preset(TransformerConfig *c, const char *name) {
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
    c->d_model = presets[i].d;
    c->ffn_dim = presets[i].ff;
    c->heads = presets[i].heads;
    c->layers[0] = presets[i].layers;
    c->layers[1] = presets[i].layers;
    c->pre_norm = true;
    c->attention_bias = false;
    c->activation = ACT_RELU;
    c->positions = POSITION_HALVES;
    c->tying = TIE_ALL;
    c->drop_embed = presets[i].drop_residual;
    c->drop_attention = 0.1f;
    c->drop_activation = presets[i].drop_activation;
    c->drop_residual = presets[i].drop_residual;
    c->norm_epsilon = 1e-6f;
    return ERR_OK;
  }
  return err_set(ERR_USAGE,
                 "--preset %s: there is no such preset of translation models; choose tiny, "
                 "small, base or big",
                 name);
}

Err transformer_check_config(const TransformerConfig *c) {
  if (c->heads < 1 || c->d_model % c->heads != 0) {
    return err_set(
        ERR_USAGE,
        "--heads %d does not divide --d-model %d; choose a number of heads that does", c->heads,
        c->d_model);
  }
  if (c->positions != POSITION_LEARNED && c->d_model % 2 != 0)
    return err_set(ERR_USAGE,
                   "sinusoidal positions need an even --d-model, not %d; choose an even one, "
                   "or --position-embedding learned",
                   c->d_model);
  return ERR_OK;
}
