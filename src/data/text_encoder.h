/* Texts to ids as BERT reads them: [CLS] a [SEP], or [CLS] a [SEP] b [SEP] for a pair. The tokenizer is
 * a WordPiece vocabulary, or a SentencePiece model whose <s> is [CLS] and whose </s> is [SEP]. Depends
 * on text, clean. */
#ifndef DATA_TEXT_ENCODER_H
#define DATA_TEXT_ENCODER_H

#include "data/table.h"
#include "text/tokenizer.h"
#include "text/wordpiece.h"

typedef enum { TEXT_WORDPIECE, TEXT_SENTENCEPIECE } TextTokenizer;
extern const char
    *const text_tokenizer_file[2]; /* name in data sets and models, by TextTokenizer */

typedef struct {
  TextTokenizer kind;
  const char *type;             /* "wordpiece", or the model type: "bpe", "unigram", … */
  const char *sha256;           /* SHA-256 of the file */
  int vocab;                    /* number of pieces */
  int pad, unk, cls, sep, mask; /* ids; pad, unk and mask are -1 if there is no such piece */
  Wordpiece wordpiece_;
  Tokenizer sentencepiece_;
} TextEncoder;

/* Opens a vocab.txt or .model. `rules` are those of WordPiece. The encoder must not be moved or copied
 * while it is open. */
NODISCARD Err text_encoder_open(TextEncoder *e, const char *path, TextTokenizer kind,
                                BertRules rules);
/* Sets the rules that a WordPiece vocabulary was made for: one without capital letters is for text in
 * lower case without accents (uncased). */
NODISCARD Err text_encoder_find_rules(const char *path, BertRules *rules);
void text_encoder_close(TextEncoder *e);

/* Result and working memory of text_encode; zero at first. */
typedef struct {
  IdList ids;     /* with [CLS] and [SEP] */
  uint32_t first; /* tokens of the first text, with [CLS] and its [SEP] */
  bool is_cut;    /* tokens were removed */
  bool is_empty;  /* no text has a token */
  IdList part_[2];
  Str squeezed_;
} EncodedText;

/* Encodes one text or a pair; replaces the contents of `out`. If there are more than max_tokens tokens,
 * with [CLS] and [SEP], tokens are removed from the end of the text, and from that of the longer
 * text of a pair, as truncation "longest_first" of Hugging Face does. Any number of threads may call it, each with its own
 * `out`. */
NODISCARD Err text_encode(const TextEncoder *e, const TableField *text, size_t texts,
                          uint32_t max_tokens, EncodedText *out);
void encoded_text_free(EncodedText *t);

#endif
