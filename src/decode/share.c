/* Lines on several ranks. A block of lines is divided into one stretch (consecutive lines)
 * per rank, with about equal bytes. Messages:
 *   to all       plan: number of lines before the block, then lines and bytes of each stretch
 *   to rank r    its stretch: the lengths of its lines (uint32), then their text
 *   from rank r  a Reply, then its results: for each a Result and the text with a NUL
 * A plan without lines ends the work. Rank 0 works on the first stretch, so that it can
 * write its results while the other ranks are still working. Depends on comm, lines.h. */
#include "decode/share.h"

#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/str.h"

typedef struct {
  uint64_t bytes;          /* bytes of the results that follow this header */
  uint64_t cut, first_cut; /* truncated lines, as in LineCut */
} Reply;

typedef struct {
  uint32_t index; /* index of the line in its stretch */
  int32_t k;      /* index in the n-best list of the line */
  float score;
  uint32_t len; /* bytes of the text */
} Result;

typedef struct {
  uint64_t lines, bytes;
} Stretch;

struct Share {
  Comm *comm;
  LineWorker worker;
  int rank, ranks;
  double step_limit; /* maximum seconds of one step of the worker */
  size_t block;      /* maximum number of lines of a block, for all ranks together */
  uint64_t before;   /* number of lines before this block */
  uint64_t *plan;    /* (1 + 2 * ranks) contents of the message "plan" */
  Stretch *stretch;  /* (ranks) stretch of each rank */
  Reply *reply;      /* (ranks) reply of each rank */
  Line *line;        /* (block) lines of this rank's stretch */
  Str out;           /* send buffer for stretches or results */
  char *in;          /* (in_cap) receive buffer */
  size_t in_cap;
  /* Arguments of comm_exchange, one for each rank. */
  const void **send;
  void **recv;
  size_t *send_n, *recv_n;
};

/* Reports progress to the other ranks. The next step of the worker may take up to step_limit
 * seconds. */
static void report_work(const Share *s) {
  comm_report(s->comm, s->step_limit, "%s lines from %llu on", s->worker.doing,
              (unsigned long long)s->before + 1);
}

/* Reports progress; called by the worker before each step (LineStep). */
static Err report_step(void *context) {
  report_work(context);
  fault_point("translate-step");
  return ERR_OK;
}

Err share_new(Share **out, Comm *comm, LineWorker worker, size_t block, double step_limit) {
  Share *s;
  *out = NULL;
  TRY(mem_alloc(&s, 1, sizeof *s));
  s->comm = comm;
  s->worker = worker;
  s->step_limit = step_limit;
  s->rank = comm_rank(comm);
  s->ranks = comm_size(comm);
  size_t ranks = (size_t)s->ranks;
  double all = (double)block;
  Err err;
  comm_sum(comm, "lines of a block", &all, 1);
  s->block = (size_t)all;
  TRY_DONE(mem_alloc(&s->plan, 1 + 2 * ranks, sizeof *s->plan));
  TRY_DONE(mem_alloc(&s->stretch, ranks, sizeof *s->stretch));
  TRY_DONE(mem_alloc(&s->reply, ranks, sizeof *s->reply));
  TRY_DONE(mem_alloc(&s->line, s->block, sizeof *s->line));
  TRY_DONE(mem_alloc(&s->send, ranks, sizeof *s->send));
  TRY_DONE(mem_alloc(&s->recv, ranks, sizeof *s->recv));
  TRY_DONE(mem_alloc(&s->send_n, ranks, sizeof *s->send_n));
  TRY_DONE(mem_alloc(&s->recv_n, ranks, sizeof *s->recv_n));
  if (s->ranks > 1) worker.on_step(worker.self, report_step, s);
done:
  if (err)
    share_free(s);
  else
    *out = s;
  return err;
}

void share_free(Share *s) {
  if (!s) return;
  if (s->ranks > 1) s->worker.on_step(s->worker.self, NULL, NULL);
  void *list[] = {s->plan, s->stretch, s->reply,  s->line, (void *)s->send,
                  s->recv, s->send_n,  s->recv_n, s->in};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) mem_free(list[i]);
  str_free(&s->out);
  mem_free(s);
}

size_t share_block(const Share *s) {
  return s->block;
}

