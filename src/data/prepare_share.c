/* Encodes training text on several ranks into the same shards that one process would write.
 *
 * The lines are divided into stretches of consecutive lines. In every round each rank reads,
 * cleans and encodes one stretch: rank r stretch r of the round. At the end of a round each rank
 * sends a LineResult per line to all other ranks. From these all ranks compute the same counts
 * and the same lines at which shards end, because the end of a shard depends on the lengths of
 * all lines before it. Rank i % count writes shard i (prepare_shards.h); the other ranks send it
 * the ids of its lines. Only rank 0 appends to the manifest, in order, when a shard is on disk. A
 * stopped run can therefore be resumed exactly like a run of one process.
 *
 * With --dedup each rank stores the hashes h for which (h.high >> 32) % count is its number. It
 * receives them in the order of the lines, so that the first of several equal pairs is kept.
 *
 * A rank that fails passes its error to ranks_agree at the end of the round. Depends on pipeline,
 * ranks, prepare_shards. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "data/prepare_shards.h"

#define FILES_DIFFER                                                                          \
  "the files differ between hosts, or were changed while they were read; give all ranks the " \
  "same "                                                                                     \
  "files"

/* The counts that each rank sends at the end of a round. */
typedef struct {
  uint64_t lines;  /* lines of the rank's stretch */
  uint64_t shards; /* shards that the rank has written since the last round */
} Turn;

/* The hash of a line of this rank's stretch. */
typedef struct {
  uint64_t key[2];
  uint32_t line; /* index of the line in the stretch */
} LineKey;

typedef struct {
  uint8_t *bytes;
  size_t len, cap;
} Buffer;

typedef struct {
  Prepare *p;
  RankShards shards;
  Ranks *ranks;
  size_t count, rank; /* number of ranks, number of this rank */
  uint64_t stretch;
  uint64_t first; /* number of the first line of the round */
  bool is_over;   /* The last round is done, or all ranks have agreed on an error. */
  /* A round could not be finished because memory ran out; comm stops the other ranks. */
  bool is_broken;
  ErrRecord failure; /* error of this rank, sent to the other ranks at the end of the round */

  /* The stretch of this rank. */
  LineResult *line; /* (stretch) result of each line */
  size_t lines;
  int32_t *id; /* ids of the lines that are kept */
  size_t ids, id_cap;
  LineKey *key; /* (stretch) hashes of the lines, with --dedup */
  size_t keys;

  /* The round of all ranks. Arrays have `count` or `count` + 1 elements. */
  Turn *turn;
  LineResult *all; /* (count * stretch) the lines of rank r begin at all[at[r]] */
  size_t *at;
  size_t *off; /* byte offsets for allgather */
  Buffer *out, *in;
  const void **send;
  void **recv;
  size_t *send_n, *recv_n;
} Share;

static Err new_share(Share *s, Prepare *p) {
  *s = (Share){.p = p, .ranks = p->spec.ranks};
  s->count = (size_t)s->ranks->count;
  s->rank = (size_t)s->ranks->rank;
  s->stretch = prepare_pipeline(p).part.stretch;
  size_t n = s->count;
  TRY(mem_alloc(&s->line, s->stretch, sizeof *s->line));
  if (p->spec.dedup) TRY(mem_alloc(&s->key, s->stretch, sizeof *s->key));
  TRY(mem_alloc(&s->turn, n, sizeof *s->turn));
  TRY(mem_alloc(&s->all, n * s->stretch, sizeof *s->all));
  TRY(mem_alloc(&s->at, n + 1, sizeof *s->at));
  TRY(mem_alloc(&s->off, n + 1, sizeof *s->off));
  TRY(mem_alloc(&s->out, n, sizeof *s->out));
  TRY(mem_alloc(&s->in, n, sizeof *s->in));
  TRY(mem_alloc(&s->send, n, sizeof *s->send));
  TRY(mem_alloc(&s->recv, n, sizeof *s->recv));
  TRY(mem_alloc(&s->send_n, n, sizeof *s->send_n));
  TRY(mem_alloc(&s->recv_n, n, sizeof *s->recv_n));
  return shards_open(&s->shards, p);
}

