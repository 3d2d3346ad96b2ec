/* Adam, AdamW, SGD with momentum and NovoGrad, from the backend's operations on
 * flat arrays. Depends on backend, params, optim_groups. */
#include "train/optim.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "backend/clip.h"

const char *const optim_names = "adam|adamw|sgd|novograd";

bool optim_has_moment(const OptimSpec *o, int which) {
  return which == 1 || (which == 2 && (o->kind == OPTIM_ADAM || o->kind == OPTIM_ADAMW));
}

StepNumbers optim_numbers(const OptimSpec *o, uint64_t step, double lr) {
  double now = (double)step + 1;
  return (StepNumbers){.lr = (float)lr,
                       .correction1 = (float)(1 - pow((double)o->beta1, now)),
                       .correction2 = (float)(1 - pow((double)o->beta2, now))};
}

/* The settings of all weights if there are no groups. */
static const OptimGroup whole = {.end = SIZE_MAX, .decays = true, .lr_factor = 1};

/* Updates a piece that is in one group. */
static void update_group(const OptimSpec *o, const OptimGroup *group, const Backend *b,
                         const StepNumbers *now, const OptimPiece *p) {
  float decay = group->decays ? o->decay : 0;
  if (o->kind == OPTIM_SGD) {
    MomentumStep s = {.beta = o->beta1,
                      .decay = decay,
                      .now = now,
                      .lr_factor = group->lr_factor,
                      .low = p->low};
    b->momentum(b, p->w, p->m, p->g, p->n, &s);
    return;
  }
  AdamStep s = {.beta1 = o->beta1,
                .beta2 = o->beta2,
                .epsilon = o->epsilon,
                .decay = decay,
                .coupled = o->kind == OPTIM_ADAM,
                .now = now,
                .lr_factor = group->lr_factor,
                .low = p->low};
  b->adam(b, p->w, p->m, p->v, p->g, p->n, &s);
}

/* Returns the n elements of a piece that follow its first `skipped` ones. */
static OptimPiece cut_piece(const OptimPiece *p, const Backend *b, size_t skipped, size_t n) {
  OptimPiece part = {.begin = p->begin + skipped, .n = n};
  part.w = p->w + skipped;
  part.g = p->g + skipped;
  if (p->low) part.low = (char *)p->low + skipped * type_size(b->type);
  if (p->m) part.m = p->m + skipped;
  if (p->v) part.v = p->v + skipped;
  return part;
}

/* Updates a piece of several groups with Adam in one call. */
static void update_ranges(const OptimSpec *o, const OptimGroups *groups, const Backend *b,
                          const StepNumbers *now, const OptimPiece *p) {
  AdamStep s = {.beta1 = o->beta1,
                .beta2 = o->beta2,
                .epsilon = o->epsilon,
                .decay = o->decay,
                .coupled = o->kind == OPTIM_ADAM,
                .now = now,
                .lr_factor = 1,
                .low = p->low,
                .range = groups->group,
                .ranges = groups->count,
                .begin = p->begin};
  b->adam(b, p->w, p->m, p->v, p->g, p->n, &s);
}

void optim_update(const OptimSpec *o, const OptimGroups *groups, const Backend *b,
                  const StepNumbers *now, const OptimPiece *piece) {
  assert(o->kind != OPTIM_NOVOGRAD && "NovoGrad needs whole weights: optim_layers");
  if (groups && groups->count > 1 && o->kind != OPTIM_SGD && piece->begin % ADAM_ALIGN == 0) {
    update_ranges(o, groups, b, now, piece);
    return;
  }
  for (size_t done = 0, n; done < piece->n; done += n) {
    size_t at = piece->begin + done;
    const OptimGroup *group = groups ? groups_find(groups, at) : &whole;
    n = group->end - at < piece->n - done ? group->end - at : piece->n - done;
    OptimPiece part = cut_piece(piece, b, done, n);
    if (!group->is_frozen) update_group(o, group, b, now, &part);
  }
}

void optim_layers(const OptimSpec *o, const OptimGroups *groups, const Backend *b,
                  const Params *params, float *w, float *m, double *second, const float *g,
                  double lr, double scale) {
  assert(o->kind == OPTIM_NOVOGRAD && "only NovoGrad goes by whole weights");
  for (size_t i = 0; i < params->count; i++) {
    const Param *p = &params->param[i];
    const OptimGroup *group = groups ? groups_find(groups, p->offset) : &whole;
    if (group->is_frozen) continue;
    size_t n = p->rows * p->cols;
    double norm2 = scale * scale * optim_norm2(b, g + p->offset, n);
    double keep = o->beta2;
    /* The first update initializes the running mean. It is not always step 0, which may have
     * been skipped. */
    second[i] = second[i] > 0 ? keep * second[i] + (1 - keep) * norm2 : norm2;
    /* Limit the factor to FLT_MAX: if all gradients of a weight are 0, second[i] is 0 and the
     * factor could be infinite; 0 * infinity is NaN. */
    double factor = fmin(scale / (sqrt(second[i]) + (double)o->epsilon), (double)FLT_MAX);
    MomentumStep s = {.lr = (float)lr * group->lr_factor,
                      .beta = o->beta1,
                      .decay = group->decays ? o->decay : 0,
                      .scale = (float)factor};
    b->momentum(b, w + p->offset, m + p->offset, g + p->offset, n, &s);
  }
}

void optim_clip(StepNumbers *now, const double *sums, size_t n) {
  double lane[CLIP_LANES] = {0};
  clip_add(lane, sums, n);
  clip_finish(now, clip_total(lane));
}

double optim_norm(const double *sums, size_t n) {
  double lane[CLIP_LANES] = {0};
  clip_add(lane, sums, n);
  return sqrt(clip_total(lane));
}

double optim_norm2(const Backend *b, const float *x, size_t n) {
  enum { UNITS = 1024 };
  _Static_assert(UNITS % CLIP_LANES == 0, "each sum keeps its lane");
  double lane[CLIP_LANES] = {0}, sums[UNITS];
  for (size_t at = 0; at < n; at += (size_t)UNITS * NORM_UNIT) {
    size_t count = n - at < (size_t)UNITS * NORM_UNIT ? n - at : (size_t)UNITS * NORM_UNIT;
    b->square_sums(b, sums, x + at, count);
    clip_add(lane, sums, norm_units(count));
  }
  return clip_total(lane);
}
