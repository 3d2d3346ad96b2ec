/* Configuration and names of MarianMT. Depends on transformer_params, format/hf_config. */
#include "model/marian.h"

#include <stdio.h>
#include <string.h>

const char *const marian_positions[2] = {"model.encoder.embed_positions.weight",
                                         "model.decoder.embed_positions.weight"};
const char *const marian_tied[] = {"model.encoder.embed_tokens.weight",
                                   "model.decoder.embed_tokens.weight", "lm_head.weight", NULL};

/* Properties of the configuration that only one value of is supported. */
static const struct {
  const char *key;
  bool fallback, needed;
} fixed[] = {
    {"scale_embedding", false, true},      {"normalize_before", false, false},
    {"normalize_embedding", false, false}, {"add_final_layer_norm", false, false},
    {"add_bias_logits", false, false},     {"share_encoder_decoder_embeddings", true, true},
    {"tie_word_embeddings", true, true},
};

static Err check_fixed(const HfConfig *hf) {
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
    bool value;
    TRY(hf_flag(hf, fixed[i].key, fixed[i].fallback, &value));
    if (value != fixed[i].needed)
      return err_set(
          ERR_WORK,
          "%s: \"%s\" is %s; only MarianMT models with %s can be imported, as those of "
          "Opus-MT are",
          hf->path, fixed[i].key, value ? "true" : "false", fixed[i].needed ? "true" : "false");
  }
  return ERR_OK;
}

/* Reads a number that encoder and decoder must have in common. */
static Err read_common(const HfConfig *hf, const char *what, int max, int fallback,
                       int *value) {
  char key[2][64];
  int of[2];
  for (int i = 0; i < 2; i++) {
    snprintf(key[i], sizeof key[i], "%s_%s", i ? "decoder" : "encoder", what);
    TRY(hf_int(hf, key[i], 1, max, fallback, &of[i]));
  }
  if (of[0] != of[1])
    return err_set(ERR_WORK, "%s: \"%s\" is %d and \"%s\" is %d; they must be equal", hf->path,
                   key[0], of[0], key[1], of[1]);
  *value = of[0];
  return ERR_OK;
}

static Err read_sizes(TransformerConfig *c, const HfConfig *hf) {
  int decoder_vocab;
  TRY(hf_int(hf, "vocab_size", 1, 1 << 24, 0, &c->vocab));
  TRY(hf_int(hf, "decoder_vocab_size", 1, 1 << 24, c->vocab, &decoder_vocab));
  if (decoder_vocab != c->vocab)
    return err_set(
        ERR_WORK,
        "%s: \"decoder_vocab_size\" %d is not \"vocab_size\" %d; only models with one "
        "vocabulary can be imported",
        hf->path, decoder_vocab, c->vocab);
  TRY(hf_int(hf, "d_model", 1, 1 << 16, 1024, &c->d_model));
  TRY(hf_int(hf, "encoder_layers", 1, 250, 12, &c->layers[0]));
  TRY(hf_int(hf, "decoder_layers", 1, 250, 12, &c->layers[1]));
  TRY(hf_int(hf, "max_position_embeddings", 2, 1 << 16, 1024, &c->max_positions));
  TRY(read_common(hf, "ffn_dim", 1 << 18, 4096, &c->ffn_dim));
  return read_common(hf, "attention_heads", 1 << 10, 16, &c->heads);
}

static Err read_activation(TransformerConfig *c, const HfConfig *hf) {
  const char *name;
  TRY(hf_text(hf, "activation_function", "gelu", &name));
  bool is_silu = strcmp(name, "swish") == 0 || strcmp(name, "silu") == 0;
  if (!is_silu && strcmp(name, "relu") != 0)
    return err_set(
        ERR_WORK,
        "%s: \"activation_function\" is '%s'; only relu, swish and silu can be imported",
        hf->path, name);
  c->activation = is_silu ? ACT_SILU : ACT_RELU;
  return ERR_OK;
}

static Err read_dropout(TransformerConfig *c, const HfConfig *hf) {
  TRY(hf_real(hf, "dropout", 0, 0.99, 0.1, &c->drop_residual));
  c->drop_embed = c->drop_residual;
  TRY(hf_real(hf, "attention_dropout", 0, 0.99, 0, &c->drop_attention));
  return hf_real(hf, "activation_dropout", 0, 0.99, 0, &c->drop_activation);
}

static Err read_ids(TransformerConfig *c, const HfConfig *hf) {
  int last = c->vocab - 1;
  TRY(hf_int(hf, "eos_token_id", 0, last, 0, &c->eos));
  TRY(hf_int(hf, "pad_token_id", 0, last, last, &c->pad));
  return hf_int(hf, "decoder_start_token_id", 0, last, c->pad, &c->bos);
}

