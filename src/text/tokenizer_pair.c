/* Two SentencePiece models with one vocabulary. Depends on sp_shim, stringmap, Jansson. */
#include "text/tokenizer_pair.h"

#include <jansson.h>
#include <string.h>

#include "base/file.h"
#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/sha256.h"
#include "text/sp_facts.h"
#include "text/sp_shim.h"
#include "text/stringmap.h"

#define NO_PIECE UINT32_MAX

struct TokenizerPair {
  SpModel *source, *target;
  StringMap pieces;
  int32_t *id; /* (pieces.count) id of each piece */
  size_t id_cap;
  uint32_t *piece; /* (vocab) number of the piece of each id; NO_PIECE: there is none */
  int vocab;
  int32_t unk;
};

/* Reads DIR/NAME and adds its hash to `sha`. */
static Err read_file(const char *dir, const char *name, Sha256 *sha, char path[FILE_PATH_MAX],
                     Str *bytes) {
  Sha256 own;
  char hex[65];
  TRY(file_join(path, dir, name));
  str_clear(bytes);
  TRY(place_read_all(path, TOKENIZER_LIMIT, bytes));
  sha256_begin(&own);
  sha256_add(&own, str_text(bytes), bytes->len);
  sha256_end(&own, hex);
  sha256_add(sha, hex, 64);
  return ERR_OK;
}

static Err open_model(SpModel **model, const char *dir, const char *name, Sha256 *sha,
                      Str *bytes) {
  char path[FILE_PATH_MAX];
  SpFacts facts; /* sp_facts checks bytes that SentencePiece would trust */
  TRY(read_file(dir, name, sha, path, bytes));
  TRY(sp_facts(&facts, str_text(bytes), bytes->len, path));
  return sp_load(model, str_text(bytes), bytes->len, path);
}

static Err add_piece(TokenizerPair *p, const char *text, const json_t *value,
                     const char *path) {
  uint32_t number;
  json_int_t id = json_integer_value(value);
  if (!json_is_integer(value) || id < 0 || id >= 1 << 24)
    return err_set(ERR_WORK,
                   "%s: the id of '%s' is not an integer from 0 to 16777215; copy "
                   "the model again",
                   path, text);
  TRY(stringmap_add(&p->pieces, text, strlen(text), &number));
  TRY(mem_grow(&p->id, &p->id_cap, (size_t)number + 1, sizeof *p->id));
  p->id[number] = (int32_t)id;
  if (p->vocab <= id) p->vocab = (int)id + 1;
  return ERR_OK;
}

/* Fills in p->piece, the inverse of p->id. */
static Err invert_ids(TokenizerPair *p, const char *path) {
  /* Ids without a piece are few, so that the table is not much larger than the file. */
  if ((size_t)p->vocab > 2 * p->pieces.count + 1024)
    return err_set(ERR_WORK, "%s: most ids below %d have no piece; copy the model again", path,
                   p->vocab);
  TRY(mem_alloc(&p->piece, (size_t)p->vocab, sizeof *p->piece));
  for (int i = 0; i < p->vocab; i++) p->piece[i] = NO_PIECE;
  for (uint32_t n = 0; n < p->pieces.count; n++) {
    uint32_t *piece = &p->piece[p->id[n]];
    if (*piece != NO_PIECE)
      return err_set(ERR_WORK, "%s: '%s' and '%s' have the same id %d; copy the model again",
                     path, stringmap_text(&p->pieces, *piece), stringmap_text(&p->pieces, n),
                     p->id[n]);
    *piece = n;
  }
  return ERR_OK;
}

static Err parse_vocab(TokenizerPair *p, const Str *text, const char *path) {
  json_error_t error;
  const char *piece;
  json_t *value;
  TRY(jsondoc_check(str_text(text), text->len, path));
  json_t *root = json_loadb(str_text(text), text->len, JSON_REJECT_DUPLICATES, &error);
  if (!json_is_object(root)) {
    json_decref(root);
    return err_set(ERR_WORK, "%s is not a JSON object; copy the model again", path);
  }
  Err err = ERR_OK;
  json_object_foreach(root, piece, value) {
    err = add_piece(p, piece, value, path);
    if (err) break;
  }
  json_decref(root);
  return err ? err : invert_ids(p, path);
}

