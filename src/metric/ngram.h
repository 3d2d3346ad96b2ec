/* Exact clipped n-gram matches of one sentence: words become numbers, n-grams become nodes
 * of a tree built from the hypothesis. Depends on base/mem, rng. */
#ifndef METRIC_NGRAM_H
#define METRIC_NGRAM_H

#include "metric/metric.h"

#define NGRAM_ORDER_MAX 6

/* Numbers the distinct words of a hypothesis from 1. Words that occur only in a reference
 * are all 0, since they match nothing. */
typedef struct {
  MetricText word;
  uint32_t id, era; /* era: generation in which the slot was filled; of another: free */
} NgramWord;
typedef struct {
  NgramWord *slot;
  size_t slots; /* a power of two */
  uint32_t era, words;
} NgramWords;

NODISCARD Err ngram_words_begin(NgramWords *w, size_t most);
uint32_t ngram_word_add(NgramWords *w, MetricText word);
uint32_t ngram_word_find(const NgramWords *w, MetricText word);
void ngram_words_free(NgramWords *w);

typedef struct {
  uint64_t key; /* parent node, symbol */
  uint32_t node, era;
} NgramEdge;
typedef struct {
  uint32_t hyp;  /* times in the hypothesis */
  uint32_t ref;  /* times in the reference being read */
  uint32_t best; /* largest count in one of the references so far */
  uint32_t order;
} NgramNode;
typedef struct {
  NgramEdge *edge;
  size_t edges; /* a power of two */
  NgramNode *node;
  size_t node_cap;
  uint32_t nodes, era; /* node 0 is the root */
  int shift;
} NgramTree;

/* Builds the tree of all n-grams, 1 … order, of the hypothesis; replaces the previous one. */
NODISCARD Err ngram_hyp(NgramTree *t, const uint32_t *symbols, size_t n, size_t order);
/* Counts the n-grams of a reference; keeps the largest count over all references. */
void ngram_ref(NgramTree *t, const uint32_t *symbols, size_t n, size_t order);
/* Matches per order; each n-gram counts at most as often as in one reference (clipped). */
void ngram_match(const NgramTree *t, size_t order, double *match);
void ngram_forget_refs(NgramTree *t);
void ngram_tree_free(NgramTree *t);

#endif
