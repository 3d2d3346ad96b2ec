/* Byte-pair encoding over words, with a heap of pairs by count. The heap may contain outdated counts,
 * never too low ones: an entry is corrected when it reaches the top. Depends on bert_words, stringmap,
 * base. */
#include "text/wordpiece_train.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/stringmap.h"

#define MOST_CHARS 100 /* longer words are [UNK] for the tokenizer */

static const char *const specials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
enum { SPECIALS = sizeof specials / sizeof *specials };

typedef struct {
  uint32_t left, right; /* pieces */
  uint64_t count;       /* occurrences in the text */
  uint64_t queued;      /* count of its entry in the heap; 0: none */
  uint32_t *word;       /* words that contain the pair, or did so earlier; may repeat */
  size_t words, capacity;
  bool is_touched; /* listed in Trainer.touched */
} Pair;

typedef struct {
  uint64_t count;
  uint32_t pair;
} HeapEntry;

typedef struct {
  uint32_t code;
  uint64_t count;
} Char;

typedef struct {
  const WordpieceTraining *spec;
  StringMap words;
  uint64_t *word_count; /* (words) */
  size_t word_capacity;
  uint32_t *piece;    /* pieces of all words, at most one per character */
  size_t *word_at;    /* (words) first piece of the word */
  uint8_t *word_len;  /* (words) number of pieces; 0: the word is left out */
  StringMap pieces;   /* the vocabulary */
  StringMap pair_key; /* bytes of (left, right) to the number of the pair */
  Pair *pair;
  size_t pairs, pair_capacity;
  HeapEntry *heap;
  size_t heap_len, heap_capacity;
  uint32_t *touched; /* pairs whose count a join has raised */
  size_t touches, touched_capacity;
} Trainer;

/* --- words and characters --- */

static Err count_word(void *context, const char *word, size_t len, size_t chars) {
  Trainer *t = context;
  uint32_t n;
  if (chars > MOST_CHARS) return ERR_OK;
  size_t before = t->words.count;
  TRY(stringmap_add(&t->words, word, len, &n));
  TRY(mem_grow(&t->word_count, &t->word_capacity, t->words.count, sizeof *t->word_count));
  if (t->words.count > before) t->word_count[n] = 0;
  t->word_count[n]++;
  return ERR_OK;
}

static int by_code(const void *a, const void *b) {
  uint32_t x = ((const Char *)a)->code, y = ((const Char *)b)->code;
  return (x > y) - (x < y);
}
static int by_count(const void *a, const void *b) {
  uint64_t x = ((const Char *)a)->count, y = ((const Char *)b)->count;
  return x == y ? by_code(a, b) : (x < y) - (x > y);
}

/* Sets *chars to the most frequent characters, in the order of their codes. */
static Err choose_alphabet(const Trainer *t, Char **chars, size_t *count) {
  enum { CODES = 0x110000 };
  uint64_t *total;
  size_t capacity = 0;
  *chars = NULL;
  *count = 0;
  TRY(mem_alloc(&total, CODES, sizeof *total));
  for (uint32_t w = 0; w < t->words.count; w++) {
    const char *at = stringmap_text(&t->words, w), *end = at + t->words.entry[w].len;
    for (uint32_t code; at < end; at += utf8_decode(at, end, &code)) {
      utf8_decode(at, end, &code);
      total[code] += t->word_count[w];
    }
  }
  Err err = ERR_OK;
  for (uint32_t code = 0; code < CODES && !err; code++) {
    if (!total[code]) continue;
    err = mem_grow(chars, &capacity, *count + 1, sizeof **chars);
    if (!err) (*chars)[(*count)++] = (Char){.code = code, .count = total[code]};
  }
  mem_free(total);
  if (err || *count <= t->spec->alphabet) return err;
  qsort(*chars, *count, sizeof **chars, by_count);
  *count = t->spec->alphabet;
  qsort(*chars, *count, sizeof **chars, by_code);
  return ERR_OK;
}

