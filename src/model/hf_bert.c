/* Configuration and names of BERT, RoBERTa and DistilBERT. Depends on bert_params,
 * format/hf_config. */
#include "model/hf_bert.h"

#include <stdio.h>
#include <string.h>

const char *const hf_bert_type[HF_BERT_FORMS] = {"bert", "roberta", "distilbert"};

/* Keys of config.json. */
typedef struct {
  const char *d, *layers, *heads, *ffn, *activation, *drop, *drop_attention, *drop_classifier;
} Keys;
static const Keys bert_keys = {
    "hidden_size", "num_hidden_layers",   "num_attention_heads",          "intermediate_size",
    "hidden_act",  "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"};
static const Keys distil_keys = {
    "dim",        "n_layers", "n_heads",           "hidden_dim",
    "activation", "dropout",  "attention_dropout", "seq_classif_dropout"};

/* Names of the parts of a layer and of the heads. RoBERTa without a head has the pooler of BERT. */
typedef struct {
  const char *layer, *in[3], *out, *norm[2], *up, *down;
  const char *pooler, *classifier, *transform, *mlm_norm, *mlm_bias;
} Names;
#define BERT_LAYER                                                                             \
  .layer = "encoder.layer",                                                                    \
  .in = {"attention.self.query", "attention.self.key", "attention.self.value"},                \
  .out = "attention.output.dense", .norm = {"attention.output.LayerNorm", "output.LayerNorm"}, \
  .up = "intermediate.dense", .down = "output.dense"
static const Names names[HF_BERT_FORMS] = {
    [HF_BERT] = {BERT_LAYER, .classifier = "classifier",
                 .transform = "cls.predictions.transform.dense",
                 .mlm_norm = "cls.predictions.transform.LayerNorm",
                 .mlm_bias = "cls.predictions.bias"},
    [HF_ROBERTA] = {BERT_LAYER, .pooler = "classifier.dense",
                    .classifier = "classifier.out_proj", .transform = "lm_head.dense",
                    .mlm_norm = "lm_head.layer_norm", .mlm_bias = "lm_head.bias"},
    [HF_DISTILBERT] = {.layer = "transformer.layer",
                       .in = {"attention.q_lin", "attention.k_lin", "attention.v_lin"},
                       .out = "attention.out_lin",
                       .norm = {"sa_layer_norm", "output_layer_norm"},
                       .up = "ffn.lin1",
                       .down = "ffn.lin2",
                       .pooler = "pre_classifier",
                       .classifier = "classifier",
                       .transform = "vocab_transform",
                       .mlm_norm = "vocab_layer_norm",
                       .mlm_bias = "vocab_projector.bias"},
};

static Err read_sizes(BertConfig *c, HfBertForm form, const Keys *keys, const HfConfig *hf) {
  bool is_distil = form == HF_DISTILBERT;
  TRY(hf_int(hf, "vocab_size", 1, 1 << 24, 0, &c->vocab));
  TRY(hf_int(hf, keys->d, 1, 1 << 16, 768, &c->d_model));
  TRY(hf_int(hf, keys->layers, 1, 250, is_distil ? 6 : 12, &c->layers));
  TRY(hf_int(hf, keys->heads, 1, 1 << 10, 12, &c->heads));
  if (c->d_model % c->heads != 0)
    return err_set(ERR_WORK,
                   "%s: \"%s\" is %d, which is not a multiple of \"%s\", %d: every attention "
                   "head has the same size; use the config.json of this model",
                   hf->path, keys->d, c->d_model, keys->heads, c->heads);
  TRY(hf_int(hf, keys->ffn, 1, 1 << 18, 3072, &c->ffn_dim));
  TRY(hf_int(hf, "max_position_embeddings", 1, 1 << 16, 512, &c->max_positions));
  if (is_distil) return ERR_OK;
  TRY(hf_int(hf, "type_vocab_size", 1, 1 << 10, 2, &c->segments));
  return hf_real(hf, "layer_norm_eps", 0, 1, 1e-12, &c->norm_epsilon);
}

/* RoBERTa numbers positions from the row after that of the padding token. */
static Err read_offset(BertConfig *c, HfBertForm form, const HfConfig *hf) {
  int pad;
  if (form != HF_ROBERTA) return ERR_OK;
  TRY(hf_int(hf, "pad_token_id", 0, (1 << 10) - 1, 1, &pad));
  c->position_offset = pad + 1;
  return ERR_OK;
}

static Err read_activation(BertConfig *c, const char *key, const HfConfig *hf) {
  static const struct {
    const char *name;
    Activation kind;
  } known[] = {{"gelu", ACT_GELU},
               {"gelu_python", ACT_GELU},
               {"relu", ACT_RELU},
               {"silu", ACT_SILU},
               {"swish", ACT_SILU}};
  const char *name;
  TRY(hf_text(hf, key, "gelu", &name));
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(known[i].name, name) != 0) continue;
    c->activation = known[i].kind;
    return ERR_OK;
  }
  return err_set(ERR_WORK,
                 "%s: \"%s\" is '%s'; only models with gelu, relu and silu can be imported",
                 hf->path, key, name);
}

