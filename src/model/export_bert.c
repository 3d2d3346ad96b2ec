/* Writes BERT, RoBERTa and DistilBERT: config.json with the names of the labels, model.safetensors, and
 * the files of the tokenizer. Depends on export_tensors, hf_bert, text/byte_bpe, Jansson. */
#include "model/export_bert.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/place.h"
#include "model/export_tensors.h"
#include "model/hf_bert.h"
#include "text/byte_bpe.h"

#define DISTIL_EPSILON 1e-12f /* epsilon of DistilBERT; not part of its config.json */
static const char *const class_name[HF_BERT_FORMS] = {"Bert", "Roberta", "DistilBert"};

/* Selects the form that has the positions and segments of the model. */
static HfBertForm find_form(const BertConfig *c) {
  if (c->position_offset) return HF_ROBERTA;
  return c->segments ? HF_BERT : HF_DISTILBERT;
}

static Err refuse_form(const Export *e, const char *why) {
  return err_set(
      ERR_WORK,
      "%s cannot be exported to Hugging Face: %s, a form that %s of transformers does "
      "not have; train it with the defaults of --preset",
      e->dir, why, class_name[find_form(&e->bert)]);
}

/* Refuses a model whose texts the tokenizers of transformers would give other ids. */
static Err refuse_tokenizer(const Export *e, const char *why) {
  return err_set(ERR_WORK,
                 "%s cannot be exported to Hugging Face: %s. To export it, prepare the texts "
                 "with --vocab vocab.txt or --vocab-size N (WordPiece), and train it on these",
                 e->dir, why);
}

Err export_check_bert(const Export *e) {
  const BertConfig *c = &e->bert;
  HfBertForm form = find_form(c);
  bool is_distil = form == HF_DISTILBERT;
  BertPooler pooler = is_distil ? BERT_POOLER_RELU : BERT_POOLER_TANH;
  if (bert_is_classifier(c) && c->pooler != pooler)
    return refuse_form(e, "its classifier has another pooler");
  if (!bert_is_classifier(c) && c->pooler != BERT_POOLER_NONE && c->pooler != pooler)
    return refuse_form(e, "it has another pooler");
  if (is_distil && c->norm_epsilon != DISTIL_EPSILON)
    return refuse_form(e, "the epsilon of its layer norms is not 1e-12");
  if (form == HF_ROBERTA && c->head == BERT_HEAD_MLM && c->activation != ACT_GELU)
    return refuse_form(e, "its activation is not gelu");
  if (export_has_file(e, "tokenizer.model"))
    return refuse_tokenizer(
        e,
        "its tokenizer is a SentencePiece model, and the tokenizers of BERT "
        "in transformers are WordPiece and byte-level BPE");
  if (export_has_file(e, "tokenizer.json") && c->has_pairs && c->segments > 1)
    return refuse_tokenizer(
        e,
        "it reads pairs of texts as two segments, and its byte-level BPE is "
        "in transformers RobertaTokenizer, which gives one");
  return ERR_OK;
}

static Err add_tensor(void *context, const char *name, size_t offset, size_t rows,
                      size_t cols) {
  ExportTensors *list = context;
  /* A matrix with one column has cols 1 like a vector: none of this family but a bias has it. */
  return export_add_tensor(list, name, list->e->w + offset, rows, cols);
}

static Err write_weights(const Export *e, const char *dir) {
  ExportTensors list = {.e = e};
  HfBertForm form = find_form(&e->bert);
  char prefix[16] = "";
  if (e->bert.head != BERT_HEAD_NONE)
    snprintf(prefix, sizeof prefix, "%s.", hf_bert_type[form]);
  Err err = hf_bert_visit(form, prefix, &e->bert, &e->bert_at, add_tensor, &list);
  if (!err) err = export_save_tensors(&list, dir);
  export_free_tensors(&list);
  return err;
}

/* Returns the sizes under the keys of a form; NULL: out of memory. */
static json_t *print_sizes(const BertConfig *c, HfBertForm form) {
  static const char *const activations[] = {
      [ACT_RELU] = "relu", [ACT_GELU] = "gelu", [ACT_SILU] = "silu"};
  const char *activation = activations[c->activation];
  if (form == HF_DISTILBERT)
    return json_pack("{s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:f, s:b}", "dim", c->d_model,
                     "n_layers", c->layers, "n_heads", c->heads, "hidden_dim", c->ffn_dim,
                     "activation", activation, "dropout", (double)c->drop_residual,
                     "attention_dropout", (double)c->drop_attention, "seq_classif_dropout",
                     (double)c->drop_classifier, "sinusoidal_pos_embds", 0);
  return json_pack("{s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:f, s:f, s:i}", "hidden_size",
                   c->d_model, "num_hidden_layers", c->layers, "num_attention_heads", c->heads,
                   "intermediate_size", c->ffn_dim, "hidden_act", activation,
                   "hidden_dropout_prob", (double)c->drop_residual,
                   "attention_probs_dropout_prob", (double)c->drop_attention,
                   "classifier_dropout", (double)c->drop_classifier, "layer_norm_eps",
                   (double)c->norm_epsilon, "type_vocab_size", c->segments);
}

