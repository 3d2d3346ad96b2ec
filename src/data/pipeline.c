/* A reader thread, worker threads and the caller's thread around a ring buffer of blocks. Depends
 * on base, text, clean, input. */
#include "data/pipeline.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "data/input.h"

#define BLOCK_LINES 1024u
#define BLOCK_BYTES ((size_t)1 << 18) /* approximate bytes of one side of a block */
/* Maximum bytes of a line that is encoded, because SentencePiece needs 230 bytes of memory per
 * byte of a word. A longer line would exceed the 4,095 tokens that a shard allows, unless it
 * consists of unknown characters. */
#define MOST_ENCODED ((size_t)1 << 16)

typedef struct {
  PipelineBlock out;
  size_t input;        /* index in PipelineSpec.input */
  uint64_t input_line; /* number of the block's first line in that input, from 1 */
  ErrRecord error;     /* If set, the block contains an error instead of lines. */
  bool done;
} Block;

typedef struct {
  const PipelineSpec *spec;
  bool has_record;
  /* List of the input files; only `source` and `sources` are used. Owned by the reader thread
   * until all threads are joined. */
  MetaSplit inputs;
  Block *ring;
  size_t size;
  /* total numbers of blocks filled by the reader, claimed by workers, taken by the caller */
  uint64_t filled, claimed, taken;
  bool end, stop;
  pthread_mutex_t lock;
  pthread_cond_t changed;
} Pipe;

/* ---- reader thread ---- */

typedef struct {
  Pipe *pipe;
  Input *in[2]; /* in[1] is NULL if one tab-separated file contains both sides */
  size_t input;
  uint64_t line, read_before; /* lines read of all inputs; bytes of the completed inputs */
} Source;

static const char *name_of(const Source *s, int side) {
  return input_path(s->in[side]);
}

static Err add_raw(PipelineBlock *b, int side, const char *line, size_t len) {
  str_addn(&b->raw[side], line, len);
  b->raw_at[side][b->lines + 1] = (uint32_t)b->raw[side].len;
  return str_check(&b->raw[side]);
}

/* Returns the error for two files with different numbers of lines. Called when one of them has
 * ended. */
static Err refuse_lengths(Source *s) {
  for (int side = 0; side < 2; side++) TRY(input_skip(s->in[side], UINT64_MAX));
  return err_set(ERR_WORK,
                 "%s has %llu lines and %s has %llu: the two sides must match line by line; "
                 "give files with the same number of lines",
                 name_of(s, 0), (unsigned long long)input_number(s->in[0]), name_of(s, 1),
                 (unsigned long long)input_number(s->in[1]));
}

/* Reads the next line of each side; sets *end at the end of both. */
static Err read_pair(Source *s, const char *line[2], size_t len[2], bool *end) {
  TRY(input_line(s->in[0], &line[0], &len[0]));
  if (!s->in[1]) {
    *end = !line[0];
    if (*end) return ERR_OK;
    const char *tab = memchr(line[0], '\t', len[0]);
    if (!tab) {
      return err_set(ERR_WORK,
                     "%s:%llu: no tab; a single file needs source, tab, target on every line",
                     name_of(s, 0), (unsigned long long)input_number(s->in[0]));
    }
    size_t first = (size_t)(tab - line[0]);
    const char *second =
        memchr(tab + 1, '\t', len[0] - first - 1); /* Columns after the second are ignored. */
    line[1] = tab + 1;
    len[1] = second ? (size_t)(second - line[1]) : len[0] - first - 1;
    len[0] = first;
    return ERR_OK;
  }
  TRY(input_line(s->in[1], &line[1], &len[1]));
  if (!line[0] != !line[1]) return refuse_lengths(s);
  *end = !line[0];
  return ERR_OK;
}

/* Returns true if this process hashes the file, for which it must read all of it. */
static bool is_hashed(const Source *s, int side) {
  const PipelinePart *part = &s->pipe->spec->part;
  if (!s->pipe->has_record) return false;
  return part->count == 0 || (2 * s->input + (size_t)side) % part->count == part->index;
}

/* Skips n lines of a file; with a line index it seeks instead of reading them. */
static Err skip_lines(Source *s, int side, uint64_t n) {
  const LineIndex *lines = s->pipe->spec->part.lines;
  Input *in = s->in[side];
  uint64_t to = input_number(in) + n;
  if (lines) lines += 2 * s->input + (size_t)side;
  if (lines && lines->chunks && !is_hashed(s, side)) {
    uint64_t before;
    uint64_t offset = line_index_find(lines, to, &before);
    if (offset > input_bytes(in)) TRY(input_seek(in, offset, before));
  }
  return input_skip(in, to - input_number(in));
}

