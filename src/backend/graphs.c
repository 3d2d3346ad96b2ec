/* A small cache of CUDA graphs with least-recently-used replacement. Depends on backend. */
#include "backend/graphs.h"

#include <string.h>

static bool is_same(const GraphKey *a, const GraphKey *b) {
  return a->kind == b->kind && memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
         a->dropout == b->dropout && a->first == b->first && a->scale == b->scale;
}

/* Returns the index of the slot with this key, or of the least recently used slot. */
static size_t find_slot(const GraphCache *c, const GraphKey *key) {
  size_t oldest = 0, limit = c->limit ? c->limit : GRAPHS_DEFAULT;
  for (size_t i = 0; i < limit; i++) {
    if (c->slot[i].used && is_same(&c->slot[i].key, key)) return i;
    if (c->slot[i].used < c->slot[oldest].used) oldest = i;
  }
  return oldest;
}

static void clear_slot(GraphCache *c, const Backend *b, size_t i) {
  if (c->slot[i].graph) b->graph_free(b, c->slot[i].graph);
  c->slot[i].graph = NULL;
  c->slot[i].used = 0;
}

Err graphs_run(GraphCache *c, const Backend *b, GraphKey key, void (*work)(void *),
               void *context) {
  size_t i = find_slot(c, &key);
  bool is_known = c->slot[i].used && is_same(&c->slot[i].key, &key);
  if (!b->graph_begin || !is_known) {
    work(context);
    if (b->graph_begin) {
      clear_slot(c, b, i);
      c->slot[i].key = key;
      c->slot[i].used = ++c->turn;
    }
    return ERR_OK;
  }
  c->slot[i].used = ++c->turn;
  if (!c->slot[i].graph) {
    TRY(b->graph_begin(b));
    work(context);
    TRY(b->graph_end(b, &c->slot[i].graph));
    c->captured++;
  }
  b->graph_launch(b, c->slot[i].graph);
  c->launched++;
  return ERR_OK;
}

void graphs_free(GraphCache *c, const Backend *b) {
  for (size_t i = 0; i < GRAPHS_MAX; i++) clear_slot(c, b, i);
}
