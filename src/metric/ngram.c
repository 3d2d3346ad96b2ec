/* Word numbers and the n-gram tree. Both hash tables are cleared by incrementing a generation
 * number (`era`), so that a short sentence after a long one is cheap. Depends on mem, rng. */
#include "metric/ngram.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

/* Returns the smallest power of two, at least 64, of which `most` entries fill less than half. */
static size_t table_size(size_t most) {
  size_t size = 64;
  while (size < 2 * most + 1) size *= 2;
  return size;
}

Err ngram_words_begin(NgramWords *w, size_t most) {
  size_t slots = table_size(most);
  if (slots > w->slots || w->era == UINT32_MAX) {
    mem_free(w->slot);
    *w = (NgramWords){0};
    TRY(mem_alloc(&w->slot, slots, sizeof *w->slot));
    w->slots = slots;
  }
  w->era++;
  w->words = 0;
  return ERR_OK;
}

/* Returns the slot of the word, or the free slot in which to insert it. */
static NgramWord *find_word(const NgramWords *w, MetricText word) {
  size_t i = rng_hash(word.s, word.len, 0) & (w->slots - 1);
  for (;; i = (i + 1) & (w->slots - 1)) {
    NgramWord *slot = &w->slot[i];
    if (slot->era != w->era) return slot;
    if (slot->word.len == word.len && memcmp(slot->word.s, word.s, word.len) == 0) return slot;
  }
}

uint32_t ngram_word_add(NgramWords *w, MetricText word) {
  NgramWord *slot = find_word(w, word);
  if (slot->era != w->era) *slot = (NgramWord){word, ++w->words, w->era};
  return slot->id;
}

uint32_t ngram_word_find(const NgramWords *w, MetricText word) {
  const NgramWord *slot = find_word(w, word);
  return slot->era == w->era ? slot->id : 0;
}

void ngram_words_free(NgramWords *w) {
  mem_free(w->slot);
}

static Err begin_counting(NgramTree *t, size_t most) {
  if (most >= UINT32_MAX / 4)
    return err_set(ERR_WORK,
                   "cannot score a line of more than %u words or characters; split it",
                   UINT32_MAX / 4);
  size_t edges = table_size(most);
  if (edges > t->edges || t->era == UINT32_MAX) {
    mem_free(t->edge);
    t->edge = NULL;
    t->edges = 0;
    t->era = 0;
    TRY(mem_alloc(&t->edge, edges, sizeof *t->edge));
    t->edges = edges;
    t->shift = 64 - __builtin_ctzll(edges);
  }
  TRY(mem_grow(&t->node, &t->node_cap, most + 1, sizeof *t->node));
  t->era++;
  t->nodes = 1;
  return ERR_OK;
}

/* Returns the edge from `parent` with the label `symbol`, or the free slot in which to insert
 * it. */
static inline NgramEdge *find_edge(const NgramTree *t, uint32_t parent, uint32_t symbol) {
  uint64_t key = (uint64_t)parent << 32 | symbol;
  size_t i = (size_t)((key ^ key >> 29) * 0x9e3779b97f4a7c15u >> t->shift);
  for (;; i = (i + 1) & (t->edges - 1)) {
    NgramEdge *edge = &t->edge[i];
    if (edge->era != t->era || edge->key == key) return edge;
  }
}

Err ngram_hyp(NgramTree *t, const uint32_t *symbols, size_t n, size_t order) {
  TRY(begin_counting(t, n * order));
  for (size_t i = 0; i < n; i++) {
    uint32_t at = 0;
    for (size_t k = 0; k < order && i + k < n; k++) {
      NgramEdge *edge = find_edge(t, at, symbols[i + k]);
      if (edge->era != t->era) {
        *edge = (NgramEdge){(uint64_t)at << 32 | symbols[i + k], t->nodes++, t->era};
        t->node[edge->node] = (NgramNode){.order = (uint32_t)k};
      }
      at = edge->node;
      t->node[at].hyp++;
    }
  }
  return ERR_OK;
}

void ngram_ref(NgramTree *t, const uint32_t *symbols, size_t n, size_t order) {
  for (size_t i = 0; i < n; i++) {
    uint32_t at = 0;
    for (size_t k = 0; k < order && i + k < n; k++) {
      const NgramEdge *edge = find_edge(t, at, symbols[i + k]);
      /* No longer n-gram that begins at this position occurs in the tree either. */
      if (edge->era != t->era) break;
      at = edge->node;
      t->node[at].ref++;
    }
  }
  for (uint32_t i = 1; i < t->nodes; i++) {
    NgramNode *node = &t->node[i];
    if (node->ref > node->best) node->best = node->ref;
    node->ref = 0;
  }
}

void ngram_match(const NgramTree *t, size_t order, double *match) {
  for (size_t k = 0; k < order; k++) match[k] = 0;
  for (uint32_t i = 1; i < t->nodes; i++) {
    const NgramNode *node = &t->node[i];
    match[node->order] += node->hyp < node->best ? node->hyp : node->best;
  }
}

void ngram_forget_refs(NgramTree *t) {
  for (uint32_t i = 1; i < t->nodes; i++) t->node[i].best = 0;
}

void ngram_tree_free(NgramTree *t) {
  mem_free(t->edge);
  mem_free(t->node);
}