/* Skips the lines that belong to other parts. */
static Err skip_other_parts(Source *s, bool *end) {
  const PipelinePart *part = &s->pipe->spec->part;
  if (part->count == 0) return ERR_OK;
  uint64_t stretch = s->line / part->stretch;
  uint64_t ahead = (part->index + part->count - stretch % part->count) % part->count;
  if (ahead == 0) return ERR_OK;
  uint64_t n = (stretch + ahead) * part->stretch - s->line;
  uint64_t first = input_number(s->in[0]);
  for (int side = 0; side < 2 && s->in[side]; side++) TRY(skip_lines(s, side, n));
  if (s->in[1] && input_number(s->in[0]) != input_number(s->in[1])) return refuse_lengths(s);
  s->line += input_number(s->in[0]) - first;
  *end = input_number(s->in[0]) - first < n;
  return ERR_OK;
}

/* Returns the maximum number of lines of the next block. */
static uint32_t count_room(const Source *s) {
  const PipelinePart *part = &s->pipe->spec->part;
  if (part->count == 0) return BLOCK_LINES;
  uint64_t left = part->stretch - s->line % part->stretch;
  return left < BLOCK_LINES ? (uint32_t)left : BLOCK_LINES;
}

static Err fill_block(Source *s, Block *block, bool *end) {
  PipelineBlock *b = &block->out;
  const char *line[2] = {0};
  size_t len[2];
  uint32_t room = count_room(s);
  b->lines = 0;
  for (int side = 0; side < 2; side++) str_clear(&b->raw[side]);
  block->input = s->input;
  block->input_line = input_number(s->in[0]) + 1;
  b->first = s->line;
  while (!*end && b->lines < room && b->raw[0].len < BLOCK_BYTES &&
         b->raw[1].len < BLOCK_BYTES) {
    TRY(read_pair(s, line, len, end));
    if (*end) break;
    for (int side = 0; side < 2; side++) TRY(add_raw(b, side, line[side], len[side]));
    b->lines++;
  }
  s->line += b->lines;
  b->bytes_read =
      s->read_before + input_bytes(s->in[0]) + (s->in[1] ? input_bytes(s->in[1]) : 0);
  return ERR_OK;
}

/* Waits for a free block; returns NULL after a stop. */
static Block *free_block(Pipe *p) {
  pthread_mutex_lock(&p->lock);
  while (!p->stop && p->filled - p->taken >= p->size) pthread_cond_wait(&p->changed, &p->lock);
  Block *block = p->stop ? NULL : &p->ring[p->filled % p->size];
  pthread_mutex_unlock(&p->lock);
  return block;
}

