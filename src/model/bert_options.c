/* Options of train that set the configuration of a BERT model. Depends on base/opt,
 * transformer_options.h. */
#include "model/bert_options.h"

#include "base/opt_rows.h"
#include "model/transformer_options.h"

static const OptSpec form_options[] = {
    COUNT("layers", "N", NULL, 1, 250, "train", "Model",
          "Layers of a BERT model; by default the preset's"),
    REAL("classifier-dropout", "P", NULL, 0, 0.99, "train", "Model",
         "Dropout before the classifier of a BERT model; by default the preset's"),
    {0},
};

const OptSpec *const bert_options[] = {transformer_size_options, form_options,
                                       transformer_dropout_options, NULL};

/* Sets *value to the value of an option that has no default, if the option is given. */
static void set_count(int *value, const OptSet *opts, const char *name) {
  if (opt_text(opts, name)) *value = (int)opt_count(opts, name);
}

static void set_rate(float *rate, const OptSet *opts, const char *name) {
  if (opt_text(opts, name)) *rate = (float)opt_real(opts, name);
}

/* Leaves out what the task sets. A classifier has a pooler; a model that was trained to predict masked
 * tokens has none, and gets that of its form: DistilBERT, which has no segments, has ReLU. */
static void remove_head(BertConfig *c) {
  if (c->pooler == BERT_POOLER_NONE)
    c->pooler = c->segments ? BERT_POOLER_TANH : BERT_POOLER_RELU;
  c->head = BERT_HEAD_NONE;
  c->labels = 0;
  c->max_tokens = 0;
  c->has_pairs = false;
}

Err bert_configure(BertConfig *c, const OptSet *opts, bool has_start) {
  if (has_start)
    remove_head(c);
  else
    TRY(bert_preset(c, opt_text(opts, "preset")));
  set_count(&c->d_model, opts, "d-model");
  set_count(&c->ffn_dim, opts, "ffn-dim");
  set_count(&c->heads, opts, "heads");
  set_count(&c->layers, opts, "layers");
  float *all[] = {&c->drop_embed, &c->drop_attention, &c->drop_activation, &c->drop_residual};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) set_rate(all[i], opts, "dropout");
  set_rate(&c->drop_embed, opts, "embed-dropout");
  set_rate(&c->drop_attention, opts, "attention-dropout");
  set_rate(&c->drop_activation, opts, "activation-dropout");
  set_rate(&c->drop_residual, opts, "residual-dropout");
  set_rate(&c->drop_classifier, opts, "classifier-dropout");
  return ERR_OK;
}
