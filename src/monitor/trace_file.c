/* Collects spans on rank 0, block by block, and writes them as JSON. Depends on comm, base. */
#include "monitor/trace_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#define BLOCK ((uint64_t)4096) /* spans that are sent in one message */

/* What each rank reports before it sends its spans. */
typedef struct {
  double begin;
  uint64_t spans, dropped;
} RankHead;

typedef struct {
  Comm *comm;
  const TraceSource *source;
  const TraceFileSpec *spec;
  RankHead *head; /* (ranks) */
  TraceSpan *block;
  /* Arguments of comm_exchange and comm_allgather, one entry per rank: */
  const void **send;
  void **recv;
  size_t *send_n, *recv_n, *off;
  /* Rank 0: */
  FileWriter file;
  Str text;
  double origin; /* time 0 of the file, of rank 0's clock */
  bool has_events;
  bool is_used[TRACE_TRACKS]; /* the current rank has spans of this track */
  ErrRecord failed;           /* first error of the file; later writes are left out */
} Writer;

static const char *const track_names[TRACE_TRACKS] = {"training", "GPU", "communication",
                                                      "checkpoint writer"};
static const char *const key_names[TRACE_KEYS] = {
    [TRACE_STEP] = "step",
    [TRACE_MICRO_BATCH] = "micro_batch",
    [TRACE_TOKENS] = "tokens",
    [TRACE_BUCKET] = "bucket",
    [TRACE_COLLECTIVE] = "collective",
    [TRACE_BYTES] = "bytes",
    [TRACE_FLOPS] = "flops",
    [TRACE_ROWS] = "rows",
    [TRACE_IN] = "in",
    [TRACE_OUT] = "out",
};

static Err open_writer(Writer *w) {
  size_t ranks = (size_t)comm_size(w->comm);
  TRY(mem_alloc(&w->head, ranks, sizeof *w->head));
  TRY(mem_alloc(&w->block, BLOCK, sizeof *w->block));
  TRY(mem_alloc(&w->send, ranks, sizeof *w->send));
  TRY(mem_alloc(&w->recv, ranks, sizeof *w->recv));
  TRY(mem_alloc(&w->send_n, ranks, sizeof *w->send_n));
  TRY(mem_alloc(&w->recv_n, ranks, sizeof *w->recv_n));
  return mem_alloc(&w->off, ranks + 1, sizeof *w->off);
}

static void close_writer(Writer *w) {
  void *list[] = {w->head, w->block, w->send, w->recv, w->send_n, w->recv_n, w->off};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) mem_free(list[i]);
  str_free(&w->text);
}

/* Gathers the RankHead of all ranks. Rank 0 sets time 0 of the file to the earliest begin. */
static void gather_heads(Writer *w) {
  int ranks = comm_size(w->comm), rank = comm_rank(w->comm);
  w->head[rank] = (RankHead){w->source->begin, w->source->spans, w->source->dropped};
  for (int r = 0; r <= ranks; r++) w->off[r] = (size_t)r * sizeof *w->head;
  comm_allgather(w->comm, "trace", w->head, w->off);
  if (rank > 0) return;
  w->origin = INFINITY;
  for (int r = 0; r < ranks; r++)
    w->origin = fmin(w->origin, trace_clock_align(&w->spec->before[r], &w->spec->after[r],
                                                  w->head[r].begin));
}

/* Writes w->text to the file and empties it. */
static void flush_text(Writer *w) {
  Err err = w->failed.code ? w->failed.code : str_check(&w->text);
  if (!err) err = file_put(&w->file, str_text(&w->text), w->text.len);
  if (err && !w->failed.code) w->failed = err_take(err);
  str_clear(&w->text);
}

/* Adds a text in quotes. Names of hosts and paths may have any bytes; all that are not plain
 * ASCII are replaced. */
static void add_quoted(Str *out, const char *text) {
  str_addc(out, '"');
  for (; *text; text++) {
    bool is_plain = *text >= ' ' && *text <= '~' && *text != '"' && *text != '\\';
    str_addc(out, is_plain ? *text : '?');
  }
  str_addc(out, '"');
}

static void begin_event(Writer *w) {
  str_add(&w->text, w->has_events ? ",\n" : "\n");
  w->has_events = true;
}

