/* Classes of characters as BERT's tokenizer distinguishes them. They differ from those of the current
 * Unicode version, because BERT's tokenizers use older tables. Depends on nothing. */
#ifndef TEXT_BERT_CHARS_H
#define TEXT_BERT_CHARS_H

#include <stdbool.h>
#include <stdint.h>

/* Control and format characters, private use, and U+FFFD: removed before anything else. */
bool bert_is_removed(uint32_t code);
/* White space, which separates words. */
bool bert_is_space(uint32_t code);
/* Chinese characters; each is a word of its own. Japanese and Korean letters are not in this class. */
bool bert_is_cjk(uint32_t code);
/* Punctuation and all ASCII symbols; each is a word of its own. */
bool bert_is_punctuation(uint32_t code);
/* Combining marks (accents), which an uncased tokenizer removes after decomposition. */
bool bert_is_mark(uint32_t code);

#endif
