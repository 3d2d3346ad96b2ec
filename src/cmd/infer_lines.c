/* Reads lines in blocks and passes the blocks to the ranks. Depends on infer.h, data/input,
 * data/table. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/utf8.h"
#include "cmd/infer.h"

/* Milliseconds to wait for another line before a block is worked on. */
#define LINE_WAIT 20
/* Bytes after which a block is complete, however few lines it has: it bounds the memory. */
#define BLOCK_BYTES ((size_t)1 << 26)

/* ---- one line ---- */

static Err check_text(const LineJob *job, const char *line, size_t len) {
  const Input *in = job->in;
  size_t valid = utf8_valid(line, len);
  const char *nul = job->source.takes_nul || !len ? NULL : memchr(line, 0, len);
  if (valid == len && !nul) return ERR_OK;
  if (nul && (size_t)(nul - line) < valid)
    return err_set(ERR_WORK,
                   "%s:%llu: byte %zu of the line is NUL; remove such bytes "
                   "with tr -d '\\000'",
                   input_path(in), (unsigned long long)input_number(in),
                   (size_t)(nul - line) + 1);
  return err_set(ERR_WORK,
                 "%s:%llu: byte %zu of the line is not UTF-8; convert the text with iconv -t "
                 "UTF-8, or leave such bytes out with iconv -c",
                 input_path(in), (unsigned long long)input_number(in), valid + 1);
}

/* Replaces the tab between the two texts of a pair. */
static Err mark_pair(const LineJob *job, char *line, size_t len) {
  char *tab = len ? memchr(line, '\t', len) : NULL;
  size_t rest = tab ? len - (size_t)(tab - line) - 1 : 0;
  if (!tab || memchr(tab + 1, '\t', rest))
    return err_set(
        ERR_WORK,
        "%s:%llu: the line has %s; the model classifies pairs: write the two texts with "
        "one tab between them, or name two columns of a table with --text-column",
        input_path(job->in), (unsigned long long)input_number(job->in),
        tab ? "more than one tab" : "no tab");
  *tab = job->source.pair_mark;
  return ERR_OK;
}

/* Appends the next line of a text. */
static Err read_line(const LineJob *job, Str *text, bool *end) {
  const char *line;
  size_t len, at = text->len;
  TRY(input_line(job->in, &line, &len));
  *end = line == NULL;
  if (*end) return ERR_OK;
  TRY(check_text(job, line, len));
  str_addn(text, line, len);
  TRY(str_check(text));
  if (!job->source.has_pairs) return ERR_OK;
  Err err = mark_pair(job, text->s + at, len);
  if (err) text->len = at;
  return err;
}

/* Appends the texts of the next row of a table. */
static Err read_row(const LineJob *job, Str *text, bool *end) {
  const TableField *row;
  TRY(table_row(job->table, &row));
  *end = row == NULL;
  if (*end) return ERR_OK;
  for (size_t i = 0; i < job->source.columns; i++) {
    if (i) str_addc(text, job->source.pair_mark);
    str_addn(text, row[i].text, row[i].len);
  }
  return str_check(text);
}

/* ---- blocks ---- */

static void show_prompt(const LineJob *job) {
  if (job->has_prompts) fputs("> ", stderr);
}

static bool is_ready(const LineJob *job) {
  return job->table || input_ready(job->in, LINE_WAIT);
}

/* Reads a block: at least one line, then further lines as long as they arrive without delay. On
 * a terminal a block is one line. at[i]: offset of line i in `text`; at[0] is 0. */
static Err read_block(const LineJob *job, Str *text, size_t *at, size_t *n, bool *end) {
  size_t most = job->is_interactive ? 1 : share_block(job->share);
  str_clear(text);
  for (*n = 0; *n < most && text->len < BLOCK_BYTES && (*n == 0 || is_ready(job));) {
    /* for the first line the prompt has been printed before input_open, which blocks */
    if (job->lines > 0) show_prompt(job);
    TRY(job->table ? read_row(job, text, end) : read_line(job, text, end));
    if (*end) {
      if (job->has_prompts) fputc('\n', stderr);
      break;
    }
    at[++*n] = text->len;
  }
  return ERR_OK;
}

/* Reads a block and works on it. If a line cannot be read, the lines before it still are. */
static Err run_block(LineJob *job, Str *text, size_t *at, Line *line, bool *end) {
  size_t n;
  LineCut cut;
  ErrRecord fault = err_take(read_block(job, text, at, &n, end));
  for (size_t i = 0; i < n; i++) line[i] = (Line){str_text(text) + at[i], at[i + 1] - at[i]};
  if (n > 0) {
    TRY(share_run(job->share, line, n, job->take, job->context, &cut));
    TRY(out_flush());
    job->lines += n;
    job->done(job->context, n, &cut);
  }
  return err_give(&fault);
}

static Err open_source(LineJob *job) {
  const LineSpec *s = &job->source;
  TableKind kind;
  if (!s->columns) return input_open(&job->in, s->path);
  TRY(table_kind(s->path, &kind));
  return table_open(&job->table, s->path, kind, s->column, s->columns);
}

bool infer_is_terminal(const LineSpec *source) {
  return strcmp(source->path, "-") == 0 && isatty(STDIN_FILENO);
}

Err infer_run(LineJob *job) {
  Str text = {0};
  size_t block = share_block(job->share), *at = NULL;
  Line *line = NULL;
  Err err;
  job->is_interactive = infer_is_terminal(&job->source);
  job->has_prompts = job->is_interactive && log_is_terminal() && !log_is_quiet();
  TRY_DONE(mem_alloc(&line, block, sizeof *line));
  TRY_DONE(mem_alloc(&at, block + 1, sizeof *at));
  if (job->has_prompts) log_info("%s", job->hint);
  show_prompt(job);
  TRY_DONE(open_source(job));
  for (bool end = false; !end;) TRY_DONE(run_block(job, &text, at, line, &end));
  share_end(job->share);
done:
  input_close(job->in);
  table_close(job->table);
  mem_free(at);
  str_free(&text);
  mem_free(line);
  return err;
}
