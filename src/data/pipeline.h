/* Parallel text through all cores, in order: one thread reads lines, workers
 * clean and encode blocks of them, the caller takes the blocks in the order of
 * the input. What comes out does not depend on the number of threads.
 * Depends on base, text, clean, input, line_index. */
#ifndef DATA_PIPELINE_H
#define DATA_PIPELINE_H

#include "data/clean.h"
#include "data/line_index.h"
#include "data/meta.h"
#include "text/tokenizer.h"

typedef struct {
  const char *path[2]; /* path[1] NULL: one file, a tab between the sides */
  const char *name[2]; /* for the record, without directories */
} TextPair;

/* A part of the lines, for ranks that share the work: of the lines over all inputs, divided into
 * stretches of `stretch` lines, those of stretch i with i % count == index. No block crosses the
 * end of a stretch. count 0: all lines. */
typedef struct {
  uint64_t stretch;
  uint32_t index;
  uint32_t count;
  const LineIndex *lines; /* (2 * inputs) of each file, so that other parts need not be read */
} PipelinePart;

typedef struct {
  const TextPair *input;
  size_t inputs;
  uint64_t skip;              /* lines at the start that need no ids */
  PipelinePart part;          /* the lines that are taken; the others are only read */
  const CleanRules *rules;    /* NULL: keep what is UTF-8 and not empty */
  const Tokenizer *tokenizer; /* NULL: no ids */
  uint32_t max_tokens;
  bool drop_bad_utf8; /* else such a line is an error */
  int threads;
} PipelineSpec;

/* A run of lines of one input. Line k's text lies at text[side] + at[side][k],
 * its ids at id + id_at[2 * k + side]; both end where the next begins. */
typedef struct {
  uint64_t first; /* number of its first line over all inputs, from 0 */
  uint32_t lines;
  uint64_t bytes_read;         /* of all inputs, as stored, for progress */
  uint8_t *verdict;            /* (lines) CleanVerdict */
  Str raw[2], text[2];         /* as read; squeezed */
  uint32_t *raw_at[2], *at[2]; /* (lines + 1) */
  IdList ids;
  uint32_t *id_at; /* (2 * lines + 1) */
} PipelineBlock;

typedef Err (*PipelineTake)(void *context, const PipelineBlock *block);

/* Runs it all; `split` receives the record of each input; NULL: no record. With several parts, file i
 * (of the files of all inputs, two each) has its hash in the records of part i % count only. */
NODISCARD Err pipeline_run(const PipelineSpec *spec, MetaSplit *split, PipelineTake take,
                           void *context);

#endif