static void free_share(Share *s) {
  shards_close(&s->shards);
  for (size_t r = 0; s->out && r < s->count; r++) mem_free(s->out[r].bytes);
  for (size_t r = 0; s->in && r < s->count; r++) mem_free(s->in[r].bytes);
  void *list[] = {s->line, s->id, s->key,          s->turn, s->all,    s->at,    s->off,
                  s->out,  s->in, (void *)s->send, s->recv, s->send_n, s->recv_n};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) mem_free(list[i]);
}

static Err append_bytes(Buffer *b, const void *bytes, size_t n) {
  if (n == 0) return ERR_OK;
  TRY(mem_grow(&b->bytes, &b->cap, b->len + n, 1));
  memcpy(b->bytes + b->len, bytes, n);
  b->len += n;
  return ERR_OK;
}

/* Sends out[r] to each rank r and receives recv_n[r] bytes into in[r]. */
static Err exchange_buffers(Share *s, const char *name) {
  for (size_t r = 0; r < s->count; r++) {
    TRY(mem_grow(&s->in[r].bytes, &s->in[r].cap, s->recv_n[r] + 1, 1));
    s->in[r].len = s->recv_n[r];
    s->send[r] = s->out[r].bytes;
    s->send_n[r] = s->out[r].len;
    s->recv[r] = s->in[r].bytes;
  }
  s->send_n[s->rank] = 0;
  s->recv_n[s->rank] = 0;
  s->ranks->exchange(s->ranks->context, name, s->send, s->send_n, s->recv, s->recv_n);
  return ERR_OK;
}

static void clear_buffers(Share *s) {
  for (size_t r = 0; r < s->count; r++) {
    s->out[r].len = 0;
    s->recv_n[r] = 0;
  }
}

/* Stores the error until the end of the round, when it is sent to all ranks. */
static void keep_failure(Share *s, Err err) {
  if (err && !s->failure.code) s->failure = err_take(err);
}

/* ---- duplicates ---- */

static size_t key_owner(const Share *s, const uint64_t key[2]) {
  return (size_t)(key[1] >> 32) % s->count;
}

/* Sends the hashes of this rank's stretch to the ranks that store them. */
static Err send_keys(Share *s) {
  uint64_t *numbers;
  size_t n = s->count;
  TRY(mem_alloc(&numbers, n * (n + 1), sizeof *numbers));
  uint64_t *mine = numbers + n * n;
  clear_buffers(s);
  Err err = ERR_OK;
  for (size_t i = 0; i < s->keys && !err; i++) {
    size_t owner = key_owner(s, s->key[i].key);
    mine[owner]++;
    err = append_bytes(&s->out[owner], s->key[i].key, sizeof s->key[i].key);
  }
  if (!err) err = ranks_gather(s->ranks, "numbers of hashes", mine, n * sizeof *mine, numbers);
  for (size_t r = 0; r < n; r++) s->recv_n[r] = numbers[r * n + s->rank] * sizeof s->key->key;
  mem_free(numbers);
  return err ? err : exchange_buffers(s, "hashes of pairs");
}

/* Adds each hash of the buffer to the set and replaces it by one byte: 1 if the set already
 * contained it. */
static Err look_up_keys(Share *s, Buffer *keys) {
  size_t n = keys->len / sizeof s->key->key;
  for (size_t i = 0; i < n; i++) {
    uint64_t key[2];
    bool before;
    memcpy(key, keys->bytes + i * sizeof key, sizeof key);
    TRY(seen_add(&s->p->seen, key, &before));
    keys->bytes[i] = before;
  }
  keys->len = n;
  return ERR_OK;
}

/* Returns to each rank which of its hashes are duplicates. Afterwards in[r] contains the answers
 * of rank r. */
static Err send_answers(Share *s) {
  for (size_t r = 0; r < s->count; r++) {
    size_t asked = s->out[r].len / sizeof s->key->key;
    Buffer answers = s->in[r];
    if (r == s->rank) {
      TRY(look_up_keys(s, &s->out[r]));
      continue;
    }
    TRY(look_up_keys(s, &answers));
    s->in[r] = s->out[r];
    s->out[r] = answers;
    s->recv_n[r] = asked;
  }
  TRY(exchange_buffers(s, "duplicates"));
  Buffer own = s->in[s->rank];
  s->in[s->rank] = s->out[s->rank];
  s->out[s->rank] = own;
  return ERR_OK;
}

