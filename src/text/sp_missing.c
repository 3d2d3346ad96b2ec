/* Replaces sp_shim.cc in builds without SentencePiece: every function returns an error that names
 * the package to install. No dependencies. */
#include "text/sp_shim.h"

#ifndef HAVE_SENTENCEPIECE
static Err refuse_call(void) {
  return err_set(ERR_WORK,
                 "this program was built without SentencePiece: install libsentencepiece-dev "
                 "and build it again");
}

Err sp_load(SpModel **model, const char *bytes, size_t len, const char *where) {
  (void)bytes;
  (void)len;
  (void)where;
  *model = NULL;
  return refuse_call();
}

void sp_free(SpModel *model) {
  (void)model;
}

int sp_size(const SpModel *model) {
  (void)model;
  return 0;
}

Err sp_encode(const SpModel *model, const char *text, size_t len, bool (*put)(void *, int32_t),
              void *context) {
  (void)model;
  (void)text;
  (void)len;
  (void)put;
  (void)context;
  return refuse_call();
}

Err sp_encode_pieces(const SpModel *model, const char *text, size_t len,
                     bool (*put)(void *, const char *, size_t), void *context) {
  (void)model;
  (void)text;
  (void)len;
  (void)put;
  (void)context;
  return refuse_call();
}

Err sp_decode_pieces(const SpModel *model, const char *const *piece, size_t n, Str *text) {
  (void)model;
  (void)piece;
  (void)n;
  (void)text;
  return refuse_call();
}

const char *sp_piece(const SpModel *model, int32_t id) {
  (void)model;
  (void)id;
  return "";
}

Err sp_decode(const SpModel *model, const int32_t *ids, size_t n, Str *text) {
  (void)model;
  (void)ids;
  (void)n;
  (void)text;
  return refuse_call();
}

Err sp_train(const TokenizerTraining *spec, bool (*next)(void *, const char **, size_t *),
             void *context, Str *out) {
  (void)spec;
  (void)next;
  (void)context;
  (void)out;
  return refuse_call();
}
#endif
