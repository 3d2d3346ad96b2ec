/* Text to words, as GPT-2 and RoBERTa split it before words are divided into pieces:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A space belongs to the word that follows it. No byte of the text is left out. Depends on base. */
#ifndef TEXT_BYTE_WORDS_H
#define TEXT_BYTE_WORDS_H

#include <stddef.h>

/* Returns the end of the word that begins at `at`, which is before `end`. The text is valid UTF-8. */
const char *byte_word_end(const char *at, const char *end);

#endif