static Err open_files(TokenizerPair *p, const char *dir, char sha256[65]) {
  char path[FILE_PATH_MAX];
  Str bytes = {0};
  Sha256 sha;
  Err err;
  sha256_begin(&sha);
  TRY_DONE(open_model(&p->source, dir, "source.spm", &sha, &bytes));
  TRY_DONE(open_model(&p->target, dir, "target.spm", &sha, &bytes));
  TRY_DONE(read_file(dir, "vocab.json", &sha, path, &bytes));
  TRY_DONE(parse_vocab(p, &bytes, path));
  sha256_end(&sha, sha256);
  p->unk = tokenizer_pair_find(p, "<unk>");
done:
  str_free(&bytes);
  return err;
}

Err tokenizer_pair_open(TokenizerPair **out, const char *dir, char sha256[65]) {
  TokenizerPair *p;
  *out = NULL;
  TRY(mem_alloc(&p, 1, sizeof *p));
  Err err = open_files(p, dir, sha256);
  if (err)
    tokenizer_pair_close(p);
  else
    *out = p;
  return err;
}

void tokenizer_pair_close(TokenizerPair *p) {
  if (!p) return;
  if (p->source) sp_free(p->source);
  if (p->target) sp_free(p->target);
  stringmap_free(&p->pieces);
  mem_free(p->id);
  mem_free(p->piece);
  mem_free(p);
}

int tokenizer_pair_vocab(const TokenizerPair *p) {
  return p->vocab;
}

int tokenizer_pair_find(const TokenizerPair *p, const char *piece) {
  uint32_t n = stringmap_find(&p->pieces, piece, strlen(piece));
  return n == NO_PIECE ? -1 : p->id[n];
}

const char *tokenizer_pair_piece(const TokenizerPair *p, int32_t id) {
  if (id < 0 || id >= p->vocab || p->piece[id] == NO_PIECE) return NULL;
  return stringmap_text(&p->pieces, p->piece[id]);
}

typedef struct {
  const TokenizerPair *pair;
  IdList *ids;
} Encoding;

static bool put_piece(void *context, const char *piece, size_t len) {
  Encoding *e = context;
  uint32_t n = stringmap_find(&e->pair->pieces, piece, len);
  if (mem_grow(&e->ids->id, &e->ids->cap, e->ids->len + 1, sizeof *e->ids->id)) return false;
  e->ids->id[e->ids->len++] = n == NO_PIECE ? e->pair->unk : e->pair->id[n];
  return true;
}

/* Returns the length of the >>CODE<< with which a line begins, or 0. */
static size_t measure_code(const char *text, size_t len) {
  if (len < 4 || memcmp(text, ">>", 2) != 0) return 0;
  const char *end = memmem(text, len, "<<", 2);
  return end ? (size_t)(end - text) + 2 : 0;
}

Err tokenizer_pair_encode(const TokenizerPair *p, const char *text, size_t len, IdList *ids) {
  Encoding e = {p, ids};
  size_t code = measure_code(text, len);
  if (code && !put_piece(&e, text, code)) return ERR_WORK;
  return sp_encode_pieces(p->source, text + code, len - code, put_piece, &e);
}

static bool is_special(const char *piece) {
  return strcmp(piece, "</s>") == 0 || strcmp(piece, "<pad>") == 0 ||
         strcmp(piece, "<unk>") == 0;
}

/* Appends `text` with each U+2581, which SentencePiece keeps in pieces that the model does not have,
 * replaced by a space, and without spaces at its ends. */
static void add_with_spaces(Str *out, const char *text) {
  static const char mark[] = "\xe2\x96\x81";
  size_t begin = out->len;
  while (*text) {
    bool is_mark = strncmp(text, mark, 3) == 0;
    bool is_space = is_mark || *text == ' ';
    if (!is_space) str_addc(out, *text);
    if (is_space && out->len > begin) str_addc(out, ' ');
    text += is_mark ? 3 : 1;
  }
  while (out->s && out->len > begin && out->s[out->len - 1] == ' ') out->s[--out->len] = '\0';
}

Err tokenizer_pair_decode(const TokenizerPair *p, const int32_t *ids, size_t n, Str *text) {
  const char **piece;
  size_t count = 0;
  TRY(mem_alloc(&piece, n, sizeof *piece));
  for (size_t i = 0; i < n; i++) {
    piece[count] = tokenizer_pair_piece(p, ids[i]);
    if (piece[count] && !is_special(piece[count])) count++;
  }
  Str plain = {0};
  Err err = sp_decode_pieces(p->target, piece, count, &plain);
  if (!err) add_with_spaces(text, str_text(&plain));
  if (!err) err = str_check(text);
  str_free(&plain);
  mem_free(piece);
  return err;
}
