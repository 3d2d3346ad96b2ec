/* A small cache of CUDA graphs with least-recently-used replacement. Depends on backend. */
#include "backend/graphs.h"

#include <string.h>

#include "base/mem.h"

static bool is_same(const GraphKey *a, const GraphKey *b) {
  return a->kind == b->kind && memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
         a->dropout == b->dropout && a->first == b->first && a->scale == b->scale;
}

static size_t count_slots(const GraphCache *c) {
  return c->limit ? c->limit : GRAPHS_DEFAULT;
}

/* Returns the slot with this key, or the least recently used slot. */
static GraphSlot *find_slot(GraphCache *c, const GraphKey *key) {
  size_t oldest = 0;
  for (size_t i = 0; i < count_slots(c); i++) {
    if (c->slot[i].used && is_same(&c->slot[i].key, key)) return &c->slot[i];
    if (c->slot[i].used < c->slot[oldest].used) oldest = i;
  }
  return &c->slot[oldest];
}

static void free_parts(GraphSlot *s, const Backend *b) {
  for (size_t i = 0; i < s->parts; i++)
    if (s->part[i].graph) b->graph_free(b, s->part[i].graph);
  s->parts = 0;
}

static void clear_slot(GraphSlot *s, const Backend *b) {
  free_parts(s, b);
  s->used = 0;
}

static Err allocate_parts(GraphCache *c) {
  size_t each = c->max_actions + 1;
  if (c->part) return ERR_OK;
  TRY(mem_alloc(&c->part, count_slots(c) * each, sizeof *c->part));
  for (size_t i = 0; i < count_slots(c); i++) c->slot[i].part = c->part + i * each;
  return ERR_OK;
}

static void note_failure(GraphCache *c, Err err) {
  if (err && !c->failed.code) c->failed = err_take(err);
}

/* Ends the capture of a part, which `act` follows. */
static Err end_part(GraphCache *c, const Backend *b, GraphPart part) {
  GraphSlot *s = c->capturing;
  TRY(b->graph_end(b, &part.graph));
  if (s->parts > c->max_actions) {
    if (part.graph) b->graph_free(b, part.graph);
    return err_set(
        ERR_WORK,
        "bug: a CUDA graph has more than %zu actions; set TRIREME_GRAPH=0 and report it",
        c->max_actions);
  }
  s->part[s->parts++] = part;
  if (part.graph) c->captured++;
  return ERR_OK;
}

void graphs_act(GraphCache *c, const Backend *b, GraphAction act, void *context,
                size_t number) {
  if (!c->capturing) {
    act(context, number);
    return;
  }
  if (c->failed.code) return;
  note_failure(c, end_part(c, b, (GraphPart){NULL, act, context, number}));
  if (!c->failed.code) note_failure(c, b->graph_begin(b));
}

static Err capture_work(GraphCache *c, const Backend *b, GraphSlot *s, void (*work)(void *),
                        void *context) {
  TRY(b->graph_begin(b));
  c->capturing = s;
  c->failed = (ErrRecord){0};
  work(context);
  if (!c->failed.code) note_failure(c, end_part(c, b, (GraphPart){0}));
  c->capturing = NULL;
  if (!c->failed.code) return ERR_OK;
  free_parts(s, b);
  return err_give(&c->failed);
}

static void launch_parts(GraphCache *c, const Backend *b, const GraphSlot *s) {
  for (size_t i = 0; i < s->parts; i++) {
    const GraphPart *p = &s->part[i];
    if (p->graph) {
      b->graph_launch(b, p->graph);
      c->launched++;
    }
    if (p->act) p->act(p->context, p->number);
  }
}

Err graphs_run(GraphCache *c, const Backend *b, GraphKey key, void (*work)(void *),
               void *context) {
  if (!b->graph_begin) {
    work(context);
    return ERR_OK;
  }
  TRY(allocate_parts(c));
  GraphSlot *s = find_slot(c, &key);
  bool is_known = s->used && is_same(&s->key, &key);
  if (!is_known) {
    work(context);
    clear_slot(s, b);
    s->key = key;
    s->used = ++c->turn;
    return ERR_OK;
  }
  s->used = ++c->turn;
  if (!s->parts) TRY(capture_work(c, b, s, work, context));
  launch_parts(c, b, s);
  return ERR_OK;
}

void graphs_free(GraphCache *c, const Backend *b) {
  for (size_t i = 0; i < GRAPHS_MAX; i++) clear_slot(&c->slot[i], b);
  mem_free(c->part);
  c->part = NULL;
}