/* Names a rank and the tracks that it has, and sets their order in the viewer. */
static void write_names(Writer *w, int r) {
  Str *out = &w->text;
  char name[160];
  snprintf(name, sizeof name, "rank %d on %s", r, comm_host(w->comm, r));
  begin_event(w);
  str_addf(out, "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\",\"args\":{", r);
  str_add(out, "\"name\":");
  add_quoted(out, name);
  str_add(out, "}}");
  begin_event(w);
  str_addf(out,
           "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{"
           "\"sort_index\":%d}}",
           r, r);
  for (int t = 0; t < TRACE_TRACKS; t++) {
    if (!w->is_used[t]) continue;
    begin_event(w);
    str_addf(out,
             "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{"
             "\"name\":\"%s\"}}",
             r, t, track_names[t]);
    begin_event(w);
    str_addf(out,
             "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":{"
             "\"sort_index\":%d}}",
             r, t, t);
  }
  flush_text(w);
}

/* Adds the figures of a span; of FLOPs also the rate. */
static void add_args(Str *out, const TraceSpan *s) {
  const char *comma = "";
  double seconds = s->end - s->start;
  str_add(out, "\"args\":{");
  for (int i = 0; i < TRACE_ARGS && s->args.arg[i].key != TRACE_NONE; i++) {
    const TraceArg *a = &s->args.arg[i];
    if (a->key < 0 || a->key >= TRACE_KEYS) continue;
    str_addf(out, "%s\"%s\":%.0f", comma, key_names[a->key], a->value);
    comma = ",";
    if (a->key == TRACE_FLOPS && seconds > 0)
      str_addf(out, ",\"gflop_per_s\":%.1f", 1e-9 * a->value / seconds);
  }
  str_addc(out, '}');
}

/* Writes a span. Start and end are rounded to whole nanoseconds before they are subtracted, so
 * that spans which nest do so in the file. */
static void write_span(Writer *w, int r, const TraceSpan *s) {
  const TraceFileSpec *spec = w->spec;
  double start = trace_clock_align(&spec->before[r], &spec->after[r], s->start);
  double end = trace_clock_align(&spec->before[r], &spec->after[r], s->end);
  int64_t start_ns = (int64_t)llround(1e9 * (start - w->origin));
  int64_t end_ns = (int64_t)llround(1e9 * (end - w->origin));
  int64_t length = end_ns > start_ns ? end_ns - start_ns : 0;
  w->is_used[s->track] = true;
  begin_event(w);
  str_addf(&w->text,
           "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%" PRId64 ".%03" PRId64
           ",\"name\":\"%.*s\",",
           r, (int)s->track, 1e-3 * (double)start_ns, length / 1000, length % 1000,
           TRACE_NAME - 1, s->name);
  add_args(&w->text, s);
  str_addc(&w->text, '}');
}

/* Moves spans [first, first + n) of rank r to the block of rank 0. */
static void fetch_block(Writer *w, int r, uint64_t first, uint64_t n) {
  int ranks = comm_size(w->comm), rank = comm_rank(w->comm);
  for (uint64_t i = 0; i < n && rank == r; i++)
    w->source->get(w->source->context, first + i, &w->block[i]);
  if (r == 0) return;
  size_t bytes = n * sizeof *w->block;
  for (int i = 0; i < ranks; i++) {
    w->send[i] = w->block;
    w->recv[i] = w->block;
    w->send_n[i] = rank == r && i == 0 ? bytes : 0;
    w->recv_n[i] = rank == 0 && i == r ? bytes : 0;
  }
  comm_exchange(w->comm, "trace", w->send, w->send_n, w->recv, w->recv_n);
}

static void write_rank(Writer *w, int r) {
  bool is_writer = comm_rank(w->comm) == 0;
  uint64_t spans = w->head[r].spans;
  memset(w->is_used, 0, sizeof w->is_used);
  for (uint64_t at = 0; at < spans; at += BLOCK) {
    uint64_t n = spans - at < BLOCK ? spans - at : BLOCK;
    fetch_block(w, r, at, n);
    for (uint64_t i = 0; i < n && is_writer; i++) write_span(w, r, &w->block[i]);
    if (is_writer) flush_text(w);
  }
  if (is_writer) write_names(w, r);
}

/* Writes what is known of the clocks, and what is missing. */
static void write_head(Writer *w) {
  const TraceFileSpec *spec = w->spec;
  Str *out = &w->text;
  str_addf(out,
           "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"trireme %s\","
           "\"first_step\":%" PRIu64 ",\"steps\":%" PRIu64 ",\"ranks\":[",
           TRIREME_VERSION, spec->first_step, spec->steps);
  for (int r = 0; r < comm_size(w->comm); r++) {
    str_addf(out, "%s\n{\"rank\":%d,\"host\":", r ? "," : "", r);
    add_quoted(out, comm_host(w->comm, r));
    str_addf(out,
             ",\"clock_offset_us\":%.3f,\"clock_error_us\":%.3f,\"spans\":%" PRIu64
             ",\"dropped\":%" PRIu64 "}",
             1e6 * spec->before[r].offset,
             1e6 * fmax(spec->before[r].error, spec->after[r].error), w->head[r].spans,
             w->head[r].dropped);
  }
  str_add(out, "]},\n\"traceEvents\":[");
  flush_text(w);
}

static Err finish_file(Writer *w, const char *part) {
  str_add(&w->text, "\n]}\n");
  flush_text(w);
  Err err = w->failed.code ? err_give(&w->failed) : file_finish(&w->file, NULL);
  file_abandon(&w->file);
  if (!err) err = file_rename(part, w->spec->path);
  if (err) unlink(part);
  return err;
}

Err trace_file_write(Comm *comm, const TraceSource *source, const TraceFileSpec *spec,
                     uint64_t *dropped) {
  Writer w = {.comm = comm, .source = source, .spec = spec};
  bool is_writer = comm_rank(comm) == 0;
  char part[FILE_PATH_MAX];
  Err err;
  *dropped = 0;
  TRY_DONE(open_writer(&w));
  gather_heads(&w);
  for (int r = 0; r < comm_size(comm); r++) *dropped += w.head[r].dropped;
  if (is_writer) {
    snprintf(part, sizeof part, "%s.part", spec->path);
    Err created = file_create(&w.file, part);
    if (created) w.failed = err_take(created);
    w.file.crc_only = true;
    write_head(&w);
  }
  for (int r = 0; r < comm_size(comm); r++) write_rank(&w, r);
  if (is_writer) err = finish_file(&w, part);
done:
  close_writer(&w);
  return err;
}
