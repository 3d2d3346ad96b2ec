/* C interface to the SentencePiece library, which is C++: load, encode, decode, train. Used
 * by tokenizer.c and tokenizer_pair.c only. Depends on base/err, base/str. */
#ifndef TEXT_SP_SHIM_H
#define TEXT_SP_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "text/tokenizer.h"

typedef struct SpModel SpModel;

NODISCARD Err sp_load(SpModel **model, const char *bytes, size_t len, const char *where);
void sp_free(SpModel *model);
int sp_size(const SpModel *model);
/* Encodes `text` and calls put(context, id) for each id in order. Several threads may call it at
 * the same time. */
NODISCARD Err sp_encode(const SpModel *model, const char *text, size_t len,
                        bool (*put)(void *, int32_t), void *context);
/* Like sp_encode, but passes the text of each piece, which is that of the line if the piece is
 * unknown. */
NODISCARD Err sp_encode_pieces(const SpModel *model, const char *text, size_t len,
                               bool (*put)(void *, const char *, size_t), void *context);
/* Appends the text of n pieces, which need not be pieces of this model. */
NODISCARD Err sp_decode_pieces(const SpModel *model, const char *const *piece, size_t n,
                               Str *text);
/* Returns the text of a piece, valid as long as the model. */
const char *sp_piece(const SpModel *model, int32_t id);
NODISCARD Err sp_decode(const SpModel *model, const int32_t *ids, size_t n, Str *text);

/* Trains a model on the lines that next(context, &line, &len) returns, until it returns false.
 * Appends the bytes of the model to `out`. */
NODISCARD Err sp_train(const TokenizerTraining *spec,
                       bool (*next)(void *, const char **, size_t *), void *context, Str *out);

#endif
