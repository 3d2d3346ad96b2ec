/* Encodes the text into shards: validation and test whole, training line by line. Depends on
 * pipeline, shard, manifest, seen. */
#include <string.h>

#include "base/fault.h"
#include "data/prepare_finish.h"
#include "data/prepare_work.h"

static Err keep_pair(Prepare *p, const PipelineBlock *b, uint32_t k) {
  const uint32_t *at = b->id_at + 2 * k;
  size_t len[2] = {at[1] - at[0], at[2] - at[1]};
  TRY(shard_add_pair(&p->builder, b->ids.id + at[0], len[0], b->ids.id + at[1], len[1]));
  ManifestEntry *e = &p->entry;
  e->file.pairs++;
  for (int side = 0; side < 2; side++) {
    e->tokens[side] += len[side];
    e->text_bytes[side] += b->at[side][k + 1] - b->at[side][k];
    if (len[side] > e->longest[side]) e->longest[side] = len[side];
  }
  return ERR_OK;
}

/* Adds what was counted to the split. */
static void finish_counts(Prepare *p, Split which) {
  manifest_add_counts(&p->meta->split[which], &p->entry);
  p->entry = (ManifestEntry){0};
}

/* Writes the shard and then its line of the manifest: a line always has its shard. */
static Err finish_shard(Prepare *p, Split which, const char *name) {
  char path[FILE_PATH_MAX];
  ManifestEntry *e = &p->entry;
  TRY(prepare_path(&p->state, name, path));
  e->split = which;
  snprintf(e->file.name, sizeof e->file.name, "%s", name);
  TRY(shard_write(&p->builder, path, &e->file.bytes, e->file.sha256));
  TRY(prepare_path(&p->state, MANIFEST_NAME, path));
  TRY(manifest_append(path, e));
  TRY(meta_add_shard(&p->meta->split[which], &e->file));
  finish_counts(p, which);
  return ERR_OK;
}

/* Validation and test: the text is kept as it is for BLEU; what is not too long is encoded. */
typedef struct {
  Prepare *p;
  FileWriter raw[2];
} HeldOut;

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
      TRY(keep_pair(h->p, b, k));
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
  spec.rules = NULL;
  spec.tokenizer = &p->tokenizer;
  spec.drop_bad_utf8 = false; /* every line counts in BLEU */
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
    err = err_set(ERR_WORK, "no line of the %s text can be used: it is empty or too long",
                  split_name[which]);
    goto done;
  }
  snprintf(name, sizeof name, "%s.tok", split_name[which]);
  err = finish_shard(p, which, name);
done:
  for (int side = 0; side < 2; side++) file_abandon(&h.raw[side]);
  return err;
}

static Err finish_train_shard(Prepare *p) {
  char name[32];
  snprintf(name, sizeof name, "train-%05zu.tok", p->meta->split[SPLIT_TRAIN].shards);
  TRY(finish_shard(p, SPLIT_TRAIN, name));
  fault_point("prepare-shard");
  return prepare_check_windows(&p->meta->split[SPLIT_TRAIN], p->spec.window_pairs);
}

static Err take_train_line(Prepare *p, const PipelineBlock *b, uint32_t k) {
  ManifestEntry *e = &p->entry;
  CleanVerdict verdict = b->verdict[k];
  if (p->spec.dedup && (verdict == CLEAN_KEEP || verdict == CLEAN_TOKENS)) {
    const char *text[2];
    size_t len[2];
    bool before;
    for (int side = 0; side < 2; side++) {
      text[side] = b->text[side].s + b->at[side][k];
      len[side] = b->at[side][k + 1] - b->at[side][k];
    }
    TRY(seen_add(&p->seen, text, len, &before));
    if (before) verdict = CLEAN_DUPLICATE;
  }
  uint64_t line = b->first + k;
  if (line < p->lines_done) return ERR_OK; /* already in a finished shard (--resume) */
  e->lines++;
  if (verdict != CLEAN_KEEP) {
    e->dropped[verdict]++;
    return ERR_OK;
  }
  if (p->meta->split[SPLIT_TRAIN].pairs + e->file.pairs >= p->most_pairs)
    return prepare_too_many_pairs(p);
  TRY(keep_pair(p, b, k));
  return shard_bytes(&p->builder) >= p->spec.shard_bytes ? finish_train_shard(p) : ERR_OK;
}

static Err take_train(void *context, const PipelineBlock *b) {
  Prepare *p = context;
  TRY(prepare_check_stop(&p->state));
  progress_set(&p->progress, b->bytes_read);
  for (uint32_t k = 0; k < b->lines; k++) TRY(take_train_line(p, b, k));
  return ERR_OK;
}

Err prepare_encode_train(Prepare *p) {
  MetaSplit *split = &p->meta->split[SPLIT_TRAIN];
  PipelineSpec spec = prepare_pipeline(p);
  spec.tokenizer = &p->tokenizer;
  spec.skip = p->lines_done;
  TRY(prepare_check_windows(split, p->spec.window_pairs));
  progress_begin(&p->progress, "encode", "bytes", p->input_bytes);
  TRY(pipeline_run(&spec, split, take_train, p));
  if (p->builder.examples) TRY(finish_train_shard(p));
  finish_counts(p, SPLIT_TRAIN); /* lines after the last pair that was kept */
  progress_end(&p->progress);
  if (split->pairs == 0) {
    return err_set(
        ERR_WORK,
        "no pair is left after cleaning %llu lines; look at the text, or loosen the limits",
        (unsigned long long)split->lines);
  }
  return ERR_OK;
}
