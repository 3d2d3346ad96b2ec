/* What commands that apply a model to lines of text have in common (translate, classify): the model
 * directory, input and output, ranks, and the loop over blocks of lines. Depends on comm, decode/share,
 * data, train/checkpoint. */
#ifndef CMD_INFER_H
#define CMD_INFER_H

#include "backend/backend.h"
#include "base/file.h"
#include "base/opt.h"
#include "comm/comm.h"
#include "data/input.h"
#include "data/table.h"
#include "decode/share.h"

#define INFER_RANK_TIMEOUT 6 /* seconds without a heartbeat after which a rank is lost */

/* Checks --model, --input and --output before a large model is loaded; opens --output. Call it on all
 * ranks: only rank 0 touches input and output. */
NODISCARD Err infer_check_files(const OptSet *opts, const Comm *comm);
/* Ends --output after the work has ended with `err`: the file gets its name, or after an error a line says
 * where the results before it are. Returns `err`, or the error of the file. */
NODISCARD Err infer_end_output(Err err);
/* Opens the backend of --device, --precision and --threads for this rank. */
NODISCARD Err infer_open_backend(Backend *backend, const OptSet *opts, const Comm *comm);
/* Finds the model that `given` names: a model directory (a checkpoint is one too), or a run, of which
 * the best checkpoint is taken or, if there is none, the newest one that is not damaged. `option`
 * precedes the path in messages: "--model ", or "" for an operand. */
NODISCARD Err infer_find_model(const char *option, const char *given, char dir[FILE_PATH_MAX]);
/* Verifies a checkpoint whose model.json is of version 1: the checksums of its files are in
 * training.json. Warns if there are none. */
NODISCARD Err infer_check_older_model(const char *dir);
/* Fails unless all ranks have the same options and the same model. */
NODISCARD Err infer_agree(Comm *comm, const OptSet *opts, const char *dir);

/* Where lines come from: lines of text, or the rows of a table. */
typedef struct {
  const char *path; /* "-": standard input */
  /* Columns of the table that have the texts; 0 columns: the file has a text on each line. */
  const char *column[2];
  size_t columns;
  /* NUL bytes are left to the tokenizer; otherwise they are errors. */
  bool takes_nul;
  /* A line has two texts with a tab between them, which is replaced by `pair_mark`. */
  bool has_pairs;
  char pair_mark;
} LineSpec;

typedef struct LineJob LineJob;
/* Called after each block of lines, on rank 0. */
typedef void (*LineBlock)(void *context, size_t lines, const LineCut *cut);

/* The loop over all lines; run by rank 0. */
struct LineJob {
  Share *share;
  LineSpec source;
  const char *hint; /* printed on a terminal before the first prompt */
  LineTake take;    /* prints a result */
  LineBlock done;
  void *context;  /* of `take` and `done` */
  uint64_t lines; /* number of lines before this block */
  /* Private to infer_lines.c: */
  Input *in;
  Table *table;
  bool is_interactive; /* standard input is a terminal: work line by line */
  bool has_prompts;
};
/* Returns true if the lines are typed. */
bool infer_is_terminal(const LineSpec *source);
/* Reads all lines, shares them among the ranks and passes the results to `take` in their order. Lines
 * before one that cannot be read are still worked on. */
NODISCARD Err infer_run(LineJob *job);

#endif
