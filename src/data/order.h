/* Computes which pairs form batch i of epoch e: a pure function of (seed, e, i), computed without
 * any other batch, so that training can resume at any step on any number of ranks.
 *
 * The training shards are divided into windows, one by default. An epoch reads the windows one
 * after the other in a random order and shuffles the pairs within each window, so that it reads
 * one part of a large data set at a time. With one window all pairs are shuffled.
 *
 * Within a window the pairs are sorted by length and divided into `strata` of similar length. An
 * epoch of the window has `chunks`; a chunk has one pair of each stratum, selected by a
 * permutation of the stratum. All chunks therefore have about the same lengths, and one packing
 * serves all of them: `per_chunk` batches into which one slot for each stratum is packed. A slot
 * is as long as the longest pair of its stratum. Another permutation exchanges slots of equal
 * size. Every pair therefore occurs once in an epoch, no batch exceeds its capacity, and batches
 * are about equally full.
 * Depends on base, checked. */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "data/checked.h"

/* Maximum number of pairs in a window: they are numbered in 32 bits. */
#define ORDER_WINDOW_PAIRS 4294967295u
#define ORDER_WINDOWS_MAX  65536u

/* train.order contains for each window its pairs sorted by length, and the lengths as runs. A
 * cell is one run: `count` pairs of equal lengths. */
typedef struct {
  uint16_t len[2]; /* source and target tokens, without eos */
  uint32_t count;
} OrderCell;

typedef struct {
  uint64_t first; /* number of the window's first pair in the training set */
  uint64_t pairs;
  size_t cells;
  int primary; /* the side with more tokens in total, by which pairs are sorted first */
  const OrderCell *cell;
  const uint32_t *pair; /* (pairs) pair numbers within the window, sorted by length */
} OrderWindow;

typedef struct {
  CheckedFile file;
  uint64_t pairs; /* number of pairs in all windows */
  size_t windows;
  OrderWindow *window;
} Order;

/* Writes train.order. window_pairs: (windows) number of pairs of each window. lengths(context, i,
 * len) returns the two lengths of pair i of the training set. */
typedef Err (*OrderLengths)(void *context, uint64_t i, uint32_t len[2]);
NODISCARD Err order_write(const char *path, const uint64_t *window_pairs, size_t windows,
                          OrderLengths lengths, void *context, uint64_t *bytes,
                          char sha256[65]);
/* Maps train.order and checks everything except the lists of pairs, which are checked when they
 * are read. */
NODISCARD Err order_open(Order *order, const char *path);
void order_close(Order *order);

/* The packing of the batches of one window. */
typedef struct {
  uint64_t batches; /* number of batches: chunks * per_chunk */
  uint64_t chunks;
  uint32_t per_chunk;
  uint32_t strata;
  uint32_t most_sentences; /* maximum number of sentences in a batch */
  double fill;             /* packing efficiency: tokens of the longer side over capacity */
  /* Batch b of a chunk has the slots slot_begin[b] to slot_begin[b + 1] - 1. A slot is element
   * `ordinal` of its size class; class_stratum lists the strata of each class. */
  uint32_t *slot_begin;   /* (per_chunk + 1) first slot of each batch */
  uint32_t *slot_class;   /* (strata) size class of each slot */
  uint32_t *slot_ordinal; /* (strata) position of each slot in its class */
  uint32_t classes;
  uint32_t *class_begin;   /* (classes + 1) first element of each class in class_stratum */
  uint32_t *class_stratum; /* (strata) strata sorted by class */
} WindowPlan;

typedef struct WindowTurns WindowTurns; /* the order of the windows in an epoch */

typedef struct {
  uint32_t capacity;       /* maximum tokens of a batch per side, including eos */
  uint64_t batches;        /* number of batches of an epoch */
  uint32_t most_sentences; /* maximum number of sentences in a batch */
  double fill;             /* packing efficiency of all batches */
  size_t windows;
  WindowPlan *window;
  WindowTurns *turns;
} OrderPlan;

/* Plans batches of `capacity` tokens per side. */
NODISCARD Err order_plan(OrderPlan *plan, const Order *order, uint32_t capacity);
void order_plan_free(OrderPlan *plan);
/* Writes the numbers of the pairs of batch i (< plan->batches) of the epoch to `pairs`, which
 * must have room for most_sentences. Any thread may call it. Finding the window takes O(log
 * windows); the first batch of another seed or epoch takes O(windows). */
NODISCARD Err order_batch(Order *order, const OrderPlan *plan, uint64_t seed, uint64_t epoch,
                          uint64_t i, uint64_t *pairs, uint32_t *count);

#endif