/* Adds the names of the labels: lines of `text`, or LABEL_0 … if it is empty. Returns false if out of
 * memory. */
static bool add_labels(json_t *root, const BertConfig *c, const char *text) {
  json_t *names = json_object(), *ids = json_object();
  bool is_complete = names && ids;
  for (int i = 0; i < c->labels && is_complete; i++) {
    char id[16], own[32];
    size_t len = strcspn(text, "\n");
    snprintf(id, sizeof id, "%d", i);
    snprintf(own, sizeof own, "LABEL_%d", i);
    json_t *name = len ? json_stringn(text, len) : json_string(own);
    is_complete = name && json_object_set(names, id, name) == 0 &&
                  json_object_set_new(ids, json_string_value(name), json_integer(i)) == 0;
    json_decref(name);
    text += len + (text[len] == '\n');
  }
  is_complete = is_complete && json_object_set(root, "id2label", names) == 0 &&
                json_object_set(root, "label2id", ids) == 0;
  json_decref(names);
  json_decref(ids);
  return is_complete;
}

static Err read_file(const Export *e, const char *name, Str *text) {
  char path[FILE_PATH_MAX];
  if (!export_has_file(e, name)) return ERR_OK;
  TRY(file_join(path, e->dir, name));
  return place_read_all(path, STORE_FILE_LIMIT, text);
}

/* Returns the id of [PAD], the number of its line in vocab.txt; -1 if there is none. */
static int find_pad(const char *text) {
  static const char pad[] = "[PAD]";
  for (int id = 0; *text; id++) {
    size_t len = strcspn(text, "\r\n");
    if (len == strlen(pad) && strncmp(text, pad, len) == 0) return id;
    text += strcspn(text, "\n");
    text += *text == '\n';
  }
  return -1;
}

static const char *get_class(const BertConfig *c) {
  if (bert_is_classifier(c)) return "ForSequenceClassification";
  return c->head == BERT_HEAD_MLM ? "ForMaskedLM" : "Model";
}

/* Returns the id for padding of a model whose vocabulary has it under `pad`; -1: has none. */
static int find_pad_id(const BertConfig *c, int pad) {
  if (c->position_offset) return c->position_offset - 1; /* RoBERTa: see shift_positions */
  return pad < 0 ? 0 : pad;
}

static json_t *print_config(const BertConfig *c, int pad, const char *labels) {
  static const char *const problem[] = {[BERT_HEAD_SOFTMAX] = "single_label_classification",
                                        [BERT_HEAD_SIGMOID] = "multi_label_classification",
                                        [BERT_HEAD_SQUARE] = "regression"};
  HfBertForm form = find_form(c);
  char class[64];
  snprintf(class, sizeof class, "%s%s", class_name[form], get_class(c));
  json_t *root = json_pack("{s:[s], s:s, s:s, s:i, s:i, s:i, s:b}", "architectures", class,
                           "model_type", hf_bert_type[form], "dtype", "float32", "vocab_size",
                           c->vocab, "max_position_embeddings", c->max_positions,
                           "pad_token_id", find_pad_id(c, pad), "tie_word_embeddings", 1);
  json_t *sizes = print_sizes(c, form);
  bool is_complete = root && sizes && json_object_update(root, sizes) == 0;
  json_decref(sizes);
  if (is_complete && bert_is_classifier(c))
    is_complete =
        json_object_set_new(root, "problem_type", json_string(problem[c->head])) == 0 &&
        add_labels(root, c, labels);
  if (is_complete) return root;
  json_decref(root);
  return NULL;
}

static Err write_text(const char *dir, const char *name, const Str *text) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, name));
  return file_write(path, str_text(text), text->len);
}

/* Writes a file of the byte-level BPE. */
static Err write_part(const ByteBpe *b, const char *dir, const char *name,
                      Err (*print)(const ByteBpe *b, Str *out)) {
  Str text = {0};
  Err err = print(b, &text);
  if (!err) err = write_text(dir, name, &text);
  str_free(&text);
  return err;
}

/* Adds the names of special tokens. Those that the vocabulary does not have are null: transformers would
 * add its default names with ids beyond the embedding table. */
static bool add_specials(json_t *root, const ByteBpe *b) {
  const struct {
    const char *key, *token;
    int id;
  } specials[] = {{"bos_token", "<s>", b->cls},     {"eos_token", "</s>", b->sep},
                  {"unk_token", "<unk>", b->unk},   {"sep_token", "</s>", b->sep},
                  {"pad_token", "<pad>", b->pad},   {"cls_token", "<s>", b->cls},
                  {"mask_token", "<mask>", b->mask}};
  for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
    json_t *name = specials[i].id >= 0 ? json_string(specials[i].token) : json_null();
    if (json_object_set_new(root, specials[i].key, name) != 0) return false;
  }
  return true;
}

