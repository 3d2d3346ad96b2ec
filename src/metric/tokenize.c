/* The rules of the BLEU tokenizers. sacreBLEU applies them as successive substitutions that
 * insert spaces. This implementation does not change the line; an array stores the positions of
 * the spaces. Depends on metric/unicode. */
#include "metric/tokenize.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Character classes that the rules distinguish. */
enum {
  SPACE = 1,
  DIGIT = 2, /* digits 0 to 9; for intl all numbers */
  MARK = 4,  /* full stop and comma; for intl all punctuation */
  ALONE = 8, /* a character that is always a token of its own */
  DASH = 16,
};

/* Returns the class of an ASCII character for 13a; the ranges are those of mteval-v13a.pl. */
static uint8_t class_13a(uint32_t c) {
  if (c >= '0' && c <= '9') return DIGIT;
  if (c == '.' || c == ',') return MARK;
  if (c == '-') return DASH;
  if (metric_is_space(c)) return SPACE;
  if ((c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
      (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/') {
    return ALONE;
  }
  return 0;
}

static uint8_t class_intl(uint32_t c) {
  static const uint8_t classes[] = {[METRIC_OTHER] = 0,
                                    [METRIC_NUMBER] = DIGIT,
                                    [METRIC_PUNCTUATION] = MARK,
                                    [METRIC_SYMBOL] = ALONE};
  return metric_is_space(c) ? SPACE : classes[metric_class(c)];
}

static uint8_t class_of(MetricTokenizer tokenizer, uint32_t c) {
  switch (tokenizer) {
    case METRIC_13A:
      return class_13a(c);
    case METRIC_INTL:
      return class_intl(c);
    case METRIC_CHAR:
      return metric_is_space(c) ? SPACE : ALONE;
    case METRIC_NONE:
      break;
  }
  return metric_is_space(c) ? SPACE : 0;
}

/* Replaces every `from` by `to` in place; `to` must not be longer than `from`. */
static void replace_all(MetricBuffer *text, const char *from, const char *to) {
  size_t from_len = strlen(from), to_len = strlen(to);
  char *end = text->s + text->len, *write = text->s;
  for (char *read = text->s; read < end;) {
    char *found = memmem(read, (size_t)(end - read), from, from_len);
    size_t keep = (size_t)((found ? found : end) - read);
    memmove(write, read, keep);
    write += keep;
    read += keep;
    if (!found) break;
    memcpy(write, to, to_len);
    write += to_len;
    read += from_len;
  }
  text->len = (size_t)(write - text->s);
}

/* Removes SGML remnants (entities, <skipped>), the first step of 13a. Most lines have none. */
static Err unescape_sgml(MetricTokens *t, MetricText *line) {
  bool entity = memchr(line->s, '&', line->len) != NULL;
  if (!entity && !memchr(line->s, '\n', line->len) &&
      !memmem(line->s, line->len, "<skipped>", 9)) {
    return ERR_OK;
  }
  TRY(mem_grow(&t->text.s, &t->text.cap, line->len + 1, 1));
  memcpy(t->text.s, line->s, line->len);
  t->text.len = line->len;
  replace_all(&t->text, "<skipped>", "");
  replace_all(&t->text, "-\n", "");
  replace_all(&t->text, "\n", " ");
  if (memchr(t->text.s, '&', t->text.len)) {
    replace_all(&t->text, "&quot;", "\"");
    replace_all(&t->text, "&amp;", "&");
    replace_all(&t->text, "&lt;", "<");
    replace_all(&t->text, "&gt;", ">");
  }
  *line = (MetricText){t->text.s, t->text.len};
  return ERR_OK;
}

/* The rules that insert a space before a character. A rule sees only the spaces of earlier
 * rules. */
enum { GAP_ALONE = 1, GAP_AFTER_OTHER = 2, GAP_BEFORE_OTHER = 4, GAP_DASH = 8 };

/* Separates a mark that follows anything but a digit, with spaces on both sides. Matches do not
 * overlap: in "a..." the first mark matches together with the a, the third together with the
 * second. */
static void cut_after_other(MetricTokens *t, size_t n) {
  bool taken = false; /* character i - 1 is a mark that has matched */
  for (size_t i = 0; i < n; i++) {
    bool match = false;
    if (t->class[i] & MARK) {
      bool space_before = t->gap[i] & GAP_ALONE;
      match = space_before || (i > 0 && !taken && !(t->class[i - 1] & DIGIT));
    }
    if (match) {
      t->gap[i] |= GAP_AFTER_OTHER;
      t->gap[i + 1] |= GAP_AFTER_OTHER;
    }
    taken = match;
  }
}

/* Separates a mark that precedes anything but a digit. Two adjacent marks already have a space
 * between them, so matches cannot overlap. */
static void cut_before_other(MetricTokens *t, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (!(t->class[i] & MARK)) continue;
    bool space_after = t->gap[i + 1] & (GAP_ALONE | GAP_AFTER_OTHER);
    bool match = space_after || (i + 1 < n && !(t->class[i + 1] & DIGIT));
    if (!match) continue;
    t->gap[i] |= GAP_BEFORE_OTHER;
    t->gap[i + 1] |= GAP_BEFORE_OTHER;
  }
}

static void cut_dash_after_digit(MetricTokens *t, size_t n) {
  for (size_t i = 0; i + 1 < n; i++) {
    if (!(t->class[i] & DIGIT) || !(t->class[i + 1] & DASH)) continue;
    t->gap[i + 1] |= GAP_DASH;
    t->gap[i + 2] |= GAP_DASH;
  }
}

/* Stores the characters, their classes and their byte offsets, plus the offset of the end. */
static Err classify_characters(MetricTokens *t, MetricTokenizer tokenizer, MetricText line,
                               size_t *chars) {
  if (line.len > UINT32_MAX - 8) {
    return err_set(ERR_WORK, "cannot score a line of %zu bytes; split it", line.len);
  }
  TRY(mem_grow(&t->class, &t->class_cap, line.len + 1, sizeof *t->class));
  TRY(mem_grow(&t->gap, &t->gap_cap, line.len + 1, sizeof *t->gap));
  TRY(mem_grow(&t->at, &t->at_cap, line.len + 1, sizeof *t->at));
  const char *end = line.s + line.len;
  size_t n = 0;
  for (const char *at = line.s; at < end; n++) {
    uint32_t code;
    size_t bytes = utf8_decode(at, end, &code);
    if (bytes == 0)
      return err_set(ERR_WORK,
                     "cannot score a line that is not valid UTF-8; convert the file, for "
                     "example with iconv");
    t->class[n] = class_of(tokenizer, code);
    t->at[n] = (uint32_t)(at - line.s);
    at += bytes;
  }
  t->at[n] = (uint32_t)line.len;
  memset(t->gap, 0, n + 1);
  *chars = n;
  return ERR_OK;
}

Err metric_tokenize(MetricTokens *t, MetricTokenizer tokenizer, MetricText line) {
  size_t n = 0;
  t->tokens = 0;
  if (line.len == 0) return ERR_OK;
  if (tokenizer == METRIC_13A) TRY(unescape_sgml(t, &line));
  TRY(classify_characters(t, tokenizer, line, &n));
  for (size_t i = 0; i < n; i++) {
    if (t->class[i] & ALONE) t->gap[i] = t->gap[i + 1] = GAP_ALONE;
  }
  if (tokenizer == METRIC_13A)
    t->gap[0] = t->gap[n] = GAP_ALONE; /* 13a adds a space at both ends of the line. */
  if (tokenizer == METRIC_13A || tokenizer == METRIC_INTL) {
    cut_after_other(t, n);
    cut_before_other(t, n);
  }
  if (tokenizer == METRIC_13A) cut_dash_after_digit(t, n);

  TRY(mem_grow(&t->token, &t->token_cap, n, sizeof *t->token));
  for (size_t i = 0; i < n;) {
    if (t->class[i] & SPACE) {
      i++;
      continue;
    }
    size_t first = i++;
    while (i < n && !t->gap[i] && !(t->class[i] & SPACE)) i++;
    t->token[t->tokens++] = (MetricText){line.s + t->at[first], t->at[i] - t->at[first]};
  }
  return ERR_OK;
}

void metric_tokens_free(MetricTokens *t) {
  mem_free(t->token);
  mem_free(t->class);
  mem_free(t->gap);
  mem_free(t->at);
  mem_free(t->text.s);
}