Err marian_read_config(TransformerConfig *c, const HfConfig *hf) {
  *c = (TransformerConfig){.attention_bias = true,
                           .output_bias = true,
                           .positions = POSITION_MARIAN,
                           .tying = TIE_ALL,
                           .norm_epsilon = MARIAN_EPSILON};
  TRY(check_fixed(hf));
  TRY(read_sizes(c, hf));
  TRY(read_activation(c, hf));
  TRY(read_dropout(c, hf));
  TRY(read_ids(c, hf));
  if (c->d_model % c->heads == 0 && c->d_model % 2 == 0) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s: \"d_model\" %d is odd or not a multiple of %d heads; copy the "
                 "model again",
                 hf->path, c->d_model, c->heads);
}

/* The visitor and the prefix of the names of one layer. */
typedef struct {
  MarianVisit visit;
  void *context;
  char layer[48];
  size_t d;
} Walk;

/* Visits a weight (rows, cols) and its bias (rows), which begin at row `first` of theirs. */
static Err visit_linear(Walk *k, const char *part, size_t weight, size_t bias, size_t first,
                        size_t rows, size_t cols) {
  char name[128];
  snprintf(name, sizeof name, "%s.%s.weight", k->layer, part);
  TRY(k->visit(k->context, name, weight + first * cols, rows, cols));
  snprintf(name, sizeof name, "%s.%s.bias", k->layer, part);
  return k->visit(k->context, name, bias == PARAM_NONE ? bias : bias + first, rows, 1);
}

static Err visit_norm(Walk *k, const char *part, const NormParams *n) {
  char name[128];
  snprintf(name, sizeof name, "%s.%s.weight", k->layer, part);
  TRY(k->visit(k->context, name, n->gain, k->d, 1));
  snprintf(name, sizeof name, "%s.%s.bias", k->layer, part);
  return k->visit(k->context, name, n->bias, k->d, 1);
}

static Err visit_self(Walk *k, const AttentionParams *a) {
  size_t d = k->d;
  TRY(visit_linear(k, "self_attn.q_proj", a->in, a->in_bias, 0, d, d));
  TRY(visit_linear(k, "self_attn.k_proj", a->in, a->in_bias, d, d, d));
  TRY(visit_linear(k, "self_attn.v_proj", a->in, a->in_bias, 2 * d, d, d));
  return visit_linear(k, "self_attn.out_proj", a->out, a->out_bias, 0, d, d);
}

static Err visit_cross(Walk *k, const TransformerParams *at, int layer) {
  size_t d = k->d, keys = (size_t)layer * 2 * d;
  const AttentionParams *a = &at->layer[1][layer].cross;
  TRY(visit_linear(k, "encoder_attn.q_proj", a->in, a->in_bias, 0, d, d));
  TRY(visit_linear(k, "encoder_attn.k_proj", at->cross_kv, at->cross_kv_bias, keys, d, d));
  TRY(visit_linear(k, "encoder_attn.v_proj", at->cross_kv, at->cross_kv_bias, keys + d, d, d));
  TRY(visit_linear(k, "encoder_attn.out_proj", a->out, a->out_bias, 0, d, d));
  return visit_norm(k, "encoder_attn_layer_norm", &at->layer[1][layer].norm[1]);
}

static Err visit_layer(Walk *k, const TransformerConfig *c, const TransformerParams *at,
                       int stack, int layer) {
  const LayerParams *l = &at->layer[stack][layer];
  size_t ffn = (size_t)c->ffn_dim;
  snprintf(k->layer, sizeof k->layer, "model.%s.layers.%d", stack ? "decoder" : "encoder",
           layer);
  TRY(visit_self(k, &l->self));
  TRY(visit_norm(k, "self_attn_layer_norm", &l->norm[0]));
  if (stack) TRY(visit_cross(k, at, layer));
  TRY(visit_linear(k, "fc1", l->ffn.up, l->ffn.up_bias, 0, ffn, k->d));
  TRY(visit_linear(k, "fc2", l->ffn.down, l->ffn.down_bias, 0, k->d, ffn));
  return visit_norm(k, "final_layer_norm", &l->norm[stack ? 2 : 1]);
}

Err marian_visit(const TransformerConfig *c, const TransformerParams *at, MarianVisit visit,
                 void *context) {
  Walk k = {.visit = visit, .context = context, .d = (size_t)c->d_model};
  TRY(visit(context, MARIAN_EMBEDDING, at->output, (size_t)c->vocab, k.d));
  TRY(visit(context, MARIAN_OUTPUT_BIAS, at->output_bias, (size_t)c->vocab, 1));
  for (int stack = 0; stack < 2; stack++) {
    for (int i = 0; i < c->layers[stack]; i++) TRY(visit_layer(&k, c, at, stack, i));
  }
  return ERR_OK;
}