static json_t *print_settings(const Export *e, const ByteBpe *b) {
  json_t *root = json_pack("{s:s, s:b, s:b, s:i}", "tokenizer_class", "RobertaTokenizer",
                           "add_prefix_space", byte_bpe_adds_space(b), "trim_offsets", 1,
                           "model_max_length", (int)bert_max_tokens(&e->bert));
  if (root && add_specials(root, b)) return root;
  json_decref(root);
  return NULL;
}

/* Writes the tokenizer of RoBERTa, for older and newer versions of transformers. */
static Err write_byte_bpe(const Export *e, const char *dir, const ByteBpe *b) {
  TRY(write_part(b, dir, "vocab.json", byte_bpe_print_vocab));
  TRY(write_part(b, dir, "merges.txt", byte_bpe_print_merges));
  TRY(write_part(b, dir, "tokenizer.json", byte_bpe_print));
  return export_write_json(print_settings(e, b), dir, "tokenizer_config.json");
}

/* Adds the inputs of a model with one segment: BertTokenizer would number those of a pair 0 and 1. */
static bool add_inputs(json_t *root, const BertConfig *c) {
  if (c->segments != 1) return true;
  json_t *names = json_pack("[s, s]", "input_ids", "attention_mask");
  return json_object_set_new(root, "model_input_names", names) == 0;
}

/* RobertaTokenizer does not read vocab.txt: a model of RoBERTa's form has BertTokenizer. */
static json_t *print_wordpiece(const BertConfig *c) {
  bool is_distil = find_form(c) == HF_DISTILBERT;
  json_t *root =
      json_pack("{s:s, s:b, s:b, s:b, s:i, s:s, s:s, s:s, s:s, s:s}", "tokenizer_class",
                is_distil ? "DistilBertTokenizer" : "BertTokenizer", "do_lower_case",
                c->is_lower, "strip_accents", c->strips_accents, "tokenize_chinese_chars", 1,
                "model_max_length", (int)bert_max_tokens(c), "unk_token", "[UNK]", "sep_token",
                "[SEP]", "pad_token", "[PAD]", "cls_token", "[CLS]", "mask_token", "[MASK]");
  if (root && add_inputs(root, c)) return root;
  json_decref(root);
  return NULL;
}

static Err write_wordpiece(const Export *e, const char *dir, const Str *vocab) {
  TRY(write_text(dir, "vocab.txt", vocab));
  return export_write_json(print_wordpiece(&e->bert), dir, "tokenizer_config.json");
}

/* Writes the files of the tokenizer, and sets the id for padding; -1: the vocabulary has none. */
static Err write_tokenizer(const Export *e, const char *dir, int *pad) {
  Str text = {0};
  ByteBpe b = {0};
  Err err;
  bool is_byte_bpe = export_has_file(e, "tokenizer.json");
  *pad = -1;
  TRY_DONE(read_file(e, is_byte_bpe ? "tokenizer.json" : "vocab.txt", &text));
  if (is_byte_bpe) {
    TRY_DONE(byte_bpe_read(&b, str_text(&text), text.len, e->dir));
    *pad = b.pad;
    err = write_byte_bpe(e, dir, &b);
  } else if (text.len) {
    *pad = find_pad(str_text(&text));
    err = write_wordpiece(e, dir, &text);
  } else {
    log_warn("%s has no vocabulary, so that no tokenizer is exported", e->dir);
  }
done:
  byte_bpe_close(&b);
  str_free(&text);
  return err;
}

/* RoBERTa of transformers gives a token the row pad_token_id + 1 + its position, and tokens with the id
 * pad_token_id have no position. Leaves out the first rows, which belong to no position, so that
 * pad_token_id is the id for padding of the vocabulary. */
static Err shift_positions(Export *e, int pad) {
  BertConfig *c = &e->bert;
  int unused = c->position_offset - (pad + 1); /* rows */
  if (find_form(c) != HF_ROBERTA || (pad < 0 && !export_has_file(e, "vocab.txt")))
    return ERR_OK;
  if (pad < 0 || unused < 0)
    return refuse_tokenizer(e,
                            "it is of RoBERTa's form, which needs a token for padding ([PAD]) "
                            "among the first of the vocabulary");
  c->position_offset -= unused;
  c->max_positions -= unused;
  e->bert_at.positions += (size_t)unused * (size_t)c->d_model;
  return ERR_OK;
}

Err export_write_bert(const Export *model, const char *dir) {
  Export shifted = *model, *e = &shifted;
  Str labels = {0};
  int pad;
  Err err;
  TRY_DONE(write_tokenizer(e, dir, &pad));
  TRY_DONE(shift_positions(e, pad));
  TRY_DONE(read_file(e, "labels.txt", &labels));
  TRY_DONE(
      export_write_json(print_config(&e->bert, pad, str_text(&labels)), dir, "config.json"));
  err = write_weights(e, dir);
done:
  str_free(&labels);
  return err;
}
