/* A few places, found by key. Relies on backend. */
#include "train/replay.h"

#include <string.h>

static bool is_same(const ReplayKey *a, const ReplayKey *b) {
  return a->kind == b->kind && memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
         a->dropout == b->dropout && a->first == b->first && a->scale == b->scale;
}

/* The key's place, or the one that was not used for longest. */
static size_t place_of(const Replays *r, const ReplayKey *key) {
  size_t oldest = 0;
  for (size_t i = 0; i < REPLAY_MOST; i++) {
    if (r->slot[i].used && is_same(&r->slot[i].key, key)) return i;
    if (r->slot[i].used < r->slot[oldest].used) oldest = i;
  }
  return oldest;
}

static void clear(Replays *r, const Backend *b, size_t i) {
  if (r->slot[i].recording) b->graph_free(b, r->slot[i].recording);
  r->slot[i].recording = NULL;
  r->slot[i].used = 0;
}

Err replay_do(Replays *r, const Backend *b, ReplayKey key, void (*work)(void *),
              void *context) {
  size_t i = place_of(r, &key);
  bool known = r->slot[i].used && is_same(&r->slot[i].key, &key);
  if (!b->graph_begin || !known) {
    work(context);
    if (b->graph_begin) {
      clear(r, b, i);
      r->slot[i].key = key, r->slot[i].used = ++r->turn;
    }
    return ERR_OK;
  }
  r->slot[i].used = ++r->turn;
  if (!r->slot[i].recording) {
    TRY(b->graph_begin(b));
    work(context);
    TRY(b->graph_end(b, &r->slot[i].recording));
    r->recorded++;
  }
  b->graph_launch(b, r->slot[i].recording);
  r->replayed++;
  return ERR_OK;
}

void replay_free(Replays *r, const Backend *b) {
  for (size_t i = 0; i < REPLAY_MOST; i++) clear(r, b, i);
  *r = (Replays){0};
}
