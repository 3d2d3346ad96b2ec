/* Several beams on one device, which search different batches at the same time. A decoding step
 * is a chain of small kernels, most of which use a part of a GPU and wait for the one before;
 * the kernels of another search fill the rest, and the GPU works while one search selects
 * hypotheses on the host. Each beam has a stream (Backend.open_stream) and a thread of its own;
 * they share the weights. A result does not depend on the beam that found it. Depends on
 * beam. */
#ifndef DECODE_BEAM_POOL_H
#define DECODE_BEAM_POOL_H

#include "decode/beam.h"

#define BEAM_POOL_MAX 8
/* What a stream of a GPU allocates beside its beam: the workspace of its GEMMs, staging buffers
 * and captured graphs. */
#define BEAM_POOL_STREAM_BYTES ((uint64_t)128 << 20)

/* The arguments of beam_new and beam_reserve. The pool keeps the pointers. */
typedef struct {
  const TransformerConfig *config;
  const Backend *backend;
  Weights weights;
  const BeamSpec *spec;
  size_t tokens, sentences; /* maximum source tokens and sentences of a batch */
  /* maximum tokens of the hypotheses of a batch; 0: the KV cache grows as needed */
  size_t words;
} BeamPoolSpec;

typedef struct BeamPool BeamPool;
/* Returns the number of streams: 1 on the CPU, on a GPU 3 or TRIREME_STREAMS=N, 1 to
 * BEAM_POOL_MAX. */
size_t beam_pool_default_streams(const Backend *backend);
/* Returns true if the device has memory for another beam beside `opened` ones, twice: KV caches
 * grow, and a cache is held twice while it does. Without `words` the caches of the opened beams
 * are counted too, because they are allocated by the first batch. */
bool beam_pool_fits(const BeamPoolSpec *spec, size_t opened);
/* Creates a pool with one beam. Others, at most `streams` in all, are created by the first
 * beam_pool_run that has a batch for them, if the device has memory for them. */
NODISCARD Err beam_pool_new(BeamPool **pool, const BeamPoolSpec *spec, size_t streams);
void beam_pool_free(BeamPool *pool);
/* Returns the maximum number of beams; those of beam_pool_run are numbered from 0. */
size_t beam_pool_streams(const BeamPool *pool);
/* Returns the number of beams created so far. */
size_t beam_pool_opened(const BeamPool *pool);
/* Packs the weights of all beams (see beam_pack). */
NODISCARD Err beam_pool_pack(BeamPool *pool);
/* Sets a function that is called before each step of each search, by one thread at a time. An
 * error from it ends the run. NULL: none. */
void beam_pool_on_step(BeamPool *pool, BeamStep step, void *context);

/* Searches batch `index` with `beam`. */
typedef Err (*PoolSearch)(void *context, Beam *beam, size_t stream, size_t index);
/* Calls search(context, beam, stream, i) once for each i < batches. Batches begin in their
 * order: batch i on stream i, later ones on the first stream that is free. Calls for different
 * streams run in different threads. Blocks until all have returned. After an error no stream
 * takes another batch, and the first error is returned. */
NODISCARD Err beam_pool_run(BeamPool *pool, size_t batches, PoolSearch search, void *context);
/* Returns the sums of the times of all beams. */
BeamTimes beam_pool_times(const BeamPool *pool);

#endif
