/* Encodes the text into shards: validation and test as one shard each, training line by line into
 * many. Depends on pipeline, shard, manifest, seen. */
#include <string.h>

#include "base/fault.h"
#include "data/prepare_finish.h"
#include "data/prepare_work.h"

LineResult prepare_line_result(const PipelineBlock *b, uint32_t k) {
  const uint32_t *at = b->id_at + 2 * k;
  LineResult line = {.verdict = b->verdict[k]};
  for (int side = 0; side < 2; side++) {
    line.text_bytes[side] = b->at[side][k + 1] - b->at[side][k];
    line.tokens[side] = (uint16_t)(at[side + 1] - at[side]);
  }
  return line;
}

static const int32_t *line_ids(const PipelineBlock *b, uint32_t k) {
  return b->ids.id + b->id_at[2 * k];
}

/* Adds a pair to the open shard and its counts. ids: source ids, then target ids; NULL if another
 * rank writes the shard. */
static Err keep_pair(Prepare *p, const LineResult *line, const int32_t *ids) {
  const uint16_t *len = line->tokens;
  if (ids) TRY(shard_add_pair(&p->builder, ids, len[0], ids + len[0], len[1]));
  ManifestEntry *e = &p->entry;
  e->file.pairs++;
  for (int side = 0; side < 2; side++) {
    e->tokens[side] += len[side];
    e->text_bytes[side] += line->text_bytes[side];
    if (len[side] > e->longest[side]) e->longest[side] = len[side];
  }
  return ERR_OK;
}

/* Adds the counts of the open shard to the split and clears them. */
static void finish_counts(Prepare *p, Split which) {
  manifest_add_counts(&p->meta->split[which], &p->entry);
  p->entry = (ManifestEntry){0};
}

Err prepare_write_shard(const Prepare *p, ShardBuilder *builder, ManifestEntry *e) {
  char path[FILE_PATH_MAX];
  TRY(prepare_path(&p->state, e->file.name, path));
  return shard_write(builder, path, &e->file.bytes, e->file.sha256);
}

Err prepare_record_shard(Prepare *p, const ManifestEntry *e) {
  char path[FILE_PATH_MAX];
  TRY(prepare_path(&p->state, MANIFEST_NAME, path));
  TRY(manifest_append(path, e));
  return meta_add_shard(&p->meta->split[e->split], &e->file);
}

/* Writes the shard and then its manifest line, so that every line of the manifest has its shard
 * on disk. */
static Err finish_shard(Prepare *p, Split which, const char *name) {
  ManifestEntry *e = &p->entry;
  e->split = which;
  snprintf(e->file.name, sizeof e->file.name, "%s", name);
  TRY(prepare_write_shard(p, &p->builder, e));
  TRY(prepare_record_shard(p, e));
  finish_counts(p, which);
  return ERR_OK;
}

/* Output of a validation or test text: the raw text is stored unchanged for BLEU. Pairs that are
 * not too long are also encoded. */
typedef struct {
  Prepare *p;
  FileWriter raw[2];
} HeldOut;

static Err keep_held_out(Prepare *p, const PipelineBlock *b, uint32_t k) {
  LineResult line = prepare_line_result(b, k);
  return keep_pair(p, &line, line_ids(b, k));
}

static Err take_held_out(void *context, const PipelineBlock *b) {
  HeldOut *h = context;
  ManifestEntry *e = &h->p->entry;
  e->lines += b->lines;
  for (uint32_t k = 0; k < b->lines; k++) {
    for (int side = 0; side < 2; side++) {
      size_t len = b->raw_at[side][k + 1] - b->raw_at[side][k];
      TRY(file_put(&h->raw[side], str_text(&b->raw[side]) + b->raw_at[side][k], len));
      TRY(file_put(&h->raw[side], "\n", 1));
    }
    if (b->verdict[k] == CLEAN_KEEP)
      TRY(keep_held_out(h->p, b, k));
    else
      e->dropped[b->verdict[k]]++;
  }
  return ERR_OK;
}

Err prepare_encode_held_out(Prepare *p, Split which, const TextPair *input) {
  if (!input->path[0]) return ERR_OK;
  static const char *const raw_name[SPLITS][2] = {
      {0}, {"valid.src", "valid.ref"}, {"test.src", "test.ref"}};
  PipelineSpec spec = prepare_pipeline(p);
  spec.input = input;
  spec.inputs = 1;
  spec.part = (PipelinePart){0};
  spec.rules = NULL;
  spec.tokenizer = &p->tokenizer;
  spec.drop_bad_utf8 = false; /* BLEU is computed on all lines, so none may be dropped. */
  MetaSplit *split = &p->meta->split[which];
  HeldOut h = {.p = p, .raw = {{.fd = -1}, {.fd = -1}}};
  char path[FILE_PATH_MAX], name[16];
  Err err;
  for (int side = 0; side < 2; side++) {
    TRY_DONE(prepare_path(&p->state, raw_name[which][side], path));
    TRY_DONE(file_create(&h.raw[side], path));
  }
  TRY_DONE(pipeline_run(&spec, split, take_held_out, &h));
  for (int side = 0; side < 2; side++) {
    MetaFile *raw = &split->raw[side];
    snprintf(raw->name, sizeof raw->name, "%s", raw_name[which][side]);
    raw->bytes = h.raw[side].bytes;
    TRY_DONE(file_finish(&h.raw[side], raw->sha256));
  }
  if (p->entry.file.pairs == 0) {
    err = err_set(ERR_WORK,
                  "no line of the %s text can be used: every line is empty or has more than "
                  "--max-tokens tokens; check the text",
                  split_name[which]);
    goto done;
  }
  snprintf(name, sizeof name, "%s.tok", split_name[which]);
  err = finish_shard(p, which, name);
done:
  for (int side = 0; side < 2; side++) file_abandon(&h.raw[side]);
  return err;
}

