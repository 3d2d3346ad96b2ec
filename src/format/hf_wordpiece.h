/* The WordPiece tokenizer of a directory that Hugging Face transformers wrote: vocab.txt or, if there is
 * none, tokenizer.json, and tokenizer_config.json. The bytes are untrusted. Depends on hf_config,
 * text/bert_words, data/text_encoder. */
#ifndef FORMAT_HF_WORDPIECE_H
#define FORMAT_HF_WORDPIECE_H

#include "base/str.h"
#include "text/bert_words.h"

/* Appends the vocabulary as vocab.txt has it, and sets the rules. */
NODISCARD Err hf_read_wordpiece(const char *dir, Str *vocab, BertRules *rules);

#endif
