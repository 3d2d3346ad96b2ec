/* make_classifier DIR HEAD LABELS TEXTS: makes a model directory of a small BERT model with random weights
 * from the files vocab.txt (lower case) or tokenizer.model, and labels.txt, which DIR has already. HEAD:
 * none, softmax, sigmoid, square or mlm; translator: only the model.json of a translation model. LABELS: outputs of the head. TEXTS: texts of an example, 1 or 2.
 * The weights depend on the arguments alone. Depends on model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/text_encoder.h"
#include "model/bert.h"
#include "model/presets.h"
#include "model/store.h"

#define GAIN 8 /* factor of the initial weights, so that outputs differ from text to text */

static int find_head(const char *name) {
  static const char *const names[] = {"none", "softmax", "sigmoid", "square", "mlm"};
  for (int i = 0; i < 5; i++)
    if (strcmp(names[i], name) == 0) return i;
  return -1;
}

static Err count_pieces(const char *dir, int *vocab) {
  char path[FILE_PATH_MAX];
  TextEncoder e;
  for (int kind = 0; kind < 2; kind++) {
    TRY(file_join(path, dir, text_tokenizer_file[kind]));
    if (!file_exists(path)) continue;
    TRY(text_encoder_open(&e, path, (TextTokenizer)kind, (BertRules){0}));
    *vocab = e.vocab;
    text_encoder_close(&e);
    return ERR_OK;
  }
  *vocab = 100;
  return ERR_OK;
}

static Err sum_files(const char *dir, StoreSums *sums) {
  static const char *const names[] = {"vocab.txt", "tokenizer.model", "labels.txt"};
  char path[FILE_PATH_MAX];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    FileSum sum;
    TRY(file_join(path, dir, names[i]));
    if (!file_exists(path)) continue;
    TRY(filesum_file(path, &sum));
    store_add_file(sums, names[i], sum);
  }
  return ERR_OK;
}

static Err save_weights(const ModelConfig *config, const char *dir, FileSum *sum) {
  char path[FILE_PATH_MAX];
  Params params;
  float *w = NULL;
  Err err;
  TRY(bert_family.lay_out_params(&params, config));
  TRY_DONE(mem_alloc(&w, params.padded, sizeof *w));
  params_init(&params, 7, w);
  for (size_t i = 0; i < params.count; i++)
    for (size_t k = 0;
         params.param[i].cols > 1 && k < params.param[i].rows * params.param[i].cols; k++)
      w[params.param[i].offset + k] *= GAIN;
  TRY_DONE(file_join(path, dir, "weights.safetensors"));
  err = store_save_summed(&params, w, path, sum);
done:
  mem_free(w);
  params_free(&params);
  return err;
}

static Err make_model(const char *dir, int head, int labels, bool has_pairs) {
  StoreSums sums = {.known = true};
  BertConfig c = {0};
  TRY(bert_preset(&c, "bert-tiny"));
  c.head = (BertHead)head;
  c.labels = labels;
  c.d_model = 32;
  c.heads = 2;
  c.ffn_dim = 64;
  c.max_positions = 40;
  c.max_tokens = 32;
  c.has_pairs = has_pairs;
  c.is_lower = true;
  c.strips_accents = true;
  if (head == BERT_HEAD_MLM) c.pooler = BERT_POOLER_NONE;
  TRY(count_pieces(dir, &c.vocab));
  ModelConfig config = bert_model_config(&c);
  TRY(bert_check_config(&c));
  TRY(save_weights(&config, dir, &sums.weights));
  TRY(sum_files(dir, &sums));
  return store_save_config(&config, &sums, dir);
}

static Err make_translator(const char *dir) {
  ModelConfig config;
  TRY(presets_configure(&config, "tiny", 100));
  return store_save_config(&config, &(StoreSums){.known = true}, dir);
}

int main(int argc, char **argv) {
  bool is_translator = argc == 5 && strcmp(argv[2], "translator") == 0;
  int head = argc == 5 ? find_head(argv[2]) : -1;
  if (head < 0 && !is_translator) {
    fprintf(stderr, "usage: make_classifier DIR HEAD LABELS TEXTS\n");
    return 2;
  }
  Err err = is_translator ? make_translator(argv[1])
                          : make_model(argv[1], head, atoi(argv[3]), atoi(argv[4]) == 2);
  if (!err) return 0;
  fprintf(stderr, "%s\n", err_message());
  return 1;
}