static bool is_in_alphabet(const Char *chars, size_t count, uint32_t code) {
  Char key = {.code = code};
  return count && bsearch(&key, chars, count, sizeof key, by_code) != NULL;
}

/* Adds the piece of a character, with "##" if it continues a word. */
static Err add_char(StringMap *pieces, const char *utf8, size_t len, bool continues,
                    uint32_t *number) {
  char name[8] = "##";
  memcpy(name + 2, utf8, len);
  return stringmap_add(pieces, continues ? name : name + 2, continues ? len + 2 : len, number);
}

/* Divides a word into the pieces of its characters; a word with another character is left out. */
static Err divide_word(Trainer *t, uint32_t w, const Char *chars, size_t count) {
  const char *begin = stringmap_text(&t->words, w), *end = begin + t->words.entry[w].len;
  uint32_t code, *piece = t->piece + t->word_at[w];
  size_t n;
  for (const char *at = begin; at < end; at += n) {
    n = utf8_decode(at, end, &code);
    if (!is_in_alphabet(chars, count, code)) return ERR_OK;
  }
  uint8_t len = 0;
  for (const char *at = begin; at < end; at += n) {
    n = utf8_decode(at, end, &code);
    TRY(add_char(&t->pieces, at, n, at > begin, &piece[len++]));
  }
  t->word_len[w] = len;
  return ERR_OK;
}

/* Adds the special pieces and those of the characters that occur, in the order of their codes: first
 * all that begin a word, then all that continue one. */
static Err begin_vocabulary(Trainer *t, const Char *chars, size_t count) {
  uint32_t ignored;
  uint8_t *places; /* by code: 1 begins a word, 2 continues one */
  TRY(mem_alloc(&places, 0x110000, 1));
  for (uint32_t w = 0; w < t->words.count; w++) {
    const char *begin = stringmap_text(&t->words, w), *end = begin + t->words.entry[w].len;
    uint32_t code;
    for (const char *at = begin; at < end; at += utf8_decode(at, end, &code)) {
      utf8_decode(at, end, &code);
      places[code] |= at == begin ? 1 : 2;
    }
  }
  Err err = ERR_OK;
  for (int i = 0; i < SPECIALS && !err; i++)
    err = stringmap_add(&t->pieces, specials[i], strlen(specials[i]), &ignored);
  for (int place = 1; place <= 2; place++)
    for (size_t c = 0; c < count && !err; c++) {
      char utf8[4];
      size_t n = utf8_encode(chars[c].code, utf8);
      if (places[chars[c].code] & place)
        err = add_char(&t->pieces, utf8, n, place == 2, &ignored);
    }
  mem_free(places);
  return err;
}

static Err divide_words(Trainer *t) {
  Char *chars;
  size_t count, total = 0, words = t->words.count;
  Err err = choose_alphabet(t, &chars, &count);
  if (!err) err = begin_vocabulary(t, chars, count);
  if (!err && t->pieces.count > t->spec->vocab_size)
    err = err_set(
        ERR_USAGE,
        "--vocab-size %zu is too small: the text has %zu different characters, which need "
        "%zu pieces; use a larger vocabulary",
        t->spec->vocab_size, count, t->pieces.count);
  if (!err) err = mem_alloc(&t->word_at, words + 1, sizeof *t->word_at);
  if (!err) err = mem_alloc(&t->word_len, words + 1, sizeof *t->word_len);
  for (size_t w = 0; w < words && !err; w++) {
    t->word_at[w] = total;
    total += t->words.entry[w].len; /* bytes: at least the number of characters */
  }
  if (!err) err = mem_alloc(&t->piece, total + 1, sizeof *t->piece);
  for (uint32_t w = 0; w < words && !err; w++) err = divide_word(t, w, chars, count);
  mem_free(chars);
  return err;
}

/* --- pairs --- */