static Err read_dropout(BertConfig *c, const Keys *keys, const HfConfig *hf) {
  bool is_distil = keys == &distil_keys;
  TRY(hf_real(hf, keys->drop, 0, 0.99, 0.1, &c->drop_residual));
  c->drop_embed = c->drop_residual;
  TRY(hf_real(hf, keys->drop_attention, 0, 0.99, 0.1, &c->drop_attention));
  return hf_real(hf, keys->drop_classifier, 0, 0.99, is_distil ? 0.2 : c->drop_residual,
                 &c->drop_classifier);
}

/* Properties that only one value of is supported. */
static Err check_fixed(const HfConfig *hf) {
  static const struct {
    const char *key;
    bool fallback, needed;
  } fixed[] = {{"is_decoder", false, false},
               {"add_cross_attention", false, false},
               {"tie_word_embeddings", true, true}};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
    bool value;
    TRY(hf_flag(hf, fixed[i].key, fixed[i].fallback, &value));
    if (value != fixed[i].needed)
      return err_set(ERR_WORK, "%s: \"%s\" is %s; only encoders with %s can be imported",
                     hf->path, fixed[i].key, value ? "true" : "false",
                     fixed[i].needed ? "true" : "false");
  }
  const char *positions;
  TRY(hf_text(hf, "position_embedding_type", "absolute", &positions));
  if (strcmp(positions, "absolute") == 0) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s: \"position_embedding_type\" is '%s'; only 'absolute' can be imported",
                 hf->path, positions);
}

/* Sets head and labels of a classifier: a model without "problem_type" is trained by transformers for
 * regression if it has one label, and for one class otherwise. */
static Err read_classifier(BertConfig *c, const HfConfig *hf) {
  static const struct {
    const char *type;
    BertHead head;
  } known[] = {{"single_label_classification", BERT_HEAD_SOFTMAX},
               {"multi_label_classification", BERT_HEAD_SIGMOID},
               {"regression", BERT_HEAD_SQUARE}};
  const char *type;
  TRY(hf_count_labels(hf, &c->labels));
  TRY(hf_text(hf, "problem_type", known[c->labels > 1 ? 0 : 2].type, &type));
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(known[i].type, type) != 0) continue;
    c->head = known[i].head;
    return ERR_OK;
  }
  return err_set(ERR_WORK, "%s: \"problem_type\" is '%s'; only %s, %s and %s can be imported",
                 hf->path, type, known[0].type, known[1].type, known[2].type);
}

/* Sets the head by the class of the model, such as BertForMaskedLM. */
static Err read_head(BertConfig *c, HfBertForm form, const HfConfig *hf) {
  static const char *const class[HF_BERT_FORMS] = {"Bert", "Roberta", "DistilBert"};
  const char *name;
  size_t len = strlen(class[form]);
  bool is_distil = form == HF_DISTILBERT;
  TRY(hf_architecture(hf, &name));
  c->pooler = is_distil ? BERT_POOLER_NONE : BERT_POOLER_TANH;
  if (!name) return ERR_OK; /* a base model */
  const char *rest = strncmp(name, class[form], len) == 0 ? name + len : name;
  if (strcmp(rest, "Model") == 0) return ERR_OK;
  if (strcmp(rest, "ForSequenceClassification") == 0) {
    if (is_distil) c->pooler = BERT_POOLER_RELU;
    return read_classifier(c, hf);
  }
  if (strcmp(rest, "ForMaskedLM") == 0 || strcmp(rest, "ForPreTraining") == 0) {
    c->head = BERT_HEAD_MLM;
    c->pooler = BERT_POOLER_NONE;
    return ERR_OK;
  }
  return err_set(ERR_WORK,
                 "%s: \"architectures\" is '%s'; of \"model_type\" %s only %sModel, "
                 "%sForSequenceClassification and %sForMaskedLM can be imported",
                 hf->path, name, hf_bert_type[form], class[form], class[form], class[form]);
}

/* The head of RoBERTa has gelu whatever config.json says. */
static Err check_head(const BertConfig *c, HfBertForm form, const HfConfig *hf) {
  if (form == HF_ROBERTA && c->head == BERT_HEAD_MLM && c->activation != ACT_GELU)
    return err_set(
        ERR_WORK,
        "%s: \"hidden_act\" is not gelu; of RobertaForMaskedLM only models with gelu can "
        "be imported",
        hf->path);
  if (!bert_check_config(c)) return ERR_OK;
  return err_set(ERR_WORK, "%s: %s", hf->path, err_message());
}

