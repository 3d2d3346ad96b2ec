/* Options of train that set the configuration of a Transformer. They are in three tables, so
 * that another family with attention layers can reuse the tables of sizes and dropout. Depends
 * on base/opt, transformer_config.h. */
#include "model/transformer_options.h"

#include <string.h>

#include "base/opt_rows.h"

const OptSpec transformer_size_options[] = {
    COUNT("d-model", "N", NULL, 8, 65536, "train", "Model",
          "Model dimension; by default the preset's"),
    COUNT("ffn-dim", "N", NULL, 8, 262144, "train", "Model",
          "Inner dimension of the feed-forward layers; by default the preset's"),
    COUNT("heads", "N", NULL, 1, 1024, "train", "Model",
          "Attention heads; by default the preset's"),
    {0},
};

const OptSpec transformer_form_options[] = {
    COUNT("encoder-layers", "N", NULL, 1, 250, "train", "Model",
          "Layers of the encoder; by default the preset's"),
    COUNT("decoder-layers", "N", NULL, 1, 250, "train", "Model",
          "Layers of the decoder; by default the preset's"),
    CHOICE("layer-norm", "WHERE", "pre", "pre|post", "train", "Model",
           "Layer norm before (pre) or after (post) each sublayer"),
    FLAG("attention-bias", "train", "Model", "Use biases in the attention projections"),
    CHOICE("activation", "NAME", "relu", "relu|gelu|silu=swish", "train", "Model",
           "Activation of the feed-forward layers"),
    CHOICE("position-embedding", "NAME", "sinusoidal", "sinusoidal=halves|interleaved|learned",
           "train", "Model",
           "Position embeddings; sinusoidal has the sines in the first half, interleaved "
           "alternates "
           "sines and cosines"),
    CHOICE(
        "tie-embeddings", "WHAT", "all", "all|decoder|none", "train", "Model",
        "Embeddings that share one matrix; all is source, target and output, decoder is target "
        "and output"),
    {0},
};

const OptSpec transformer_dropout_options[] = {
    REAL("dropout", "P", NULL, 0, 0.99, "train", "Model",
         "Set all four kinds of dropout below; by default the preset's"),
    REAL("embed-dropout", "P", NULL, 0, 0.99, "train", "Model", "Dropout of the embeddings"),
    REAL("attention-dropout", "P", NULL, 0, 0.99, "train", "Model",
         "Dropout of the attention weights"),
    REAL("activation-dropout", "P", NULL, 0, 0.99, "train", "Model",
         "Dropout inside the feed-forward layers"),
    REAL("residual-dropout", "P", NULL, 0, 0.99, "train", "Model",
         "Dropout of each sublayer's output"),
    {0},
};

static void set_dropout(TransformerConfig *c, const OptSet *opts) {
  float *drop[] = {&c->drop_embed, &c->drop_attention, &c->drop_activation, &c->drop_residual};
  static const char *const names[] = {"embed-dropout", "attention-dropout",
                                      "activation-dropout", "residual-dropout"};
  for (int i = 0; i < 4; i++) {
    if (opt_text(opts, "dropout")) *drop[i] = (float)opt_real(opts, "dropout");
    if (opt_text(opts, names[i])) *drop[i] = (float)opt_real(opts, names[i]);
  }
}

/* Sets *value to the value of an option that has no default, if the option is given. */
static void set_count(int *value, const OptSet *opts, const char *name) {
  if (opt_text(opts, name)) *value = (int)opt_count(opts, name);
}

/* Sets properties whose options have defaults, which do not change a model to start from. */
static void set_form(TransformerConfig *c, const OptSet *opts, bool has_start) {
#define IS_SET(name) (!has_start || opt_given(opts, name))
  if (IS_SET("layer-norm")) c->pre_norm = strcmp(opt_text(opts, "layer-norm"), "pre") == 0;
  if (IS_SET("attention-bias")) c->attention_bias = opt_flag(opts, "attention-bias");
  if (IS_SET("activation"))
    c->activation = (Activation)opt_choice(opts, "activation", "relu|gelu|silu");
  if (IS_SET("position-embedding"))
    c->positions =
        (Positions)opt_choice(opts, "position-embedding", "sinusoidal|interleaved|learned");
  if (IS_SET("tie-embeddings"))
    c->tying = (Tying)opt_choice(opts, "tie-embeddings", "all|decoder|none");
#undef IS_SET
}

Err transformer_configure(TransformerConfig *c, const OptSet *opts, bool has_start) {
  if (!has_start) TRY(transformer_preset(c, opt_text(opts, "preset")));
  set_count(&c->d_model, opts, "d-model");
  set_count(&c->ffn_dim, opts, "ffn-dim");
  set_count(&c->heads, opts, "heads");
  set_count(&c->layers[0], opts, "encoder-layers");
  set_count(&c->layers[1], opts, "decoder-layers");
  set_form(c, opts, has_start);
  set_dropout(c, opts);
  return transformer_check_config(c);
}