ManifestEntry prepare_next_entry(Prepare *p) {
  ManifestEntry e = p->entry;
  e.split = SPLIT_TRAIN;
  snprintf(e.file.name, sizeof e.file.name, "train-%05zu.tok", p->train_shards);
  p->train_shards++;
  finish_counts(p, SPLIT_TRAIN);
  return e;
}

static Err end_train_shard(Prepare *p) {
  ManifestEntry e = prepare_next_entry(p);
  TRY(prepare_write_shard(p, &p->builder, &e));
  TRY(prepare_record_shard(p, &e));
  fault_point("prepare-shard");
  return prepare_check_windows(&p->meta->split[SPLIT_TRAIN], p->spec.window_pairs);
}

bool prepare_is_compared(const Prepare *p, const LineResult *line) {
  return p->spec.dedup && (line->verdict == CLEAN_KEEP || line->verdict == CLEAN_TOKENS);
}

Err prepare_hash_line(const PipelineBlock *b, uint32_t k, uint64_t key[2]) {
  const char *text[2];
  size_t len[2];
  for (int side = 0; side < 2; side++) {
    text[side] = b->text[side].s + b->at[side][k];
    len[side] = b->at[side][k + 1] - b->at[side][k];
  }
  return seen_hash(text, len, key);
}

uint64_t prepare_open_bytes(const Prepare *p) {
  return (p->entry.tokens[0] + p->entry.tokens[1]) * p->builder.group[0].element_bytes;
}

Err prepare_take_line(Prepare *p, uint64_t number, const LineResult *line, const int32_t *ids) {
  ManifestEntry *e = &p->entry;
  /* With --resume: the line is already in a finished shard. */
  if (number < p->lines_done) return ERR_OK;
  e->lines++;
  if (line->verdict != CLEAN_KEEP) {
    e->dropped[line->verdict]++;
    return ERR_OK;
  }
  if (p->meta->split[SPLIT_TRAIN].pairs + e->file.pairs >= p->most_pairs)
    return prepare_too_many_pairs(p);
  TRY(keep_pair(p, line, ids));
  return prepare_open_bytes(p) >= p->spec.shard_bytes ? p->end_train_shard(p) : ERR_OK;
}

static Err take_train(void *context, const PipelineBlock *b) {
  Prepare *p = context;
  TRY(prepare_check_stop(&p->state));
  progress_set(&p->progress, b->bytes_read);
  for (uint32_t k = 0; k < b->lines; k++) {
    LineResult line = prepare_line_result(b, k);
    if (prepare_is_compared(p, &line)) {
      uint64_t key[2];
      bool before;
      TRY(prepare_hash_line(b, k, key));
      TRY(seen_add(&p->seen, key, &before));
      if (before) line.verdict = CLEAN_DUPLICATE;
    }
    TRY(prepare_take_line(p, b->first + k, &line, line_ids(b, k)));
  }
  return ERR_OK;
}

Err prepare_begin_train(Prepare *p) {
  progress_begin(&p->progress, "encode", "bytes", p->input_bytes);
  return prepare_check_windows(&p->meta->split[SPLIT_TRAIN], p->spec.window_pairs);
}

Err prepare_end_train(Prepare *p) {
  MetaSplit *split = &p->meta->split[SPLIT_TRAIN];
  finish_counts(p, SPLIT_TRAIN); /* Counts the lines after the last pair that was kept. */
  progress_end(&p->progress);
  if (split->pairs == 0) {
    return err_set(ERR_WORK,
                   "no pair is left after cleaning %llu lines; check the text, or relax limits "
                   "such as --max-words and --max-ratio",
                   (unsigned long long)split->lines);
  }
  return ERR_OK;
}

Err prepare_encode_train(Prepare *p) {
  PipelineSpec spec = prepare_pipeline(p);
  spec.tokenizer = &p->tokenizer;
  spec.skip = p->lines_done;
  p->end_train_shard = end_train_shard;
  TRY(prepare_begin_train(p));
  TRY(pipeline_run(&spec, &p->meta->split[SPLIT_TRAIN], take_train, p));
  if (p->builder.examples) TRY(end_train_shard(p));
  return prepare_end_train(p);
}
