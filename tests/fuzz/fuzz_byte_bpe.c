/* A byte-level BPE and a text, both hostile: the bytes before the first NUL are tokenizer.json or, if the
 * first byte is not '{', merges of a small vocabulary; the rest is encoded. Every id has a piece, the
 * second encoding, which the cache answers, equals the first, and so does that of the tokenizer that
 * reads what this one prints. Depends on text/byte_bpe, text/byte_bpe_vocab. */
#include "text/byte_bpe.h"

#include <stdlib.h>
#include <string.h>

#include "text/byte_bpe_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition) ((condition) ? (void)0 : abort())

static const char pieces[] =
    "{\"<s>\":0,\"</s>\":1,\"<mask>\":2,\"a\":3,\"b\":4,\"\xc4\xa0\":5,\"ab\":6,\"\xc4\xa0"
    "a\":7,\"aa\":8,\"aab\":9,\"\xc3\x83\":10}";

/* Appends a tokenizer.json: the bytes themselves, or one with the bytes as merges.txt. */
static void make_json(const char *bytes, size_t len, Str *out) {
  ByteVocab v;
  Str vocab = {0}, merges = {0};
  if (len && bytes[0] == '{') {
    str_addn(out, bytes, len);
    return;
  }
  str_add(&vocab, pieces);
  str_addn(&merges, bytes, len);
  if (!byte_vocab_read_pair(&v, &vocab, "vocab.json", &merges, "merges.txt")) {
    REQUIRE(!byte_vocab_print(&v, out));
    byte_vocab_free(&v);
  }
  str_free(&vocab);
  str_free(&merges);
}

/* Appends the ids of a text twice. */
static void encode_twice(const ByteBpe *b, const char *text, size_t len, IdList *ids) {
  for (int i = 0; i < 2; i++) REQUIRE(!byte_bpe_encode(b, text, len, ids));
}

static void check_tokenizer(const ByteBpe *b, const char *text, size_t len) {
  IdList ids = {0}, others = {0};
  Str printed = {0};
  ByteBpe second;
  encode_twice(b, text, len, &ids);
  for (size_t i = 0; i < ids.len / 2; i++)
    REQUIRE(byte_bpe_piece(b, ids.id[i]) && ids.id[i] == ids.id[ids.len / 2 + i]);
  REQUIRE(!byte_bpe_print(b, &printed));
  REQUIRE(!byte_bpe_read(&second, printed.s, printed.len, "printed"));
  encode_twice(&second, text, len, &others);
  REQUIRE(others.len == ids.len);
  for (size_t i = 0; i < ids.len; i++) REQUIRE(ids.id[i] == others.id[i]);
  byte_bpe_close(&second);
  ids_free(&ids);
  ids_free(&others);
  str_free(&printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *end = memchr(data, 0, size);
  size_t len = end ? (size_t)(end - data) : size, used = end ? len + 1 : size;
  ByteBpe b;
  Str json = {0};
  make_json((const char *)data, len, &json);
  if (byte_bpe_read(&b, str_text(&json), json.len, "fuzz") == ERR_OK) {
    check_tokenizer(&b, (const char *)data + used, size - used);
    byte_bpe_close(&b);
  }
  str_free(&json);
  return 0;
}
