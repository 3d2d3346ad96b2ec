/* Processes parallel text on all cores, in order: one thread reads lines, workers clean and
 * encode blocks of lines, and the caller receives the blocks in the order of the input. The
 * result does not depend on the number of threads. Depends on base, text, clean, input,
 * line_index. */
#ifndef DATA_PIPELINE_H
#define DATA_PIPELINE_H

#include "data/clean.h"
#include "data/line_index.h"
#include "data/meta.h"
#include "text/tokenizer.h"

typedef struct {
  const char *path[2]; /* path[1] NULL: one file, with a tab between source and target */
  const char *name[2]; /* file names for dataset.json, without directories */
} TextPair;

/* Selects a part of the lines, for ranks that share the work. The lines of all inputs are divided
 * into stretches of `stretch` consecutive lines; this part has the stretches i with i % count ==
 * index. No block crosses the end of a stretch. count 0: all lines. */
typedef struct {
  uint64_t stretch;
  uint32_t index;
  uint32_t count;
  /* (2 * inputs) line index of each file, used to skip other parts; or NULL */
  const LineIndex *lines;
} PipelinePart;

typedef struct {
  const TextPair *input;
  size_t inputs;
  uint64_t skip;              /* number of lines at the start that are not encoded */
  PipelinePart part;          /* selects the lines that are processed */
  const CleanRules *rules;    /* NULL: keeps every pair that is UTF-8 and not empty */
  const Tokenizer *tokenizer; /* NULL: the text is not encoded */
  uint32_t max_tokens;
  bool drop_bad_utf8; /* Drops lines that are not UTF-8; otherwise they are an error. */
  int threads;
} PipelineSpec;

/* A run of lines of one input. The text of line k begins at text[side] + at[side][k], its ids at
 * ids.id + id_at[2 * k + side]; both end where the next one begins. */
typedef struct {
  uint64_t first; /* number of the block's first line over all inputs, from 0 */
  uint32_t lines;
  /* bytes read of all inputs before decompression, for the progress display */
  uint64_t bytes_read;
  uint8_t *verdict;            /* (lines) CleanVerdict of each pair */
  Str raw[2], text[2];         /* text as read; text with white space reduced */
  uint32_t *raw_at[2], *at[2]; /* (lines + 1) offsets in raw and text */
  IdList ids;
  uint32_t *id_at; /* (2 * lines + 1) offsets in ids */
} PipelineBlock;

typedef Err (*PipelineTake)(void *context, const PipelineBlock *block);

/* Runs the pipeline. `split`, if not NULL, receives a record of each input. With several parts,
 * the hash of file i (of the files of all inputs, two each) is in the record of part i % count
 * only. */
NODISCARD Err pipeline_run(const PipelineSpec *spec, MetaSplit *split, PipelineTake take,
                           void *context);

#endif