Err hf_bert_read_config(BertConfig *c, HfBertForm form, const HfConfig *hf) {
  const Keys *keys = form == HF_DISTILBERT ? &distil_keys : &bert_keys;
  *c = (BertConfig){.norm_epsilon = 1e-12f};
  TRY(check_fixed(hf));
  TRY(read_sizes(c, form, keys, hf));
  TRY(read_offset(c, form, hf));
  TRY(read_activation(c, keys->activation, hf));
  TRY(read_dropout(c, keys, hf));
  TRY(read_head(c, form, hf));
  return check_head(c, form, hf);
}

/* The visitor, and what comes before the names of the parts. */
typedef struct {
  HfBertVisit visit;
  void *context;
  char where[64];
  size_t d;
} Walk;

static Err visit_part(Walk *k, const char *part, const char *end, size_t offset, size_t rows,
                      size_t cols) {
  char name[160];
  snprintf(name, sizeof name, "%s%s%s", k->where, part, end);
  return k->visit(k->context, name, offset, rows, cols);
}

/* Visits a weight (rows, cols) and its bias (rows), which begin at row `first` of theirs. */
static Err visit_linear(Walk *k, const char *part, const BertLinear *l, size_t first,
                        size_t rows, size_t cols) {
  if (l->weight == PARAM_NONE) return ERR_OK;
  TRY(visit_part(k, part, ".weight", l->weight + first * cols, rows, cols));
  return visit_part(k, part, ".bias", l->bias + first, rows, 1);
}

static Err visit_norm(Walk *k, const char *part, const BertNorm *n) {
  if (n->gain == PARAM_NONE) return ERR_OK;
  TRY(visit_part(k, part, ".weight", n->gain, k->d, 1));
  return visit_part(k, part, ".bias", n->bias, k->d, 1);
}

static Err visit_embeddings(Walk *k, const BertConfig *c, const BertParams *at) {
  TRY(visit_part(k, "word_embeddings", ".weight", at->tokens, (size_t)c->vocab, k->d));
  TRY(visit_part(k, "position_embeddings", ".weight", at->positions, (size_t)c->max_positions,
                 k->d));
  if (c->segments)
    TRY(visit_part(k, "token_type_embeddings", ".weight", at->segments, (size_t)c->segments,
                   k->d));
  return visit_norm(k, "LayerNorm", &at->embed_norm);
}

static Err visit_layer(Walk *k, const Names *n, const BertLayerParams *l, size_t ffn) {
  for (size_t i = 0; i < 3; i++) TRY(visit_linear(k, n->in[i], &l->in, i * k->d, k->d, k->d));
  TRY(visit_linear(k, n->out, &l->out, 0, k->d, k->d));
  TRY(visit_norm(k, n->norm[0], &l->norm[0]));
  TRY(visit_linear(k, n->up, &l->up, 0, ffn, k->d));
  TRY(visit_linear(k, n->down, &l->down, 0, k->d, ffn));
  return visit_norm(k, n->norm[1], &l->norm[1]);
}

static Err visit_head(Walk *k, const Names *n, const BertConfig *c, const BertParams *at) {
  TRY(visit_linear(k, n->classifier, &at->classifier, 0, (size_t)c->labels, k->d));
  TRY(visit_linear(k, n->transform, &at->mlm_transform, 0, k->d, k->d));
  TRY(visit_norm(k, n->mlm_norm, &at->mlm_norm));
  if (at->mlm_bias == PARAM_NONE) return ERR_OK;
  return visit_part(k, n->mlm_bias, "", at->mlm_bias, (size_t)c->vocab, 1);
}

/* The pooler is a part of the encoder in BERT and in a RoBERTa without a head. */
static Err visit_pooler(Walk *k, HfBertForm form, const char *prefix, const BertConfig *c,
                        const BertParams *at) {
  bool is_inside = form == HF_BERT || !bert_is_classifier(c);
  snprintf(k->where, sizeof k->where, "%s", is_inside ? prefix : "");
  return visit_linear(k, is_inside ? "pooler.dense" : names[form].pooler, &at->pooler, 0, k->d,
                      k->d);
}

Err hf_bert_visit(HfBertForm form, const char *prefix, const BertConfig *c,
                  const BertParams *at, HfBertVisit visit, void *context) {
  Walk k = {.visit = visit, .context = context, .d = (size_t)c->d_model};
  snprintf(k.where, sizeof k.where, "%sembeddings.", prefix);
  TRY(visit_embeddings(&k, c, at));
  for (int i = 0; i < c->layers; i++) {
    snprintf(k.where, sizeof k.where, "%s%s.%d.", prefix, names[form].layer, i);
    TRY(visit_layer(&k, &names[form], &at->layer[i], (size_t)c->ffn_dim));
  }
  TRY(visit_pooler(&k, form, prefix, c, at));
  k.where[0] = '\0';
  return visit_head(&k, &names[form], c, at);
}