/* Returns true if a is joined before b: it is more frequent or, if equally frequent, has older pieces. */
static bool is_before(const Trainer *t, HeapEntry a, HeapEntry b) {
  const Pair *x = &t->pair[a.pair], *y = &t->pair[b.pair];
  if (a.count != b.count) return a.count > b.count;
  return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static Err push_pair(Trainer *t, uint32_t pair) {
  TRY(mem_grow(&t->heap, &t->heap_capacity, t->heap_len + 1, sizeof *t->heap));
  HeapEntry e = {.count = t->pair[pair].count, .pair = pair};
  size_t i = t->heap_len++;
  for (; i && is_before(t, e, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
    t->heap[i] = t->heap[(i - 1) / 2];
  t->heap[i] = e;
  t->pair[pair].queued = e.count;
  return ERR_OK;
}

static HeapEntry pop_pair(Trainer *t) {
  HeapEntry top = t->heap[0], last = t->heap[--t->heap_len];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < t->heap_len; i = child) {
    if (child + 1 < t->heap_len && is_before(t, t->heap[child + 1], t->heap[child])) child++;
    if (!is_before(t, t->heap[child], last)) break;
    t->heap[i] = t->heap[child];
  }
  if (t->heap_len) t->heap[i] = last;
  return top;
}

static Err get_pair(Trainer *t, uint32_t left, uint32_t right, Pair **pair) {
  uint32_t key[2] = {left, right}, n;
  TRY(stringmap_add(&t->pair_key, (const char *)key, sizeof key, &n));
  if (n == t->pairs) {
    TRY(mem_grow(&t->pair, &t->pair_capacity, t->pairs + 1, sizeof *t->pair));
    t->pair[t->pairs++] = (Pair){.left = left, .right = right};
  }
  *pair = &t->pair[n];
  return ERR_OK;
}

/* Adds the word's pairs to the counts. */
static Err add_pairs(Trainer *t, uint32_t w) {
  const uint32_t *piece = t->piece + t->word_at[w];
  for (uint8_t i = 1; i < t->word_len[w]; i++) {
    Pair *p;
    TRY(get_pair(t, piece[i - 1], piece[i], &p));
    p->count += t->word_count[w];
    bool is_listed = p->words && p->word[p->words - 1] == w;
    if (!is_listed) {
      TRY(mem_grow(&p->word, &p->capacity, p->words + 1, sizeof *p->word));
      p->word[p->words++] = w;
    }
    if (p->is_touched) continue;
    TRY(mem_grow(&t->touched, &t->touched_capacity, t->touches + 1, sizeof *t->touched));
    t->touched[t->touches++] = (uint32_t)(p - t->pair);
    p->is_touched = true;
  }
  return ERR_OK;
}

static Err remove_pairs(Trainer *t, uint32_t w) {
  const uint32_t *piece = t->piece + t->word_at[w];
  for (uint8_t i = 1; i < t->word_len[w]; i++) {
    Pair *p;
    TRY(get_pair(t, piece[i - 1], piece[i], &p));
    p->count -= t->word_count[w];
  }
  return ERR_OK;
}

/* Enters the pairs whose count has risen into the heap. */
static Err push_touched(Trainer *t) {
  for (size_t i = 0; i < t->touches; i++) {
    Pair *p = &t->pair[t->touched[i]];
    p->is_touched = false;
    if (p->count > p->queued) TRY(push_pair(t, t->touched[i]));
  }
  t->touches = 0;
  return ERR_OK;
}

/* Replaces the pair by one piece in a word. */
static void join_in_word(Trainer *t, uint32_t w, uint32_t left, uint32_t right,
                         uint32_t joined) {
  uint32_t *piece = t->piece + t->word_at[w];
  uint8_t n = 0, len = t->word_len[w];
  for (uint8_t i = 0; i < len; i++) {
    bool is_pair = i + 1 < len && piece[i] == left && piece[i + 1] == right;
    piece[n++] = is_pair ? joined : piece[i];
    i += is_pair;
  }
  t->word_len[w] = n;
}

static bool has_pair(const Trainer *t, uint32_t w, uint32_t left, uint32_t right) {
  const uint32_t *piece = t->piece + t->word_at[w];
  for (uint8_t i = 1; i < t->word_len[w]; i++)
    if (piece[i - 1] == left && piece[i] == right) return true;
  return false;
}

/* Adds the piece that joins the two to the vocabulary. */
static Err add_joined(Trainer *t, uint32_t left, uint32_t right, uint32_t *joined) {
  Str name = {0};
  str_add(&name, stringmap_text(&t->pieces, left));
  str_add(&name,
          stringmap_text(&t->pieces, right) + 2); /* the right one always continues a word */
  Err err = str_check(&name);
  if (!err) err = stringmap_add(&t->pieces, name.s, name.len, joined);
  str_free(&name);
  return err;
}

static Err join_pair(Trainer *t, uint32_t number) {
  Pair pair = t->pair[number];
  uint32_t joined;
  TRY(add_joined(t, pair.left, pair.right, &joined));
  for (size_t i = 0; i < pair.words; i++) {
    uint32_t w = pair.word[i];
    if (!has_pair(t, w, pair.left, pair.right)) continue;
    TRY(remove_pairs(t, w));
    join_in_word(t, w, pair.left, pair.right, joined);
    TRY(add_pairs(t, w));
  }
  return push_touched(t);
}

static Err join_pairs(Trainer *t) {
  for (uint32_t w = 0; w < t->words.count; w++) TRY(add_pairs(t, w));
  TRY(push_touched(t));
  while (t->heap_len && t->pieces.count < t->spec->vocab_size) {
    HeapEntry top = pop_pair(t);
    Pair *p = &t->pair[top.pair];
    if (top.count != p->queued) continue; /* a later entry of the pair has a higher count */
    p->queued = 0;
    if (p->count < t->spec->min_count) continue;
    TRY(top.count == p->count ? join_pair(t, top.pair) : push_pair(t, top.pair));
  }
  return ERR_OK;
}

/* --- */

static Err write_vocabulary(const Trainer *t, const char *path) {
  Str out = {0};
  for (uint32_t i = 0; i < t->pieces.count; i++) {
    str_add(&out, stringmap_text(&t->pieces, i));
    str_addc(&out, '\n');
  }
  Err err = str_check(&out);
  if (!err) err = file_write(path, out.s, out.len);
  str_free(&out);
  return err;
}

static void free_trainer(Trainer *t) {
  for (size_t i = 0; i < t->pairs; i++) mem_free(t->pair[i].word);
  stringmap_free(&t->words);
  stringmap_free(&t->pieces);
  stringmap_free(&t->pair_key);
  mem_free(t->word_count);
  mem_free(t->word_at);
  mem_free(t->word_len);
  mem_free(t->piece);
  mem_free(t->pair);
  mem_free(t->heap);
  mem_free(t->touched);
}

Err wordpiece_train(const WordpieceTraining *spec,
                    bool (*next)(void *, const char **, size_t *), void *context,
                    const char *path, size_t *size) {
  Trainer t = {.spec = spec};
  BertSplitter splitter = {.rules = spec->rules, .take = count_word, .context = &t};
  const char *text;
  size_t len;
  Err err = bert_check_rules(spec->rules);
  while (!err && next(context, &text, &len)) err = bert_split(&splitter, text, len);
  if (!err && t.words.count == 0)
    err = err_set(ERR_WORK, "a vocabulary cannot be trained: the text has no words");
  if (!err) err = divide_words(&t);
  if (!err) err = join_pairs(&t);
  if (!err) err = write_vocabulary(&t, path);
  *size = t.pieces.count;
  free_trainer(&t);
  bert_splitter_free(&splitter);
  return err;
}
