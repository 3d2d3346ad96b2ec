/* Writes MarianMT models: config.json, generation_config.json, model.safetensors and the files of the
 * tokenizer; and calls export_bert for models of the BERT family. Depends on export_tensors, export_bert, marian,
 * Jansson. */
#include "model/export_hf.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "model/export_bert.h"
#include "model/export_tensors.h"
#include "model/marian.h"

static Err refuse_form(const Export *e, const char *why) {
  return err_set(ERR_WORK,
                 "%s cannot be exported to Hugging Face: %s, a form that transformers does not "
                 "have (MarianMT is the nearest); pass --to ctranslate2",
                 e->dir, why);
}

static Err check_marian(const Export *e) {
  const TransformerConfig *c = &e->translator;
  char why[160];
  if (c->pre_norm) return refuse_form(e, "its layer norms are before the sublayers (pre-norm)");
  if (c->tying != TIE_ALL)
    return refuse_form(e, "its embeddings of source, target and output are not all tied");
  if (c->norm_epsilon != MARIAN_EPSILON) {
    snprintf(
        why, sizeof why,
        "the epsilon of its layer norms is %g, while that of MarianMT is always %g and not in "
        "config.json",
        (double)c->norm_epsilon, (double)MARIAN_EPSILON);
    return refuse_form(e, why);
  }
  if (!e->tokenizer.pair_)
    return refuse_form(e, "its tokenizer is one SentencePiece model instead of two");
  if (c->pad < 0 || e->tokenizer.pad != c->pad)
    return refuse_form(e, "its vocabulary has no <pad>");
  return ERR_OK;
}

static Err visit_tensor(void *context, const char *name, size_t offset, size_t rows,
                        size_t cols) {
  ExportTensors *list = context;
  const float *data = offset == PARAM_NONE ? NULL : list->e->w + offset;
  if (strcmp(name, MARIAN_OUTPUT_BIAS) == 0)
    return export_add_tensor(list, name, data, 1, rows);
  return export_add_tensor(list, name, data, rows, cols);
}

/* Positions that are not MarianMT's own are written like weights; transformers reads them. */
static Err add_positions(ExportTensors *list, float *memory[2]) {
  const TransformerConfig *c = &list->e->translator;
  if (c->positions == POSITION_MARIAN) return ERR_OK;
  for (int stack = 0; stack < 2; stack++) {
    const float *data;
    TRY(export_positions(list->e, stack, &data, &memory[stack]));
    TRY(export_add_tensor(list, marian_positions[stack], data, (size_t)c->max_positions,
                          (size_t)c->d_model));
  }
  return ERR_OK;
}

static Err write_weights(const Export *e, const char *dir) {
  ExportTensors list = {.e = e};
  float *memory[2] = {NULL, NULL};
  Err err = marian_visit(&e->translator, &e->at, visit_tensor, &list);
  if (!err) err = add_positions(&list, memory);
  if (!err) err = export_save_tensors(&list, dir);
  mem_free(memory[0]);
  mem_free(memory[1]);
  export_free_tensors(&list);
  return err;
}

static int get_start(const TransformerConfig *c) {
  return c->bos >= 0 ? c->bos : c->eos;
}

static Err write_config(const Export *e, const char *dir) {
  static const char *const activations[] = {
      [ACT_RELU] = "relu", [ACT_GELU] = "gelu", [ACT_SILU] = "swish"};
  const TransformerConfig *c = &e->translator;
  json_t *root = json_pack("{s:[s], s:s, s:s, s:b, s:b, s:b, s:b}", "architectures",
                           "MarianMTModel", "model_type", "marian", "dtype", "float32",
                           "is_encoder_decoder", 1, "scale_embedding", 1,
                           "share_encoder_decoder_embeddings", 1, "tie_word_embeddings", 1);
  json_t *sizes =
      json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "vocab_size", c->vocab,
                "decoder_vocab_size", c->vocab, "d_model", c->d_model, "encoder_ffn_dim",
                c->ffn_dim, "decoder_ffn_dim", c->ffn_dim, "encoder_attention_heads", c->heads,
                "decoder_attention_heads", c->heads, "encoder_layers", c->layers[0],
                "decoder_layers", c->layers[1], "max_position_embeddings", c->max_positions);
  json_t *rest =
      json_pack("{s:s, s:f, s:f, s:f, s:i, s:i, s:i, s:n, s:n}", "activation_function",
                activations[c->activation], "dropout", (double)c->drop_residual,
                "attention_dropout", (double)c->drop_attention, "activation_dropout",
                (double)c->drop_activation, "eos_token_id", c->eos, "pad_token_id", c->pad,
                "decoder_start_token_id", get_start(c), "bos_token_id", "forced_eos_token_id");
  bool is_complete = root && sizes && rest && json_object_update(root, sizes) == 0 &&
                     json_object_update(root, rest) == 0;
  json_decref(sizes);
  json_decref(rest);
  if (!is_complete) {
    json_decref(root);
    root = NULL;
  }
  return export_write_json(root, dir, "config.json");
}

/* The search of `translate --search-rules hf --length-penalty 1`. */
static Err write_generation(const Export *e, const char *dir) {
  const TransformerConfig *c = &e->translator;
  return export_write_json(
      json_pack("{s:i, s:i, s:i, s:i, s:i, s:f, s:b, s:[[i]]}", "eos_token_id", c->eos,
                "pad_token_id", c->pad, "decoder_start_token_id", get_start(c), "max_length",
                c->max_positions, "num_beams", 4, "length_penalty", 1.0, "early_stopping", 0,
                "bad_words_ids", c->pad),
      dir, "generation_config.json");
}

static Err write_tokenizer(const Export *e, const char *dir) {
  TRY(export_copy_tokenizer(e, dir));
  return export_write_json(
      json_pack("{s:s, s:i, s:s, s:s, s:s, s:b, s:n, s:n}", "tokenizer_class",
                "MarianTokenizer", "model_max_length", e->translator.max_positions, "eos_token",
                "</s>", "unk_token", "<unk>", "pad_token", "<pad>", "separate_vocabs", 0,
                "source_lang", "target_lang"),
      dir, "tokenizer_config.json");
}

static Err check_form(const Export *e) {
  return e->is_translator ? check_marian(e) : export_check_bert(e);
}

static Err write_files(const Export *e, const char *dir) {
  if (!e->is_translator) return export_write_bert(e, dir);
  TRY(write_tokenizer(e, dir));
  TRY(write_config(e, dir));
  TRY(write_generation(e, dir));
  return write_weights(e, dir);
}

const ExportForm export_hf = {.name = "hf", .check = check_form, .write = write_files};
