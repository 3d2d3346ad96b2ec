/* Which way gradients take between the ranks: by NCCL from GPU to GPU, where every rank
 * has a GPU of its own, or through the hosts' memory; and the first way. Relies on
 * backend (wire), comm (reduce). */
#ifndef TRAIN_EXCHANGE_H
#define TRAIN_EXCHANGE_H

#include "backend/backend.h"
#include "backend/device_comm.h"
#include "comm/reduce.h"

typedef enum { COLLECT_AUTO, COLLECT_NCCL, COLLECT_HOST } Collectives;

typedef struct {
  Comm *comm;
  const Backend *backend;
  const DeviceCommOps *table; /* NULL: through the host */
  DeviceComm *wire;
  bool shard;
  bool gathering;  /* a gather is under way, and nobody has waited for it */
  char about[160]; /* which way and why; "" where there is no choice */
  float *trial;    /* a small array, on the device */
  /* What travels: */
  Reducer *reducer;
  float *g;
  size_t *off; /* (ranks + 1) */
} Exchange;

/* All ranks come to the same choice. `ordered`: sums are made in the order of the micro-
 * batches, which only the host does. What was asked for and is not available is an error. */
NODISCARD Err exchange_choose(Exchange *x, Comm *comm, const Backend *b, Collectives asked,
                              bool ordered);
/* Joins the GPUs, where that was chosen, and tries it. most: elements of the largest
 * array that will travel at once. */
NODISCARD Err exchange_open(Exchange *x, const Backend *b, size_t most, bool bf16);
/* What a rank gives to that trial, n elements, at least one for each rank; and whether x is
 * the sum over the ranks. */
void exchange_trial(float *x, size_t n, int rank, int ranks);
NODISCARD Err exchange_judge_trial(const float *x, size_t n, int ranks);
void exchange_close(Exchange *x); /* harmless when not open */
/* Before a close in peace: until all ranks are there. */
NODISCARD Err exchange_rest(Exchange *x);

/* The gradients g and their buckets. */
void exchange_bind(Exchange *x, Reducer *reducer, float *g, bool shard);
void exchange_send(void *exchange, size_t bucket); /* a ReduceSpec's send */
/* Until this rank's device has made what travels; then until it has travelled, which is
 * waiting for the other ranks. */
NODISCARD Err exchange_wait_made(Exchange *x);
NODISCARD Err exchange_wait(Exchange *x);
/* Every rank's pieces of the flat array to all ranks; what the backend is given next
 * finds them. Whether they come is known when they were waited for as above: before
 * anything else is sent, and before the program waits for the device. */
void exchange_gather(Exchange *x, float *array);

#endif