/* Passes the block that free_block returned to the workers. */
static void publish_block(Pipe *p) {
  pthread_mutex_lock(&p->lock);
  p->filled++;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

/* Signals the workers that no more blocks follow. */
static void publish_end(Pipe *p) {
  pthread_mutex_lock(&p->lock);
  p->end = true;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

static Err record_source(Source *s) {
  const TextPair *input = &s->pipe->spec->input[s->input];
  MetaSource m = {.lines = input_number(s->in[0])};
  for (int side = 0; side < 2 && s->in[side]; side++) {
    if (!utf8_escape(input->name[side], m.name[side], sizeof m.name[side]))
      return err_set(ERR_WORK, "the file name %s is too long; rename the file",
                     input->name[side]);
    m.bytes[side] = input_bytes(s->in[side]);
    s->read_before += m.bytes[side];
    input_sha256(s->in[side], m.sha256[side]);
  }
  if (m.lines == 0)
    return err_set(ERR_WORK, "%s is empty; it must have one sentence per line", name_of(s, 0));
  return s->pipe->has_record ? meta_add_source(&s->pipe->inputs, &m) : ERR_OK;
}

static Err read_input(Source *s) {
  const TextPair *input = &s->pipe->spec->input[s->input];
  for (int side = 0; side < 2 && input->path[side]; side++)
    TRY(input_open(&s->in[side], input->path[side]));
  for (int side = 0; side < 2 && s->in[side]; side++) {
    if (!is_hashed(s, side)) input_end_hash(s->in[side]);
  }
  for (bool end = false; !end;) {
    Block *block = free_block(s->pipe);
    if (!block) return ERR_OK;
    block->error = (ErrRecord){0};
    TRY(skip_other_parts(s, &end));
    block->out.lines = 0;
    if (!end) TRY(fill_block(s, block, &end));
    if (block->out.lines) publish_block(s->pipe);
  }
  return record_source(s);
}

static void *read_inputs(void *argument) {
  Source s = {.pipe = argument};
  Err err = ERR_OK;
  for (; s.input < s.pipe->spec->inputs && !err; s.input++) {
    s.in[0] = s.in[1] = NULL;
    err = read_input(&s);
    ErrRecord kept = err_take(err);
    for (int side = 0; side < 2; side++) input_close(s.in[side]);
    if (err) {
      Block *block = free_block(s.pipe);
      if (block) {
        block->out.lines = 0;
        block->error = kept;
        publish_block(s.pipe);
      }
    }
  }
  publish_end(s.pipe);
  return NULL;
}

/* ---- worker threads ---- */

static Err bad_utf8(const Pipe *p, const Block *block, uint32_t k, int side, size_t offset) {
  const TextPair *input = &p->spec->input[block->input];
  const Str *raw = &block->out.raw[side];
  return err_set(ERR_WORK,
                 "%s:%llu: byte %zu of the line (0x%02x) is not UTF-8; convert the file, or "
                 "leave such pairs out with --bad-utf8 drop",
                 input->path[side] ? input->path[side] : input->path[0],
                 (unsigned long long)(block->input_line + k), offset + 1,
                 (unsigned char)raw->s[block->out.raw_at[side][k] + offset]);
}

/* Returns the error for a NUL byte in held-out text, of which no line may be dropped. */
static Err refuse_nul(const Pipe *p, const Block *block, uint32_t k, int side, size_t offset) {
  const TextPair *input = &p->spec->input[block->input];
  return err_set(ERR_WORK,
                 "%s:%llu: byte %zu of the line is NUL, and held-out text must keep all its "
                 "lines; remove such bytes with tr -d '\\000'",
                 input->path[side] ? input->path[side] : input->path[0],
                 (unsigned long long)(block->input_line + k), offset + 1);
}

/* Validates and cleans line k of both sides, decides whether the pair is kept, and encodes it. */
static Err work_on_line(const Pipe *p, Block *block, uint32_t k) {
  PipelineBlock *b = &block->out;
  const PipelineSpec *spec = p->spec;
  CleanLine line[2] = {{0}};
  CleanVerdict verdict = CLEAN_KEEP;
  for (int side = 0; side < 2; side++) {
    const char *raw = str_text(&b->raw[side]) + b->raw_at[side][k];
    size_t len = b->raw_at[side][k + 1] - b->raw_at[side][k];
    size_t valid = utf8_valid(raw, len);
    const char *nul = memchr(raw, '\0', len);
    if (valid < len) {
      if (!spec->drop_bad_utf8) return bad_utf8(p, block, k, side, valid);
      verdict = CLEAN_BAD_UTF8;
    } else if (nul) {
      if (!spec->rules) return refuse_nul(p, block, k, side, (size_t)(nul - raw));
      if (verdict == CLEAN_KEEP) verdict = CLEAN_NUL;
    } else {
      line[side] = clean_squeeze(raw, len, b->text[side].s + b->text[side].len);
      b->text[side].len += line[side].len;
    }
    b->at[side][k + 1] = (uint32_t)b->text[side].len;
  }
  if (verdict == CLEAN_KEEP) {
    if (spec->rules)
      verdict = clean_judge(spec->rules, &line[0], &line[1]);
    else if (line[0].len == 0 || line[1].len == 0)
      verdict = CLEAN_EMPTY;
  }
  if (verdict == CLEAN_KEEP && spec->tokenizer &&
      (line[0].len > MOST_ENCODED || line[1].len > MOST_ENCODED))
    verdict = CLEAN_TOKENS;
  bool encode = verdict == CLEAN_KEEP && spec->tokenizer && b->first + k >= spec->skip;
  size_t begin = b->ids.len;
  for (int side = 0; side < 2; side++) {
    size_t before = b->ids.len;
    if (encode)
      TRY(tokenizer_encode(spec->tokenizer, b->text[side].s + b->at[side][k], line[side].len,
                           &b->ids));
    if (b->ids.len - before > spec->max_tokens && encode) verdict = CLEAN_TOKENS;
    if (encode && b->ids.len == before)
      verdict = CLEAN_EMPTY; /* The line consists of characters that the tokenizer ignores. */
    b->id_at[2 * k + (uint32_t)side + 1] = (uint32_t)b->ids.len;
  }
  if (encode && verdict != CLEAN_KEEP) {
    b->ids.len = begin;
    b->id_at[2 * k + 1] = b->id_at[2 * k + 2] = (uint32_t)begin;
  }
  b->verdict[k] = (uint8_t)verdict;
  return ERR_OK;
}

static Err work_on(const Pipe *p, Block *block) {
  PipelineBlock *b = &block->out;
  b->ids.len = 0;
  /* Reducing white space never makes a text longer, so raw.len + 1 bytes are sufficient. */
  for (int side = 0; side < 2; side++) {
    b->text[side].len = 0;
    TRY(mem_grow(&b->text[side].s, &b->text[side].cap, b->raw[side].len + 1, 1));
  }
  for (uint32_t k = 0; k < b->lines; k++) TRY(work_on_line(p, block, k));
  return ERR_OK;
}

static void *process_blocks(void *argument) {
  Pipe *p = argument;
  pthread_mutex_lock(&p->lock);
  for (;;) {
    while (!p->stop && !p->end && p->claimed == p->filled)
      pthread_cond_wait(&p->changed, &p->lock);
    if (p->stop || p->claimed == p->filled) break;
    Block *block = &p->ring[p->claimed++ % p->size];
    pthread_mutex_unlock(&p->lock);
    if (!block->error.code) {
      Err err = work_on(p, block);
      if (err) block->error = err_take(err);
    }
    pthread_mutex_lock(&p->lock);
    block->done = true;
    pthread_cond_broadcast(&p->changed);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

/* ---- thread of the caller ---- */

static Err take_all(Pipe *p, PipelineTake take, void *context) {
  for (;;) {
    Block *block = &p->ring[p->taken % p->size];
    pthread_mutex_lock(&p->lock);
    while (!block->done && !(p->end && p->taken == p->filled))
      pthread_cond_wait(&p->changed, &p->lock);
    bool over = !block->done;
    pthread_mutex_unlock(&p->lock);
    if (over) return ERR_OK;
    if (block->error.code) return err_give(&block->error);
    TRY(take(context, &block->out));
    pthread_mutex_lock(&p->lock);
    block->done = false;
    p->taken++;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
  }
}

static Err new_block(PipelineBlock *b) {
  size_t n = BLOCK_LINES;
  TRY(mem_alloc(&b->verdict, n, sizeof *b->verdict));
  TRY(mem_alloc(&b->id_at, 2 * n + 1, sizeof *b->id_at));
  for (int side = 0; side < 2; side++) {
    TRY(mem_alloc(&b->raw_at[side], n + 1, sizeof *b->raw_at[side]));
    TRY(mem_alloc(&b->at[side], n + 1, sizeof *b->at[side]));
  }
  return ERR_OK;
}

static void free_ring(Pipe *p) {
  for (size_t i = 0; p->ring && i < p->size; i++) {
    PipelineBlock *b = &p->ring[i].out;
    mem_free(b->verdict);
    mem_free(b->id_at);
    ids_free(&b->ids);
    for (int side = 0; side < 2; side++) {
      mem_free(b->raw_at[side]);
      mem_free(b->at[side]);
      str_free(&b->raw[side]);
      str_free(&b->text[side]);
    }
  }
  mem_free(p->ring);
}

static Err run_threads(Pipe *p, PipelineTake take, void *context) {
  size_t n = (size_t)p->spec->threads + 1, started = 0;
  pthread_t *thread;
  TRY(mem_alloc(&thread, n, sizeof *thread));
  Err err = ERR_OK;
  for (; started < n && !err; started++) {
    if (pthread_create(&thread[started], NULL, started == 0 ? read_inputs : process_blocks,
                       p)) {
      err = err_set(ERR_WORK, "cannot start %zu threads; use a smaller --threads", n);
      break;
    }
  }
  if (!err) err = take_all(p, take, context);
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  for (size_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
  mem_free(thread);
  return err;
}

Err pipeline_run(const PipelineSpec *spec, MetaSplit *split, PipelineTake take, void *context) {
  Pipe p = {.spec = spec, .has_record = split != NULL, .size = 4 * (size_t)spec->threads + 4};
  /* A larger ring lets the reader continue while this rank waits for the others after its stretch
   * of lines. */
  if (spec->part.count) p.size += spec->part.stretch / BLOCK_LINES;
  pthread_mutex_init(&p.lock, NULL);
  pthread_cond_init(&p.changed, NULL);
  Err err = mem_alloc(&p.ring, p.size, sizeof *p.ring);
  for (size_t i = 0; i < p.size && !err; i++) err = new_block(&p.ring[i].out);
  if (!err) err = run_threads(&p, take, context);
  for (size_t i = 0; i < p.inputs.sources && !err; i++)
    err = meta_add_source(split, &p.inputs.source[i]);
  mem_free(p.inputs.source);
  free_ring(&p);
  pthread_cond_destroy(&p.changed);
  pthread_mutex_destroy(&p.lock);
  return err;
}
