/* Cleans text and splits it into words, in the order of BERT's tokenizer: remove control characters,
 * isolate Chinese characters, decompose and remove accents, lower case, split at white space and
 * punctuation. Depends on bert_chars, base, utf8proc. */
#include "text/bert_words.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "text/bert_chars.h"

#ifdef HAVE_UTF8PROC
#include <utf8proc.h>
#endif

#define MOST_PARTS 32 /* characters into which Unicode decomposes one; at most 4 so far */

Err bert_check_rules(BertRules rules) {
#ifndef HAVE_UTF8PROC
  if (rules.is_lower || rules.strips_accents)
    return err_set(
        ERR_WORK,
        "an uncased tokenizer needs Unicode tables, and this trireme was built without "
        "utf8proc; install libutf8proc-dev and build it again");
#endif
  (void)rules;
  return ERR_OK;
}

void bert_splitter_free(BertSplitter *s) {
  mem_free(s->word);
  str_free(&s->bytes);
}

static Err end_word(BertSplitter *s) {
  size_t chars = s->chars;
  s->chars = 0;
  if (chars == 0) return ERR_OK;
  str_clear(&s->bytes);
  for (size_t i = 0; i < chars; i++) {
    char utf8[4];
    str_addn(&s->bytes, utf8, utf8_encode(s->word[i], utf8));
  }
  TRY(str_check(&s->bytes));
  return s->take(s->context, s->bytes.s, s->bytes.len, chars);
}

static int combining_class(uint32_t code) {
#ifdef HAVE_UTF8PROC
  return utf8proc_get_property((utf8proc_int32_t)code)->combining_class;
#else
  (void)code;
  return 0;
#endif
}

/* Appends a character to the current word. With decomposition, combining characters are kept in
 * Unicode's canonical order. */
static Err add_char(BertSplitter *s, uint32_t code) {
  TRY(mem_grow(&s->word, &s->capacity, s->chars + 1, sizeof *s->word));
  size_t at = s->chars++;
  if (code >= 0x300 && s->rules.strips_accents) {
    int class = combining_class(code);
    for (; class && at && combining_class(s->word[at - 1]) > class; at--)
      s->word[at] = s->word[at - 1];
  }
  s->word[at] = code;
  return ERR_OK;
}

/* Appends a character in the case of the vocabulary; punctuation becomes a word. */
static Err add_split(BertSplitter *s, uint32_t code) {
  if (bert_is_punctuation(code)) {
    TRY(end_word(s));
    TRY(add_char(s, code));
    return end_word(s);
  }
  return add_char(s, code);
}

#ifdef HAVE_UTF8PROC
static Err add_lower(BertSplitter *s, uint32_t code) {
  if (!s->rules.is_lower) return add_split(s, code);
  /* The only letter whose lower case has two characters: I with a dot. */
  if (code == 0x130) {
    TRY(add_split(s, 'i'));
    return add_split(s, 0x307);
  }
  return add_split(s, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
}

/* Decomposes the character (NFD), removes accents, and changes the case, in this order. */
static Err add_normalized(BertSplitter *s, uint32_t code) {
  utf8proc_int32_t part[MOST_PARTS];
  int boundary = 0;
  if (!s->rules.strips_accents) return add_lower(s, code);
  utf8proc_ssize_t parts = utf8proc_decompose_char((utf8proc_int32_t)code, part, MOST_PARTS,
                                                   UTF8PROC_DECOMPOSE, &boundary);
  if (parts < 1 || parts > MOST_PARTS) return add_lower(s, code);
  for (utf8proc_ssize_t i = 0; i < parts; i++)
    if (!bert_is_mark((uint32_t)part[i])) TRY(add_lower(s, (uint32_t)part[i]));
  return ERR_OK;
}
#else
static Err add_normalized(BertSplitter *s, uint32_t code) {
  return add_split(s, code);
}
#endif

static Err take_char(BertSplitter *s, uint32_t code) {
  if (code < 0x80 && code > ' ' && code != 0x7f) {
    bool is_upper = code >= 'A' && code <= 'Z';
    return add_split(s, is_upper && s->rules.is_lower ? code + 32 : code);
  }
  if (bert_is_removed(code)) return ERR_OK;
  if (bert_is_space(code)) return end_word(s);
  if (!bert_is_cjk(code)) return add_normalized(s, code);
  TRY(end_word(s));
  TRY(add_normalized(s, code));
  return end_word(s);
}

Err bert_split(BertSplitter *s, const char *text, size_t len) {
  const char *end = text + len;
  uint32_t code;
  for (const char *at = text; at < end;) {
    size_t n = utf8_decode(at, end, &code);
    if (n) TRY(take_char(s, code));
    at += n ? n : 1;
  }
  return end_word(s);
}
