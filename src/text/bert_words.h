/* Text to words, as BERT's tokenizer splits it before words are divided into pieces. Depends on
 * base. */
#ifndef TEXT_BERT_WORDS_H
#define TEXT_BERT_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct {
  bool is_lower;       /* letters become lower case (bert-base-uncased) */
  bool strips_accents; /* "é" becomes "e"; by default the same as is_lower */
} BertRules;

/* Fails if the program was built without what the rules need. */
NODISCARD Err bert_check_rules(BertRules rules);

/* Receives one word: `len` bytes of UTF-8, `chars` characters. */
typedef Err (*BertTakeWord)(void *context, const char *word, size_t len, size_t chars);

/* Set rules, take and context; the rest is zero at first. */
typedef struct {
  BertRules rules;
  BertTakeWord take;
  void *context;
  /* Private to bert_words.c: */
  uint32_t *word; /* code points of the current word */
  size_t chars, capacity;
  Str bytes; /* the current word in UTF-8 */
} BertSplitter;

/* Passes the words of the text to `take`. Bytes that are not UTF-8 are removed. */
NODISCARD Err bert_split(BertSplitter *s, const char *text, size_t len);
void bert_splitter_free(BertSplitter *s);

#endif
