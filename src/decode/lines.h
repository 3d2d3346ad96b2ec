/* Lines of text, and the interface of what turns them into results: translation and
 * classification. share.h divides lines among ranks through it. Depends on base/err. */
#ifndef DECODE_LINES_H
#define DECODE_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  const char *text;
  size_t len;
} Line;

/* Called with result k of line i: a text and its score. Results come in the order of the lines;
 * results of one line in the order of k. */
typedef Err (*LineTake)(void *context, size_t i, int k, const char *text, float score);

/* Lines that were truncated because they exceed the model's positions: their number in this call,
 * and the number of the first one, counted from 1 over all calls. */
typedef struct {
  uint64_t count, first;
} LineCut;

/* Called before each step of the work, so that it can report progress. */
typedef Err (*LineStep)(void *context);

typedef struct {
  void *self;
  const char *doing; /* what it does, in reports of progress: "translating" */
  /* Passes the results of n > 0 lines to `take`; `before` is the number of lines before them. The
   * results of a line must not depend on the other lines. */
  Err (*run)(void *self, uint64_t before, const Line *line, size_t n, LineTake take,
             void *context, LineCut *cut);
  /* Sets the function that is called before each step; NULL: none. */
  void (*on_step)(void *self, LineStep step, void *context);
} LineWorker;

#endif
