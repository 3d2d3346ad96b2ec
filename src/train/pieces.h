/* The pieces of a sharded optimizer over NCCL: which ranges of the flat arrays each rank owns,
 * and which weights are gathered after an update, in which type. Every rank has the same ranges.
 * Depends on comm/reduce, device_comm, params, pass. */
#ifndef TRAIN_PIECES_H
#define TRAIN_PIECES_H

#include "backend/device_comm.h"
#include "comm/reduce.h"
#include "model/params.h"
#include "train/pass.h"

typedef struct {
  PassPiece *own; /* (count) this rank's pieces, one of each bucket; some may be empty */
  size_t count;   /* number of buckets; 0: not open */
  size_t *all;    /* (count, ranks + 1) pieces of all ranks, as in DeviceGather.off */
  /* (full_count, ranks + 1) pieces of the weights that forward and backward read in fp32 even
   * if there is a copy of lower precision (Param.is_full). */
  size_t *full;
  size_t full_count;
} Pieces;

/* Cuts the array as the buckets of `reducer` are cut. */
NODISCARD Err pieces_open(Pieces *p, const Reducer *reducer, int rank, int ranks,
                          const Params *params);
void pieces_close(Pieces *p); /* does nothing if not open */

/* The all-gathers of the weights after an update of a sharded optimizer. */
typedef struct {
  size_t width;         /* bytes of an element in the gather of all weights */
  size_t full_elements; /* elements of the weights that are gathered a second time, in fp32 */
} GatheredWeights;

/* Returns what is gathered. Over NCCL (is_nccl) all weights in `type`, which forward and backward
 * read; those that they read in fp32 also in fp32. Through the host all weights in fp32. */
GatheredWeights pieces_gathered(const Params *params, Type type, bool is_nccl);

/* Returns the ranges of a gather of all weights, with elements of `width` bytes; and of those
 * that are read in fp32. */
DeviceGather pieces_gather_all(const Pieces *p, size_t width);
DeviceGather pieces_gather_full(const Pieces *p);

#endif
