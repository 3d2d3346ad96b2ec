/* Prints the values of TensorBoard event files as TensorBoard's event accumulator keeps them,
 * one "STEP TAG VALUE" per line, in the order in which they were written. A session start with
 * step S discards the values of step S and later steps that were written before it; the first
 * session start of a run discards nothing.
 *   dump_events FILE…   the files of one run, in the order of their names
 * VALUE is a number, or "histogram:" or "tensor:" and the CRC-32C of the message. Depends on
 * format/tfevents. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/tfevents.h"

typedef struct {
  int64_t step;
  size_t text; /* position of "TAG VALUE" in `text`, ends with NUL */
} Line;

typedef struct {
  Line *line;
  size_t lines, cap;
  Str text;
  bool has_start;
} Dump;

static void discard_from(Dump *d, int64_t step) {
  size_t kept = 0;
  for (size_t i = 0; i < d->lines; i++)
    if (d->line[i].step < step) d->line[kept++] = d->line[i];
  d->lines = kept;
}

static Err add_line(Dump *d, int64_t step, const TfValue *v) {
  TRY(mem_grow(&d->line, &d->cap, d->lines + 1, sizeof *d->line));
  d->line[d->lines++] = (Line){step, d->text.len};
  str_addf(&d->text, "%.*s ", (int)v->tag_len, v->tag);
  if (v->kind == TF_SCALAR)
    str_addf(&d->text, "%.7g", (double)v->scalar);
  else
    str_addf(&d->text, "%s:%08x", v->kind == TF_HISTOGRAM ? "histogram" : "tensor",
             tfevents_crc32c(0, v->bytes, v->len));
  str_addc(&d->text, '\0');
  return str_check(&d->text);
}

static Err note_event(void *context, const TfEvent *event) {
  Dump *d = context;
  TfValue v;
  if (event->is_start && d->has_start) discard_from(d, event->step);
  if (event->is_start) d->has_start = true;
  for (size_t at = 0; tfevents_next_value(event, &at, &v);) TRY(add_line(d, event->step, &v));
  return ERR_OK;
}

int main(int argc, char **argv) {
  Dump d = {0};
  for (int i = 1; i < argc; i++) {
    if (!tfevents_read(argv[i], note_event, &d)) continue;
    fprintf(stderr, "dump_events: %s\n", err_message());
    return 1;
  }
  for (size_t i = 0; i < d.lines; i++)
    printf("%" PRId64 " %s\n", d.line[i].step, d.text.s + d.line[i].text);
  mem_free(d.line);
  str_free(&d.text);
  return 0;
}
