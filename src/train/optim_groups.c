/* Divides the flat parameters into optimizer groups: adjacent weights with the same settings are one
 * group. Depends on base/mem, base/str. */
#include "train/optim_groups.h"

#include <math.h>

#include "backend/adam.h"
#include "base/mem.h"
#include "base/str.h"

static bool has_lr_decay(const GroupSpec *s) {
  return s->layer_lr_decay != 0 && s->layer_lr_decay != 1;
}

static Err check_layers(const Params *p, const GroupSpec *s) {
  if (!p->layers && (has_lr_decay(s) || s->freeze_layers))
    return err_set(ERR_USAGE,
                   "%s is not available for this model, which does not number its layers; "
                   "leave it out",
                   s->freeze_layers ? "--freeze-layers" : "--layer-lr-decay");
  if (s->freeze_layers > p->layers)
    return err_set(ERR_USAGE, "--freeze-layers %u: the model has only %u layer%s; pass 0 to %u",
                   s->freeze_layers, p->layers, str_plural(p->layers), p->layers);
  return ERR_OK;
}

static OptimGroup describe_param(const Param *q, const Params *p, const GroupSpec *s) {
  OptimGroup g = {.begin = q->offset, .lr_factor = 1};
  g.decays = q->group == PARAM_DECAY || !s->skips_biases;
  g.is_frozen = s->freeze_layers && q->depth <= s->freeze_layers;
  /* The weights after the last layer have depth layers + 1 and factor 1. */
  if (has_lr_decay(s))
    g.lr_factor = (float)pow((double)s->layer_lr_decay, (double)p->layers + 1 - q->depth);
  return g;
}

static bool is_same_group(const OptimGroup *a, const OptimGroup *b) {
  if (a->is_frozen || b->is_frozen) return a->is_frozen == b->is_frozen;
  return a->decays == b->decays && a->lr_factor == b->lr_factor;
}

Err groups_new(OptimGroups *groups, const Params *p, const GroupSpec *s) {
  *groups = (OptimGroups){0};
  TRY(check_layers(p, s));
  TRY(mem_alloc(&groups->group, p->count ? p->count : 1, sizeof *groups->group));
  for (size_t i = 0; i < p->count; i++) {
    OptimGroup g = describe_param(&p->param[i], p, s);
    OptimGroup *last = groups->count ? &groups->group[groups->count - 1] : NULL;
    if (last && is_same_group(last, &g)) continue;
    if (last) last->end = g.begin;
    groups->group[groups->count++] = g;
  }
  if (groups->count) groups->group[groups->count - 1].end = p->padded;
  return ERR_OK;
}

void groups_free(OptimGroups *groups) {
  mem_free(groups->group);
  *groups = (OptimGroups){0};
}

const OptimGroup *groups_find(const OptimGroups *groups, size_t at) {
  return adam_find_range(groups->group, groups->count, at);
}

void groups_clear_frozen(const OptimGroups *groups, const Backend *b, float *g) {
  for (size_t i = 0; i < groups->count; i++) {
    const OptimGroup *x = &groups->group[i];
    if (x->is_frozen) b->zero(b, g + x->begin, (x->end - x->begin) * sizeof *g);
  }
}

size_t groups_count_updated(const OptimGroups *groups, const Params *p) {
  size_t n = 0;
  for (size_t i = 0; i < p->count; i++) {
    if (!groups_find(groups, p->param[i].offset)->is_frozen)
      n += p->param[i].rows * p->param[i].cols;
  }
  return n;
}
