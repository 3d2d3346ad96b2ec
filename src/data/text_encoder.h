/* Texts to ids as BERT reads them: [CLS] a [SEP], or [CLS] a [SEP] b [SEP] for a pair. The tokenizer is
 * a WordPiece vocabulary, a SentencePiece model whose <s> is [CLS] and whose </s> is [SEP], or the
 * byte-level BPE of RoBERTa: <s> a </s>, or <s> a </s> </s> b </s>. Depends on text, clean. */
#ifndef DATA_TEXT_ENCODER_H
#define DATA_TEXT_ENCODER_H

#include "data/table.h"
#include "text/byte_bpe.h"
#include "text/tokenizer.h"
#include "text/wordpiece.h"

typedef enum {
  TEXT_WORDPIECE,
  TEXT_SENTENCEPIECE,
  TEXT_BYTE_BPE,
  TEXT_TOKENIZERS
} TextTokenizer;
extern const char
    *const text_tokenizer_file[TEXT_TOKENIZERS]; /* name in data sets and models */
/* Returns the kind of tokenizer that has a file of this name, TEXT_TOKENIZERS if none has. */
TextTokenizer text_tokenizer_kind(const char *file);

typedef struct {
  TextTokenizer kind;
  const char *type;   /* "wordpiece", "byte-bpe", or the model type: "bpe", "unigram", … */
  const char *sha256; /* SHA-256 of the file */
  int vocab;          /* number of pieces */
  int pad, unk, cls, sep, mask; /* ids; pad, unk and mask are -1 if there is no such piece */
  Wordpiece wordpiece_;
  Tokenizer sentencepiece_;
  ByteBpe byte_bpe_;
} TextEncoder;

/* Opens the file of a data set or model. `rules` are those of WordPiece. The encoder must not be moved or
 * copied while it is open. */
NODISCARD Err text_encoder_open(TextEncoder *e, const char *path, TextTokenizer kind,
                                BertRules rules);
/* Opens a tokenizer as its makers store it: as text_encoder_open, but that of a byte-level BPE may have
 * several files (byte_bpe_import). text_encoder_copy writes it to `to` as a data set has it, and
 * text_encoder_hash computes the SHA-256 of that file. */
NODISCARD Err text_encoder_import(TextEncoder *e, const char *path, TextTokenizer kind,
                                  BertRules rules);
NODISCARD Err text_encoder_copy(const char *path, TextTokenizer kind, const char *to);
NODISCARD Err text_encoder_hash(const char *path, TextTokenizer kind, char hash[65]);
/* Sets the rules that a WordPiece vocabulary was made for: one without capital letters is for text in
 * lower case without accents (uncased). */
NODISCARD Err text_encoder_find_rules(const char *path, BertRules *rules);
void text_encoder_close(TextEncoder *e);
/* Returns the piece of an id; NULL if there is none, and for SentencePiece, whose pieces are decoded
 * together. */
const char *text_encoder_piece(const TextEncoder *e, int32_t id);

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
 * text of a pair, as truncation "longest_first" of Hugging Face does. Any number of threads may call
 * it, each with its own `out`. */
NODISCARD Err text_encode(const TextEncoder *e, const TableField *text, size_t texts,
                          uint32_t max_tokens, EncodedText *out);
void encoded_text_free(EncodedText *t);

#endif