static void clear_exchange(Share *s) {
  for (int r = 0; r < s->ranks; r++) s->send_n[r] = s->recv_n[r] = 0;
}

static void exchange_blocks(Share *s, const char *name) {
  comm_exchange(s->comm, name, s->send, s->send_n, s->recv, s->recv_n);
}

/* Broadcasts the fields `before` and `stretch` from rank 0 to every rank. */
static void broadcast_plan(Share *s) {
  s->plan[0] = s->before;
  for (int r = 0; r < s->ranks; r++) {
    s->plan[1 + 2 * r] = s->stretch[r].lines;
    s->plan[2 + 2 * r] = s->stretch[r].bytes;
  }
  comm_broadcast(s->comm, "plan of lines", s->plan,
                 (1 + 2 * (size_t)s->ranks) * sizeof *s->plan);
  s->before = s->plan[0];
  for (int r = 0; r < s->ranks; r++)
    s->stretch[r] = (Stretch){s->plan[1 + 2 * r], s->plan[2 + 2 * r]};
}

/* ---- functions of rank 0 ---- */

/* Assigns lines to each rank until the rank has its share of the bytes. A line counts as its
 * length + 1, so that empty lines are divided too. */
static void cut_stretches(Share *s, const Line *line, size_t n) {
  uint64_t all = 0, seen = 0;
  int r = 0;
  for (size_t i = 0; i < n; i++) all += line[i].len + 1;
  memset(s->stretch, 0, (size_t)s->ranks * sizeof *s->stretch);
  for (size_t i = 0; i < n; i++) {
    while (r + 1 < s->ranks && seen * (uint64_t)s->ranks >= all * (uint64_t)(r + 1)) r++;
    s->stretch[r].lines++;
    s->stretch[r].bytes += sizeof(uint32_t) + line[i].len;
    seen += line[i].len + 1;
  }
}

static Err send_stretches(Share *s, const Line *line) {
  const Line *at = line + s->stretch[0].lines;
  size_t sent = 0;
  str_clear(&s->out);
  for (int r = 1; r < s->ranks; r++) {
    for (size_t i = 0; i < s->stretch[r].lines; i++) {
      uint32_t len = (uint32_t)at[i].len;
      str_addn(&s->out, (const char *)&len, sizeof len);
    }
    for (size_t i = 0; i < s->stretch[r].lines; i++) str_addn(&s->out, at[i].text, at[i].len);
    at += s->stretch[r].lines;
  }
  TRY(str_check(&s->out));
  clear_exchange(s);
  for (int r = 1; r < s->ranks; r++) {
    s->send[r] = str_text(&s->out) + sent;
    s->send_n[r] = (size_t)s->stretch[r].bytes;
    sent += s->send_n[r];
  }
  exchange_blocks(s, "lines");
  return ERR_OK;
}

static Err receive_results(Share *s) {
  size_t all = 0, at = 0;
  clear_exchange(s);
  for (int r = 1; r < s->ranks; r++) {
    s->reply[r] = (Reply){0};
    s->recv[r] = &s->reply[r];
    s->recv_n[r] = s->stretch[r].lines ? sizeof *s->reply : 0;
  }
  exchange_blocks(s, "sizes of results");
  for (int r = 1; r < s->ranks; r++) all += s->reply[r].bytes;
  TRY(mem_grow(&s->in, &s->in_cap, all + 1, 1));
  for (int r = 1; r < s->ranks; r++) {
    s->recv[r] = s->in + at;
    s->recv_n[r] = (size_t)s->reply[r].bytes;
    at += s->recv_n[r];
  }
  exchange_blocks(s, "results");
  return ERR_OK;
}

/* Calls `take` with the results of one rank; `first` is the index of the rank's first line. */
static Err take_results(const char *at, size_t bytes, size_t first, LineTake take,
                        void *context) {
  for (size_t used = 0; used < bytes;) {
    Result result;
    memcpy(&result, at + used, sizeof result);
    TRY(take(context, first + result.index, result.k, at + used + sizeof result, result.score));
    used += sizeof result + result.len + 1;
  }
  return ERR_OK;
}

static void add_cut(LineCut *cut, LineCut more) {
  if (more.count && !cut->count) cut->first = more.first;
  cut->count += more.count;
}

