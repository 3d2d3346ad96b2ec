/* Encodes, cuts and joins texts. Depends on text, clean. */
#include "data/text_encoder.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/sha256.h"
#include "data/clean.h"

const char *const text_tokenizer_file[TEXT_TOKENIZERS] = {
    [TEXT_WORDPIECE] = "vocab.txt",
    [TEXT_SENTENCEPIECE] = "tokenizer.model",
    [TEXT_BYTE_BPE] = "tokenizer.json",
};

TextTokenizer text_tokenizer_kind(const char *file) {
  int kind = 0;
  while (kind < TEXT_TOKENIZERS && strcmp(text_tokenizer_file[kind], file) != 0) kind++;
  return (TextTokenizer)kind;
}

static Err open_wordpiece(TextEncoder *e, const char *path, BertRules rules) {
  Wordpiece *w = &e->wordpiece_;
  TRY(wordpiece_open(w, path, rules));
  e->type = "wordpiece";
  e->sha256 = w->sha256;
  e->vocab = w->vocab;
  e->pad = w->pad;
  e->unk = w->unk;
  e->cls = w->cls;
  e->sep = w->sep;
  e->mask = w->mask;
  return ERR_OK;
}

static Err open_sentencepiece(TextEncoder *e, const char *path) {
  Tokenizer *t = &e->sentencepiece_;
  TRY(tokenizer_open(t, path));
  if (t->bos < 0)
    return err_set(
        ERR_WORK, "%s has no piece <s>, with which every text begins; use a model that has one",
        path);
  e->type = t->type;
  e->sha256 = t->sha256;
  e->vocab = t->vocab;
  e->pad = t->pad;
  e->unk = t->unk;
  e->cls = t->bos;
  e->sep = t->eos;
  e->mask = -1;
  return ERR_OK;
}

static Err open_byte_bpe(TextEncoder *e, const char *path,
                         Err (*open)(ByteBpe *b, const char *path)) {
  ByteBpe *b = &e->byte_bpe_;
  TRY(open(b, path));
  e->type = "byte-bpe";
  e->sha256 = b->sha256;
  e->vocab = b->vocab;
  e->pad = b->pad;
  e->unk = b->unk;
  e->cls = b->cls;
  e->sep = b->sep;
  e->mask = b->mask;
  return ERR_OK;
}

Err text_encoder_open(TextEncoder *e, const char *path, TextTokenizer kind, BertRules rules) {
  *e = (TextEncoder){.kind = kind};
  Err err = kind == TEXT_WORDPIECE  ? open_wordpiece(e, path, rules)
            : kind == TEXT_BYTE_BPE ? open_byte_bpe(e, path, byte_bpe_open)
                                    : open_sentencepiece(e, path);
  if (err) text_encoder_close(e);
  return err;
}

Err text_encoder_import(TextEncoder *e, const char *path, TextTokenizer kind, BertRules rules) {
  if (kind != TEXT_BYTE_BPE) return text_encoder_open(e, path, kind, rules);
  *e = (TextEncoder){.kind = kind};
  Err err = open_byte_bpe(e, path, byte_bpe_import);
  if (err) text_encoder_close(e);
  return err;
}

/* Appends a byte-level BPE in the form of a data set. */
static Err print_byte_bpe(const char *path, Str *text) {
  ByteBpe b;
  TRY(byte_bpe_import(&b, path));
  Err err = byte_bpe_print(&b, text);
  byte_bpe_close(&b);
  return err;
}

Err text_encoder_copy(const char *path, TextTokenizer kind, const char *to) {
  Str text = {0};
  if (kind != TEXT_BYTE_BPE) return place_copy(path, to);
  Err err = print_byte_bpe(path, &text);
  if (!err) err = file_write(to, str_text(&text), text.len);
  str_free(&text);
  return err;
}

Err text_encoder_hash(const char *path, TextTokenizer kind, char hash[65]) {
  Str text = {0};
  Sha256 sha;
  if (kind != TEXT_BYTE_BPE) return place_sha256(path, hash);
  Err err = print_byte_bpe(path, &text);
  sha256_begin(&sha);
  sha256_add(&sha, str_text(&text), text.len);
  sha256_end(&sha, hash);
  str_free(&text);
  return err;
}

static bool has_capital(const char *piece) {
  if (piece[0] == '[') return false; /* [CLS] and other special pieces */
  for (; *piece; piece++)
    if (*piece >= 'A' && *piece <= 'Z') return true;
  return false;
}

