/* Lines translated by all ranks. Rank 0 has the text and the output; it deals every block of lines
 * out, each rank translates its stretch, and rank 0 hands the results on in the order of the lines.
 * Translations do not depend on batches, so the output is that of one process. One rank alone
 * sends nothing. Memory is bounded by the block. Relies on comm, translate.
 *
 * A rank that fails or dies ends all ranks, as comm.h says. */
#ifndef DECODE_SHARE_H
#define DECODE_SHARE_H

#include "comm/comm.h"
#include "decode/translate.h"

typedef struct Share Share;

/* `block`: lines that this rank's backend wants at once. `step_limit`: seconds that a step of the
 * search, with the encoder before the first one, may take; a rank that takes longer is reported as
 * lost. Every rank calls it. */
NODISCARD Err share_new(Share **share, Comm *comm, Translator *translator, size_t block,
                        double step_limit);
void share_free(Share *share);
/* Lines that all ranks together take at once: the most that share_run is given. */
size_t share_block(const Share *share);

/* Lines of a run that were longer than the model has positions for: how many, and the number of
 * the first, from 1 over all runs. */
typedef struct {
  uint64_t count, first;
} ShareCut;
/* Rank 0: translates n > 0 lines and gives the results to `take`, in the order of the lines. */
NODISCARD Err share_run(Share *share, const Line *line, size_t n, TranslateTake take,
                        void *context, ShareCut *cut);
/* Rank 0: there are no more lines. The others return from share_serve. */
void share_end(Share *share);
/* Ranks above 0: translates what rank 0 sends, until share_end. */
NODISCARD Err share_serve(Share *share);

#endif