static Err run_own(Share *s, const Line *line, size_t n, LineTake take, void *context,
                   LineCut *cut) {
  report_work(s);
  return n ? s->worker.run(s->worker.self, s->before, line, n, take, context, cut) : ERR_OK;
}

/* Wraps the caller's `take` on rank 0. That function may block for any time if the reader of the
 * output is slow, so the watchdog applies no time limit to it. */
typedef struct {
  const Share *share;
  LineTake take;
  void *context;
} Output;

static Err write_result(void *context, size_t i, int k, const char *text, float score) {
  const Output *o = context;
  comm_report(o->share->comm, COMM_NO_LIMIT, "writing results of lines from %llu on",
              (unsigned long long)o->share->before + 1);
  return o->take(o->context, i, k, text, score);
}

Err share_run(Share *s, const Line *line, size_t n, LineTake take, void *context,
              LineCut *cut) {
  Output output = {.share = s, .take = take, .context = context};
  *cut = (LineCut){0};
  cut_stretches(s, line, n);
  if (s->ranks > 1) {
    broadcast_plan(s);
    TRY(send_stretches(s, line));
  }
  size_t first = (size_t)s->stretch[0].lines, at = 0;
  TRY(run_own(s, line, first, write_result, &output, cut));
  if (s->ranks > 1) TRY(receive_results(s));
  for (int r = 1; r < s->ranks; r++) {
    size_t bytes = (size_t)s->reply[r].bytes;
    TRY(take_results(s->in + at, bytes, first, write_result, &output));
    add_cut(cut, (LineCut){s->reply[r].cut, s->reply[r].first_cut});
    first += (size_t)s->stretch[r].lines;
    at += bytes;
  }
  s->before += n;
  comm_report(s->comm, COMM_NO_LIMIT, "waiting for input after line %llu",
              (unsigned long long)s->before);
  return ERR_OK;
}

void share_end(Share *s) {
  memset(s->stretch, 0, (size_t)s->ranks * sizeof *s->stretch);
  if (s->ranks > 1) broadcast_plan(s);
}

/* ---- functions of the other ranks ---- */

static Err receive_stretch(Share *s, size_t *n) {
  const Stretch *mine = &s->stretch[s->rank];
  TRY(mem_grow(&s->in, &s->in_cap, (size_t)mine->bytes + 1, 1));
  clear_exchange(s);
  s->recv[0] = s->in;
  s->recv_n[0] = (size_t)mine->bytes;
  exchange_blocks(s, "lines");
  *n = (size_t)mine->lines;
  const char *text = s->in + *n * sizeof(uint32_t);
  for (size_t i = 0; i < *n; i++) {
    uint32_t len;
    memcpy(&len, s->in + i * sizeof len, sizeof len);
    s->line[i] = (Line){text, len};
    text += len;
  }
  return ERR_OK;
}

static Err keep_result(void *context, size_t i, int k, const char *text, float score) {
  Share *s = context;
  Result result = {(uint32_t)i, k, score, (uint32_t)strlen(text)};
  str_addn(&s->out, (const char *)&result, sizeof result);
  str_addn(&s->out, text, result.len + 1);
  return str_check(&s->out);
}

static void send_results(Share *s, size_t n, const LineCut *cut) {
  Reply reply = {s->out.len, cut->count, cut->first};
  clear_exchange(s);
  s->send[0] = &reply;
  s->send_n[0] = n ? sizeof reply : 0;
  exchange_blocks(s, "sizes of results");
  s->send[0] = s->out.s;
  s->send_n[0] = s->out.len;
  exchange_blocks(s, "results");
}

static bool is_end(const Share *s) {
  uint64_t lines = 0;
  for (int r = 0; r < s->ranks; r++) lines += s->stretch[r].lines;
  return lines == 0;
}

Err share_serve(Share *s) {
  for (;;) {
    LineCut cut = {0};
    size_t n;
    comm_report(s->comm, COMM_NO_LIMIT, "waiting for lines");
    broadcast_plan(s);
    if (is_end(s)) return ERR_OK;
    TRY(receive_stretch(s, &n));
    for (int r = 0; r < s->rank; r++) s->before += s->stretch[r].lines;
    str_clear(&s->out);
    TRY(run_own(s, s->line, n, keep_result, s, &cut));
    send_results(s, n, &cut);
  }
}
