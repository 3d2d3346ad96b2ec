/* Presets of the BERT family (the sizes that Google has published), and the table of the fields in
 * model.json. Depends on base/err. */
#include "model/bert_config.h"

#include <string.h>

static const char *const activations[] = {"relu", "gelu", "silu", NULL};
static const char *const heads[] = {"none", "softmax", "sigmoid", "square", "mlm", NULL};
static const char *const poolers[] = {"none", "tanh", "relu", NULL};

#define FIELD(member) CONFIG_FIELD(BertConfig, member)
#define COUNT(name, member, least, most) \
  { .key = name, .kind = FIELD_INT, .min = least, .max = most, FIELD(member) }
#define CHOICE(name, member, list) \
  { .key = name, .kind = FIELD_CHOICE, .choices = list, FIELD(member) }
/* Fields on which the shapes of the weights do not depend. */
#define RATE(name, member, most) \
  { .key = name, .kind = FIELD_FLOAT, .max = most, .may_change = true, FIELD(member) }

/* How texts become ids. */
#define SETTING(name, member) \
  { .key = name, .kind = FIELD_FLAG, .may_change = true, FIELD(member) }

const ConfigField bert_fields[] = {
    COUNT("vocab", vocab, 1, 1 << 24),
    COUNT("d", d_model, 1, 1 << 16),
    COUNT("ff", ffn_dim, 1, 1 << 18),
    COUNT("heads", heads, 1, 1 << 10),
    COUNT("layers", layers, 1, 250),
    COUNT("max_positions", max_positions, 1, 1 << 16),
    COUNT("position_offset", position_offset, 0, 1 << 10),
    COUNT("segments", segments, 0, 1 << 10),
    CHOICE("activation", activation, activations),
    CHOICE("head", head, heads),
    CHOICE("pooler", pooler, poolers),
    COUNT("labels", labels, 0, 1 << 16),
    {.key = "max_tokens",
     .kind = FIELD_INT,
     .max = 1 << 16,
     .may_change = true,
     FIELD(max_tokens)},
    SETTING("pairs", has_pairs),
    SETTING("lower_case", is_lower),
    SETTING("strip_accents", strips_accents),
    RATE("norm_epsilon", norm_epsilon, 1),
    RATE("drop_embed", drop_embed, 0.99),
    RATE("drop_attention", drop_attention, 0.99),
    RATE("drop_activation", drop_activation, 0.99),
    RATE("drop_residual", drop_residual, 0.99),
    RATE("drop_classifier", drop_classifier, 0.99),
    {0},
};

#define HEAD_DIM 64 /* d_model / heads in every preset */

Err bert_preset(BertConfig *c, const char *name) {
  static const struct {
    const char *name;
    int d, layers;
  } presets[] = {
      {"bert-tiny", 128, 2},   {"bert-mini", 256, 4},  {"bert-small", 512, 4},
      {"bert-medium", 512, 8}, {"bert-base", 768, 12}, {"bert-large", 1024, 24},
  };
  for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
    if (strcmp(presets[i].name, name) != 0) continue;
    c->d_model = presets[i].d;
    c->ffn_dim = 4 * presets[i].d;
    c->heads = presets[i].d / HEAD_DIM;
    c->layers = presets[i].layers;
    c->max_positions = 512;
    c->position_offset = 0;
    c->segments = 2;
    c->activation = ACT_GELU;
    c->pooler = BERT_POOLER_TANH;
    c->drop_embed = 0.1f;
    c->drop_attention = 0.1f;
    c->drop_activation = 0;
    c->drop_residual = 0.1f;
    c->drop_classifier = 0.1f;
    c->norm_epsilon = 1e-12f;
    return ERR_OK;
  }
  return err_set(ERR_USAGE,
                 "--preset %s: there is no such preset of BERT models; choose one of %s", name,
                 "bert-tiny, bert-mini, bert-small, bert-medium, bert-base, bert-large");
}

bool bert_is_classifier(const BertConfig *c) {
  return c->head != BERT_HEAD_NONE && c->head != BERT_HEAD_MLM;
}

static size_t count_positions(const BertConfig *c) {
  return (size_t)(c->max_positions - c->position_offset);
}

size_t bert_max_tokens(const BertConfig *c) {
  return c->max_tokens ? (size_t)c->max_tokens : count_positions(c);
}

Err bert_check_config(const BertConfig *c) {
  if (c->heads < 1 || c->d_model % c->heads != 0)
    return err_set(
        ERR_USAGE,
        "--heads %d does not divide --d-model %d; choose a number of heads that does", c->heads,
        c->d_model);
  if (c->position_offset >= c->max_positions)
    return err_set(ERR_USAGE,
                   "a BERT model with %d positions cannot begin at position %d; correct "
                   "max_positions or position_offset",
                   c->max_positions, c->position_offset);
  if (c->max_tokens < 0 || (size_t)c->max_tokens > count_positions(c))
    return err_set(
        ERR_USAGE,
        "the texts have up to %d tokens, but a BERT model with %d positions reads %zu; "
        "prepare them with --max-tokens %zu",
        c->max_tokens, c->max_positions, count_positions(c), count_positions(c));
  int least = c->head == BERT_HEAD_SOFTMAX ? 2 : 1;
  if (bert_is_classifier(c) && c->labels < least)
    return err_set(ERR_USAGE, "a BERT model with head %s needs at least %d labels, not %d",
                   heads[c->head], least, c->labels);
  if (!bert_is_classifier(c) && c->labels != 0)
    return err_set(ERR_USAGE, "a BERT model with head %s has no labels, not %d", heads[c->head],
                   c->labels);
  if (c->head == BERT_HEAD_MLM && c->pooler == BERT_POOLER_RELU)
    return err_set(ERR_USAGE, "a BERT model with head mlm has no pooler of kind relu");
  return ERR_OK;
}
