/* Which pairs form batch i of epoch e: a pure function of (seed, e, i), found without looking at
 * any other batch, so that training resumes anywhere on any number of ranks.
 *
 * The training shards are cut into windows, one by default. An epoch takes the windows one after
 * the other in a random order and shuffles within each, so that it reads one part of a large data
 * set at a time. With one window that is a shuffle of all pairs.
 *
 * Within a window the pairs, sorted by length, are cut into `strata` of similar length. An epoch
 * of the window has `chunks`; a chunk takes one pair of each stratum, chosen by a permutation of
 * the stratum, so every chunk has the same lengths and one packing, made once, serves all chunks:
 * `per_chunk` batches into which one slot for each stratum is packed, the slot as long as the
 * longest pair of the stratum. Slots of equal size trade places by another permutation. So every
 * pair comes once in an epoch, no batch overflows, and batches are equally full.
 * Depends on base, checked. */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "data/checked.h"

#define ORDER_WINDOW_PAIRS 4294967295u /* pairs of one window are numbered in 32 bits */
#define ORDER_WINDOWS_MAX  65536u

/* The file train.order: for each window its pairs sorted by length, with the lengths as runs. */
typedef struct {
  uint16_t len[2]; /* source, target tokens, without the end mark */
  uint32_t count;
} OrderCell;

typedef struct {
  uint64_t first; /* number of the window's first pair in the training set */
  uint64_t pairs;
  size_t cells;
  int primary; /* the side with more tokens: sorted by it first */
  const OrderCell *cell;
  const uint32_t *pair; /* (pairs) numbers within the window, sorted by length */
} OrderWindow;

typedef struct {
  CheckedFile file;
  uint64_t pairs; /* of all windows */
  size_t windows;
  OrderWindow *window;
} Order;

/* Writes the file. window_pairs: (windows) pairs of each window. lengths(context, i, len) gives
 * the two lengths of pair i of the training set. */
typedef Err (*OrderLengths)(void *context, uint64_t i, uint32_t len[2]);
NODISCARD Err order_write(const char *path, const uint64_t *window_pairs, size_t windows,
                          OrderLengths lengths, void *context, uint64_t *bytes,
                          char sha256[65]);
/* Maps the file and checks everything but the lists of pairs, which are checked when they are
 * read. */
NODISCARD Err order_open(Order *order, const char *path);
void order_close(Order *order);

/* Batches of one window. */
typedef struct {
  uint64_t batches; /* chunks * per_chunk */
  uint64_t chunks;
  uint32_t per_chunk;
  uint32_t strata;
  uint32_t most_sentences; /* in one batch */
  double fill;             /* packing efficiency: tokens of the fuller side over capacity */
  /* The packing: batch b of a chunk has the slots slot_begin[b] … ; a slot is place `ordinal` of
   * its size class; a class lists its strata. */
  uint32_t *slot_begin;   /* (per_chunk + 1) */
  uint32_t *slot_class;   /* (strata) */
  uint32_t *slot_ordinal; /* (strata) */
  uint32_t classes;
  uint32_t *class_begin;   /* (classes + 1) */
  uint32_t *class_stratum; /* (strata) */
} WindowPlan;

typedef struct WindowTurns WindowTurns; /* which window comes when in an epoch */

typedef struct {
  uint32_t capacity;       /* tokens a side, end marks included */
  uint64_t batches;        /* of an epoch */
  uint32_t most_sentences; /* in one batch */
  double fill;             /* of all batches */
  size_t windows;
  WindowPlan *window;
  WindowTurns *turns;
} OrderPlan;

/* Plans batches of `capacity` tokens a side. */
NODISCARD Err order_plan(OrderPlan *plan, const Order *order, uint32_t capacity);
void order_plan_free(OrderPlan *plan);
/* Numbers of the pairs of batch i (< plan->batches) of the epoch, into `pairs`, which has room
 * for most_sentences. Any thread. Finding the window takes O(log windows); the first batch of
 * another seed or epoch takes O(windows). */
NODISCARD Err order_batch(Order *order, const OrderPlan *plan, uint64_t seed, uint64_t epoch,
                          uint64_t i, uint64_t *pairs, uint32_t *count);

#endif