Err text_encoder_find_rules(const char *path, BertRules *rules) {
  Wordpiece w;
  bool is_cased = false;
  TRY(wordpiece_open(&w, path, (BertRules){0}));
  for (int id = 0; id < w.vocab && !is_cased; id++)
    is_cased = has_capital(wordpiece_piece(&w, id));
  wordpiece_close(&w);
  *rules = (BertRules){.is_lower = !is_cased, .strips_accents = !is_cased};
  return ERR_OK;
}

void text_encoder_close(TextEncoder *e) {
  wordpiece_close(&e->wordpiece_);
  tokenizer_close(&e->sentencepiece_);
  byte_bpe_close(&e->byte_bpe_);
  *e = (TextEncoder){0};
}

const char *text_encoder_piece(const TextEncoder *e, int32_t id) {
  if (e->kind == TEXT_WORDPIECE) return wordpiece_piece(&e->wordpiece_, id);
  return e->kind == TEXT_BYTE_BPE ? byte_bpe_piece(&e->byte_bpe_, id) : NULL;
}

/* SentencePiece expects a line whose words are separated by single spaces. */
static Err encode_line(const TextEncoder *e, const TableField *text, Str *line, IdList *ids) {
  str_clear(line);
  str_addn(line, text->text, text->len);
  TRY(str_check(line));
  if (line->len == 0) return ERR_OK;
  CleanLine clean = clean_squeeze(line->s, line->len, line->s);
  return tokenizer_encode(&e->sentencepiece_, line->s, clean.len, ids);
}

static Err encode_part(const TextEncoder *e, const TableField *text, Str *line, IdList *ids) {
  if (e->kind == TEXT_WORDPIECE)
    return wordpiece_encode(&e->wordpiece_, text->text, text->len, ids);
  if (e->kind == TEXT_BYTE_BPE)
    return byte_bpe_encode(&e->byte_bpe_, text->text, text->len, ids);
  return encode_line(e, text, line, ids);
}

/* Computes how many tokens of each text stay if both together may have at most `most`. */
static void cut_pair(size_t len[2], size_t most) {
  int shorter = len[1] < len[0];
  size_t half = most / 2;
  if (len[0] + len[1] <= most) return;
  if (len[shorter] <= half) {
    len[!shorter] = most - len[shorter];
  } else {
    len[shorter] = half;
    len[!shorter] = most - half;
  }
}

static void add_ids(IdList *to, const int32_t *id, size_t n) {
  if (n) memcpy(to->id + to->len, id, n * sizeof *id);
  to->len += n;
}

Err text_encode(const TextEncoder *e, const TableField *text, size_t texts, uint32_t max_tokens,
                EncodedText *out) {
  size_t between = e->kind == TEXT_BYTE_BPE ? texts - 1 : 0; /* RoBERTa has </s> </s> */
  size_t len[2] = {0}, own = 1 + texts + between; /* [CLS] and a [SEP] for each text */
  for (size_t i = 0; i < texts; i++) {
    IdList *part = &out->part_[i];
    part->len = 0;
    TRY(encode_part(e, &text[i], &out->squeezed_, part));
    len[i] = part->len;
  }
  size_t all = len[0] + len[1], most = max_tokens > own ? max_tokens - own : 0;
  if (texts == 2)
    cut_pair(len, most);
  else if (len[0] > most)
    len[0] = most;
  out->is_cut = len[0] + len[1] < all;
  out->is_empty = all == 0;
  out->first = (uint32_t)len[0] + 2;
  out->ids.len = 0;
  TRY(mem_grow(&out->ids.id, &out->ids.cap, len[0] + len[1] + own, sizeof *out->ids.id));
  add_ids(&out->ids, (const int32_t[]){e->cls}, 1);
  for (size_t i = 0; i < texts; i++) {
    if (i) add_ids(&out->ids, (const int32_t[]){e->sep}, between);
    add_ids(&out->ids, out->part_[i].id, len[i]);
    add_ids(&out->ids, (const int32_t[]){e->sep}, 1);
  }
  return ERR_OK;
}

void encoded_text_free(EncodedText *t) {
  ids_free(&t->ids);
  for (int i = 0; i < 2; i++) ids_free(&t->part_[i]);
  str_free(&t->squeezed_);
}
