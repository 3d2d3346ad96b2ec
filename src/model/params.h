/* Flat parameters: all weights are views into one array, and the model owns names
 * and offsets. Relies on config. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/config.h"

typedef enum { INIT_ZERO, INIT_ONE, INIT_GLOROT, INIT_EMBEDDING } ParamInit;

typedef struct {
  char name[56];
  size_t offset, rows, cols; /* cols 1 for vectors */
  ParamInit init;
} Param;

/* Offsets of one block of weights; SIZE_MAX where the model has none. */
typedef struct {
  size_t gain, bias;
} NormParams;
typedef struct {
  size_t in, in_bias;   /* self: q, k, v (3d, d); cross: q (d, d) */
  size_t out, out_bias; /* (d, d) */
} AttentionParams;
typedef struct {
  size_t up, up_bias, down, down_bias; /* (ff, d), (d, ff) */
} FeedParams;
typedef struct {
  AttentionParams self, cross; /* cross in the decoder only */
  FeedParams feed;
  NormParams norm[3]; /* one for each sublayer: before it (pre) or after it (post) */
} LayerParams;

typedef struct {
  Param *param;
  size_t count, cap;
  size_t total;  /* elements used */
  size_t padded; /* elements of the array: divides among 1 to 10 ranks, and more */
  size_t source_table, target_table, output; /* (vocab, d); equal where tied */
  size_t source_place, target_place;         /* (longest, d) learned positions, or SIZE_MAX */
  size_t cross_kv, cross_kv_bias; /* (layers * 2d, d): every decoder layer's keys and values */
  LayerParams *layer[2];
  NormParams final_norm[2]; /* pre-norm only */
} Params;

NODISCARD Err params_lay_out(Params *p, const ModelConfig *config);
void params_free(Params *p);
/* Starting values, a pure function of the seed. `w` holds p->padded floats. */
void params_init(const Params *p, const ModelConfig *config, uint64_t seed, float *w);

#endif