static Err drop_duplicates(Share *s) {
  TRY(send_keys(s));
  TRY(send_answers(s));
  size_t *next = s->off;
  memset(next, 0, s->count * sizeof *next);
  for (size_t i = 0; i < s->keys; i++) {
    size_t owner = key_owner(s, s->key[i].key);
    if (s->in[owner].bytes[next[owner]++]) s->line[s->key[i].line].verdict = CLEAN_DUPLICATE;
  }
  return ERR_OK;
}

/* ---- rounds ---- */

static void gather_lines(Share *s) {
  s->at[0] = 0;
  for (size_t r = 0; r < s->count; r++) s->at[r + 1] = s->at[r] + s->turn[r].lines;
  for (size_t r = 0; r <= s->count; r++) s->off[r] = s->at[r] * sizeof *s->all;
  memcpy(s->all + s->at[s->rank], s->line, s->lines * sizeof *s->line);
  s->ranks->allgather(s->ranks->context, "results of lines", s->all, s->off);
}

static uint32_t id_bytes(const Share *s) {
  return s->p->builder.group[0].element_bytes;
}

/* Appends ids in the element size of the shard. */
static Err append_ids(Share *s, Buffer *b, const int32_t *ids, size_t n) {
  if (id_bytes(s) == 4) return append_bytes(b, ids, n * sizeof *ids);
  TRY(mem_grow(&b->bytes, &b->cap, b->len + n * sizeof(uint16_t), 1));
  for (size_t i = 0; i < n; i++) {
    uint16_t id = (uint16_t)ids[i];
    memcpy(b->bytes + b->len, &id, sizeof id);
    b->len += sizeof id;
  }
  return ERR_OK;
}

/* A line that is added to a shard: the rank that encoded it and the rank that writes it. */
typedef struct {
  size_t from, writer;
  const LineResult *line;
  const int32_t *ids; /* ids of the line, on the rank that encoded it */
} Kept;

/* Appends the ids to the buffer that this rank sends, or adds their size to the bytes that it
 * receives. */
static Err plan_line(Share *s, const Kept *k) {
  size_t n = (size_t)k->line->tokens[0] + k->line->tokens[1];
  if (k->from == k->writer) return ERR_OK;
  if (k->from == s->rank) return append_ids(s, &s->out[k->writer], k->ids, n);
  if (k->writer == s->rank) s->recv_n[k->from] += n * id_bytes(s);
  return ERR_OK;
}

/* Sends the ids of this rank's stretch to the ranks that write them. Computes the ends of the
 * shards in the same way as prepare_take_line. */
static Err exchange_ids(Share *s) {
  Prepare *p = s->p;
  size_t shard = p->train_shards;
  uint64_t bytes = prepare_open_bytes(p);
  const int32_t *ids = s->id;
  clear_buffers(s);
  for (size_t r = 0; r < s->count; r++) {
    for (size_t i = 0; i < s->turn[r].lines; i++) {
      const LineResult *line = &s->all[s->at[r] + i];
      size_t n = (size_t)line->tokens[0] + line->tokens[1];
      if (line->verdict != CLEAN_KEEP || s->first + r * s->stretch + i < p->lines_done)
        continue;
      TRY(plan_line(s, &(Kept){r, shard % s->count, line, ids}));
      if (r == s->rank) ids += n;
      bytes += n * id_bytes(s);
      if (bytes < p->spec.shard_bytes) continue;
      shard++;
      bytes = 0;
    }
  }
  return exchange_buffers(s, "ids");
}

/* Converts the ids that another rank sent to 32 bits. */
static const int32_t *read_ids(const Share *s, const uint8_t *from, size_t n, int32_t *ids) {
  if (id_bytes(s) == 4) {
    memcpy(ids, from, n * sizeof *ids);
    return ids;
  }
  for (size_t i = 0; i < n; i++) {
    uint16_t id;
    memcpy(&id, from + i * sizeof id, sizeof id);
    ids[i] = id;
  }
  return ids;
}

