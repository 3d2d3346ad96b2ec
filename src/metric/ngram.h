/* Exact clipped n-gram matches of one sentence: words become numbers, and n-grams become nodes of
 * a tree that is built from the hypothesis. Depends on base/mem, rng. */
#ifndef METRIC_NGRAM_H
#define METRIC_NGRAM_H

#include "metric/metric.h"

#define NGRAM_ORDER_MAX 6

/* An entry of the hash table that numbers the distinct words of a hypothesis from 1. A word that
 * occurs only in a reference has the number 0, because it matches nothing. */
typedef struct {
  MetricText word;
  /* `era`: generation in which the slot was filled; the slot is free in any other generation */
  uint32_t id, era;
} NgramWord;
typedef struct {
  NgramWord *slot;
  size_t slots; /* table size, a power of two */
  uint32_t era, words;
} NgramWords;

NODISCARD Err ngram_words_begin(NgramWords *w, size_t most);
uint32_t ngram_word_add(NgramWords *w, MetricText word);
uint32_t ngram_word_find(const NgramWords *w, MetricText word);
void ngram_words_free(NgramWords *w);

typedef struct {
  uint64_t key; /* hash key: parent node and symbol */
  uint32_t node, era;
} NgramEdge;
typedef struct {
  uint32_t hyp;  /* occurrences in the hypothesis */
  uint32_t ref;  /* occurrences in the reference that is being read */
  uint32_t best; /* largest number of occurrences in one of the references so far */
  uint32_t order;
} NgramNode;
typedef struct {
  NgramEdge *edge;
  size_t edges; /* table size, a power of two */
  NgramNode *node;
  size_t node_cap;
  uint32_t nodes, era; /* node 0 is the root */
  int shift;
} NgramTree;

/* Builds the tree of all n-grams of the hypothesis, from 1 up to `order`; replaces the previous
 * tree. */
NODISCARD Err ngram_hyp(NgramTree *t, const uint32_t *symbols, size_t n, size_t order);
/* Counts the n-grams of a reference; keeps the largest count over all references. */
void ngram_ref(NgramTree *t, const uint32_t *symbols, size_t n, size_t order);
/* Returns the number of matches per order. Each n-gram counts at most as often as it occurs in
 * one reference (clipping). */
void ngram_match(const NgramTree *t, size_t order, double *match);
void ngram_forget_refs(NgramTree *t);
void ngram_tree_free(NgramTree *t);

#endif
