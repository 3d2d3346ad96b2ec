/* Translation or classification of lines on several ranks. Rank 0 reads the input and writes the
 * output. It divides each block of lines among all ranks, including itself, and returns the results
 * in the order of the lines. A result does not depend on its batch, so the output equals that of
 * one process. With one rank nothing is sent. Memory use is bounded by the block.
 * If a rank fails, all ranks end (see comm/comm.h). Depends on comm, lines.h. */
#ifndef DECODE_SHARE_H
#define DECODE_SHARE_H

#include "comm/comm.h"
#include "decode/lines.h"

typedef struct Share Share;

/* Creates a Share. Collective: every rank must call it. `block`: number of lines that suits this
 * rank's backend. `step_limit`: maximum seconds between two steps of the worker, and before
 * the first one; a rank that takes longer is reported as lost. */
NODISCARD Err share_new(Share **share, Comm *comm, LineWorker worker, size_t block,
                        double step_limit);
void share_free(Share *share);
/* Returns the maximum number of lines per call of share_run: the sum of `block` over all
 * ranks. */
size_t share_block(const Share *share);

/* Works on n > 0 lines and calls `take` with the results in the order of the lines. Call it on
 * rank 0. */
NODISCARD Err share_run(Share *share, const Line *line, size_t n, LineTake take, void *context,
                        LineCut *cut);
/* Ends the input, so that the other ranks return from share_serve. Call it on rank 0. */
void share_end(Share *share);
/* Works on the lines that rank 0 sends, until rank 0 calls share_end. Call it on all ranks
 * except 0. */
NODISCARD Err share_serve(Share *share);

#endif