/* Counts the lines of rank r and adds them to the shards that this rank writes. */
static Err take_stretch(Share *s, size_t r, int32_t *room) {
  Prepare *p = s->p;
  const int32_t *own = s->id;
  const uint8_t *sent = s->in[r].bytes;
  for (size_t i = 0; i < s->turn[r].lines; i++) {
    const LineResult *line = &s->all[s->at[r] + i];
    uint64_t number = s->first + r * s->stretch + i;
    size_t n = (size_t)line->tokens[0] + line->tokens[1];
    bool has_ids = line->verdict == CLEAN_KEEP && number >= p->lines_done;
    const int32_t *ids = NULL;
    if (has_ids && shards_is_writer(&s->shards, p->train_shards)) {
      ids = r == s->rank ? own : read_ids(s, sent, n, room);
      if (r != s->rank) sent += n * id_bytes(s);
    }
    if (has_ids && r == s->rank) own += n;
    TRY(prepare_take_line(p, number, line, ids));
  }
  return ERR_OK;
}

static Err take_round(Share *s) {
  int32_t room[2 * SHARD_LONGEST];
  for (size_t r = 0; r < s->count; r++) TRY(take_stretch(s, r, room));
  return ERR_OK;
}

/* Removes the ids of duplicates, which were encoded before the duplicates were detected. */
static void remove_dropped_ids(Share *s) {
  const int32_t *from = s->id;
  int32_t *to = s->id;
  for (size_t i = 0; i < s->lines; i++) {
    LineResult *line = &s->line[i];
    size_t n = (size_t)line->tokens[0] + line->tokens[1];
    if (line->verdict == CLEAN_KEEP && n) {
      memmove(to, from, n * sizeof *to);
      to += n;
    }
    from += n;
    if (line->verdict != CLEAN_KEEP) memset(line->tokens, 0, sizeof line->tokens);
  }
}

/* Checks that a stretch is shorter than the others only at the end of the text. */
static Err check_turns(Share *s) {
  for (size_t r = 0; r < s->count; r++) {
    if (s->turn[r].lines < s->stretch) s->is_over = true;
    if (r && s->turn[r].lines && s->turn[r - 1].lines < s->stretch)
      return err_set(ERR_WORK,
                     "rank %zu on %s reads text after line %" PRIu64
                     ", where it ends for rank %zu on %s: " FILES_DIFFER,
                     r, s->ranks->host(s->ranks->context, (int)r), s->first + r * s->stretch,
                     r - 1, s->ranks->host(s->ranks->context, (int)r - 1));
  }
  return ERR_OK;
}

/* Ends the round: fails on all ranks if any rank has an error. */
static Err agree_on_round(Share *s, Err err) {
  if (!err && s->failure.code) err = err_give(&s->failure);
  err = ranks_agree(s->ranks, err);
  if (err) s->is_over = true;
  return err;
}

/* Exchanges the counts of each rank since the last round; rank 0 appends the shards on disk to
 * the manifest. */
static Err gather_turns(Share *s) {
  Turn turn = {.lines = s->lines, .shards = s->shards.written_n};
  TRY(ranks_gather(s->ranks, "lines of the ranks", &turn, sizeof turn, s->turn));
  uint64_t *count;
  Err failure = ERR_OK;
  TRY(mem_alloc(&count, s->count, sizeof *count));
  for (size_t r = 0; r < s->count; r++) count[r] = s->turn[r].shards;
  Err err = shards_report(&s->shards, count, &failure);
  mem_free(count);
  keep_failure(s, failure);
  return err;
}

/* Runs the collective part of a round, after every rank has encoded its stretch or failed with
 * `err`. */
static Err run_round(Share *s, Err err) {
  if (!err) err = shards_collect(&s->shards, SHARDS_POLL);
  TRY(agree_on_round(s, err));
  TRY(gather_turns(s));
  TRY(agree_on_round(s, check_turns(s)));
  if (s->p->spec.dedup) {
    TRY(drop_duplicates(s));
    remove_dropped_ids(s);
  }
  gather_lines(s);
  TRY(exchange_ids(s));
  keep_failure(s, take_round(s));
  s->first += s->count * s->stretch;
  s->lines = 0;
  s->ids = 0;
  s->keys = 0;
  char place[64];
  snprintf(place, sizeof place, "encoding lines from %" PRIu64 " on", s->first + 1);
  ranks_report(s->ranks, place);
  return ERR_OK;
}

