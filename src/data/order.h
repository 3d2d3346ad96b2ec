/* Which pairs form batch i of epoch e: a pure function of (seed, e, i), reached
 * without looking at any other batch. Relies on base, checked.
 *
 * The pairs, sorted by length, are cut into `strata` of like length. An epoch has
 * `chunks`; a chunk takes one pair of each stratum, chosen by a permutation of
 * its own, so every chunk has the same lengths and one packing, made once, serves
 * them all: `per_chunk` batches into which one slot per stratum is packed, the
 * slot as long as the longest pair of the stratum. Slots of equal size trade
 * places by another permutation. So every pair comes once an epoch, no batch
 * overflows, batches are equally full and equally hard, and nothing is replayed. */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#define ORDER_MOST_PAIRS 4294967295u /* pairs are numbered in 32 bits */

#include <stddef.h>
#include <stdint.h>

#include "data/checked.h"

/* The file train.order: pairs sorted by length, with the lengths as runs. */
typedef struct {
  uint16_t len[2]; /* source, target tokens, without the end mark */
  uint32_t count;
} OrderCell;

typedef struct {
  CheckedFile file;
  uint64_t pairs;
  size_t cells;
  int primary; /* the side with more tokens: sorted by it first */
  const OrderCell *cell;
  const uint32_t *pair; /* (pairs) numbers of pairs, sorted */
} Order;

/* Writes the file. lengths(context, i, len) gives pair i's two lengths. */
typedef Err (*OrderLengths)(void *context, uint64_t i, uint32_t len[2]);
NODISCARD Err order_write(const char *path, uint64_t pairs, OrderLengths lengths, void *context,
                          uint64_t *bytes, char sha256[65]);
NODISCARD Err order_open(Order *order, const char *path);
void order_close(Order *order);

typedef struct {
  uint32_t capacity; /* rows a side */
  uint64_t batches;  /* of an epoch: chunks * per_chunk */
  uint64_t chunks;
  uint32_t per_chunk, strata;
  uint32_t most_sentences; /* in one batch */
  double fill;             /* real rows of the fuller side over all rows */
  /* The packing: batch b of a chunk has the slots slot_begin[b] … ; a slot is
   * place `ordinal` of its size class; a class lists its strata. */
  uint32_t *slot_begin;                /* (per_chunk + 1) */
  uint32_t *slot_class, *slot_ordinal; /* (strata) */
  uint32_t classes, *class_begin;      /* (classes + 1) */
  uint32_t *class_stratum;             /* (strata) */
} OrderPlan;

/* Plans batches of `capacity` rows a side, end marks included. */
NODISCARD Err order_plan(OrderPlan *plan, const Order *order, uint32_t capacity);
void order_plan_free(OrderPlan *plan);
/* Numbers of the pairs of batch i (< plan->batches) of the epoch, into `pairs`,
 * which holds most_sentences. */
NODISCARD Err order_batch(Order *order, const OrderPlan *plan, uint64_t seed, uint64_t epoch,
                          uint64_t i, uint32_t *pairs, uint32_t *count);

#endif