static Err add_line(Share *s, const PipelineBlock *b, uint32_t k) {
  LineResult line = prepare_line_result(b, k);
  size_t n = (size_t)line.tokens[0] + line.tokens[1];
  if (prepare_is_compared(s->p, &line)) {
    LineKey *key = &s->key[s->keys++];
    key->line = (uint32_t)s->lines;
    TRY(prepare_hash_line(b, k, key->key));
  }
  if (n) {
    TRY(mem_grow(&s->id, &s->id_cap, s->ids + n, sizeof *s->id));
    memcpy(s->id + s->ids, b->ids.id + b->id_at[2 * k], n * sizeof *s->id);
    s->ids += n;
  }
  s->line[s->lines++] = line;
  return ERR_OK;
}

static Err take_block(void *context, const PipelineBlock *b) {
  Share *s = context;
  if (s->is_over || s->lines + b->lines > s->stretch)
    return err_set(ERR_WORK,
                   "the training text ends at line %" PRIu64
                   " or before for another rank: " FILES_DIFFER,
                   b->first);
  progress_set(&s->p->progress, b->bytes_read);
  for (uint32_t k = 0; k < b->lines; k++) TRY(add_line(s, b, k));
  if (s->lines < s->stretch) return ERR_OK;
  fault_point("prepare-stretch");
  Err err = run_round(s, prepare_check_stop(&s->p->state));
  s->is_broken = err && !s->ranks->has_agreed_error;
  return err;
}

/* Writes the last shard and appends all remaining shards to the manifest. */
static Err end_rounds(Share *s, Err err) {
  Prepare *p = s->p;
  if (!err && !s->failure.code && p->entry.file.pairs) err = p->end_train_shard(p);
  if (!err) err = shards_collect(&s->shards, SHARDS_WAIT);
  TRY(agree_on_round(s, err));
  s->lines = 0;
  TRY(gather_turns(s));
  return agree_on_round(s, ERR_OK);
}

static Err run_rounds(Share *s) {
  Prepare *p = s->p;
  PipelineSpec spec = prepare_pipeline(p);
  spec.tokenizer = &p->tokenizer;
  spec.skip = p->lines_done;
  Err err = pipeline_run(&spec, &p->meta->split[SPLIT_TRAIN], take_block, s);
  if (s->ranks->has_agreed_error || s->is_broken) return err;
  if (!s->is_over) {
    TRY(run_round(s, err ? err : prepare_check_stop(&p->state)));
    err = ERR_OK;
  }
  return end_rounds(s, err);
}

/* Sends the hash of each input file to all ranks. Each rank has computed some of them. */
static Err share_hashes(Share *s) {
  MetaSplit *split = &s->p->meta->split[SPLIT_TRAIN];
  size_t files = 2 * split->sources;
  char(*mine)[65], (*all)[65] = NULL;
  TRY(mem_alloc(&mine, files, sizeof *mine));
  Err err = mem_alloc(&all, files * s->count, sizeof *all);
  for (size_t i = 0; i < files; i++)
    memcpy(mine[i], split->source[i / 2].sha256[i % 2], sizeof *mine);
  if (!err) err = ranks_gather(s->ranks, "hashes of files", mine, files * sizeof *mine, all);
  for (size_t i = 0; i < files && !err; i++)
    memcpy(split->source[i / 2].sha256[i % 2], all[i % s->count * files + i], sizeof *mine);
  mem_free(all);
  mem_free(mine);
  return err;
}

Err prepare_share_train(Prepare *p) {
  Share s;
  Err err = new_share(&s, p);
  p->end_train_shard = shards_end;
  ranks_report(s.ranks, "encoding the training text");
  if (!err) err = ranks_agree(s.ranks, s.rank == 0 ? prepare_begin_train(p) : ERR_OK);
  if (!err) err = run_rounds(&s);
  if (!err) err = share_hashes(&s);
  if (!err) err = ranks_agree(s.ranks, prepare_end_train(p));
  free_share(&s);
  p->share = NULL;
  return err;
}
