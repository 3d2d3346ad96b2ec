/* The steps of `trireme prepare`: gather the inputs, have a tokenizer, encode
 * validation and test, encode training into shards, sort by length, record.
 * Depends on text and the rest of data. */
#include "data/prepare.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/progress.h"
#include "base/stop.h"
#include "data/input.h"
#include "data/manifest.h"
#include "data/order.h"
#include "data/prepare_finish.h"
#include "data/prepare_state.h"
#include "data/sample.h"
#include "data/seen.h"
#include "data/shard.h"

typedef struct {
  PrepareSpec spec; /* with stand-ins for standard input and generated text */
  PrepareState state;
  Meta *meta;
  Tokenizer tokenizer;
  TextPair generated_train;
  char *path[7]; /* of the stand-ins */
  size_t paths;
  uint64_t most_pairs;              /* that training may have */
  uint64_t input_bytes, lines_done; /* of train; those in finished shards */
  ShardBuilder builder;
  ManifestEntry entry; /* of the shard that is being built */
  Seen seen;
  Progress progress;
} Prepare;

static Err in_partial(const Prepare *p, const char *name, char path[FILE_PATH_MAX]) {
  return file_join(path, p->state.dir, name);
}

/* A path in OUT.partial/source that lives as long as the run. */
static Err stand_in(Prepare *p, const char *name, const char **path) {
  char dir[FILE_PATH_MAX], full[FILE_PATH_MAX];
  TRY(in_partial(p, "source", dir));
  TRY(file_mkdirs(dir));
  TRY(file_join(full, dir, name));
  TRY(mem_dup(&p->path[p->paths], full, strlen(full)));
  *path = p->path[p->paths++];
  return ERR_OK;
}

/* Writes the generated text of one split, unless a stopped run has done so. The file name
 * contains size and seed, so that a resumed run never takes text of another call. */
static Err generate_split(Prepare *p, TextPair *pair, Split split, uint64_t pairs) {
  char name[64], beside[FILE_PATH_MAX];
  for (int side = 0; side < 2; side++) {
    pair->name[side] = p->spec.generator->file[split][side];
    snprintf(name, sizeof name, "%s.%" PRIu64 ".%" PRIu64, pair->name[side], pairs,
             p->spec.seed);
    TRY(stand_in(p, name, &pair->path[side]));
  }
  if (file_exists(pair->path[1])) return ERR_OK;
  TRY(in_partial(p, "source/unfinished", beside));
  TRY(p->spec.generator->write(pair->path[0], beside, split, pairs, p->spec.seed));
  return file_rename(beside, pair->path[1]);
}

static Err generate_text(Prepare *p) {
  PrepareSpec *spec = &p->spec;
  spec->train = &p->generated_train;
  spec->trains = 1;
  TRY(generate_split(p, spec->train, SPLIT_TRAIN, spec->generated_pairs));
  TRY(generate_split(p, &spec->valid, SPLIT_VALID, spec->generator->held_out_pairs));
  return generate_split(p, &spec->test, SPLIT_TEST, spec->generator->held_out_pairs);
}

/* Standard input is read once but wanted twice: it is kept until the end. */
static Err keep_standard_input(const char *path) {
  if (file_exists(path)) return ERR_OK;
  char beside[FILE_PATH_MAX];
  int n = snprintf(beside, sizeof beside, "%s.tmp", path);
  if (n < 0 || n >= FILE_PATH_MAX) return err_set(ERR_WORK, "the path %s is too long", path);
  FileWriter w;
  TRY(file_create(&w, beside));
  Err err = ERR_OK;
  char *block = NULL;
  TRY_DONE(mem_alloc(&block, (size_t)1 << 16, 1));
  Progress progress;
  progress_begin(&progress, "read standard input", "bytes", 0);
  for (size_t got; (got = fread(block, 1, (size_t)1 << 16, stdin)) > 0;) {
    TRY_DONE(file_put(&w, block, got));
    progress_set(&progress, w.bytes);
  }
  if (ferror(stdin)) {
    err = err_errno("cannot read", "standard input");
    goto done;
  }
  TRY_DONE(file_finish(&w, NULL));
  progress_end(&progress);
  err = file_rename(beside, path);
done:
  file_abandon(&w);
  mem_free(block);
  return err;
}

static Err gather_pair(Prepare *p, TextPair *pair) {
  for (int side = 0; side < 2 && pair->path[side]; side++) {
    if (strcmp(pair->path[side], "-") != 0) {
      const char *slash = strrchr(pair->path[side], '/');
      pair->name[side] = slash ? slash + 1 : pair->path[side];
      continue;
    }
    if (p->paths) return err_set(ERR_USAGE, "standard input ('-') can be one file only");
    TRY(stand_in(p, "stdin", &pair->path[side]));
    pair->name[side] = "stdin";
    TRY(keep_standard_input(pair->path[side]));
  }
  return ERR_OK;
}

/* Learning a tokenizer reads the training text once, encoding it a second time. */
static Err check_rereadable(const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) return err_errno("cannot open", path);
  if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return ERR_OK; /* input_open refuses these */
  return err_set(ERR_WORK,
                 "%s is not a regular file, and training text is read twice where a tokenizer "
                 "is learned: save it to a file, pass it as standard input (-), which is kept, "
                 "or give --tokenizer",
                 path);
}

/* Before anything is made: a wrong file leaves nothing behind, and is named as it was given. */
static Err check_tokenizer(const char *path) {
  Tokenizer t = {0};
  Err err = tokenizer_open(&t, path);
  tokenizer_close(&t);
  return err;
}

/* After this every input is a file that exists. */
static Err gather(Prepare *p) {
  if (p->spec.tokenizer) TRY(check_tokenizer(p->spec.tokenizer));
  if (p->spec.generator)
    TRY(generate_text(p));
  else {
    for (size_t i = 0; i < p->spec.trains; i++) TRY(gather_pair(p, &p->spec.train[i]));
    TRY(gather_pair(p, &p->spec.valid));
    TRY(gather_pair(p, &p->spec.test));
  }
  for (size_t i = 0; i < p->spec.trains; i++) {
    for (int side = 0; side < 2 && p->spec.train[i].path[side]; side++) {
      uint64_t bytes;
      if (!p->spec.tokenizer) TRY(check_rereadable(p->spec.train[i].path[side]));
      TRY(file_size(p->spec.train[i].path[side], &bytes));
      p->input_bytes += bytes;
    }
  }
  return prepare_fingerprint(&p->state, &p->spec);
}

static Err check_stop(const Prepare *p) {
  if (!stop_asked()) return ERR_OK;
  return err_set(ERR_WORK, "stopped as asked; what is done is in %s, continue with --resume",
                 p->state.dir);
}

static Err too_many_pairs(const Prepare *p) {
  char most[32];
  return err_set(
      ERR_WORK,
      "the training text has more than %s pairs, the most that one window holds: add "
      "--window-pairs N to make several windows, and --resume to keep what is done",
      str_of_count(most, p->most_pairs));
}

/* The tokenizer. */

typedef struct {
  Prepare *p;
  Sample sample;
  uint64_t pairs; /* left after cleaning */
} Sampling;

static Err sample_block(void *context, const PipelineBlock *b) {
  Sampling *s = context;
  TRY(check_stop(s->p));
  progress_set(&s->p->progress, b->bytes_read);
  for (uint32_t k = 0; k < b->lines; k++) {
    if (b->verdict[k] != CLEAN_KEEP) continue;
    const char *text[2];
    size_t len[2];
    for (int side = 0; side < 2; side++) {
      text[side] = b->text[side].s + b->at[side][k];
      len[side] = b->at[side][k + 1] - b->at[side][k];
    }
    TRY(sample_add(&s->sample, b->first + k, text, len));
    s->pairs++;
  }
  /* Encoding would find it out hours later; only --dedup could still help. */
  if (s->pairs > s->p->most_pairs && !s->p->spec.dedup) return too_many_pairs(s->p);
  return ERR_OK;
}

static PipelineSpec train_pipeline(const Prepare *p) {
  return (PipelineSpec){.input = p->spec.train,
                        .inputs = p->spec.trains,
                        .rules = &p->spec.rules,
                        .max_tokens = p->spec.max_tokens,
                        .drop_bad_utf8 = p->spec.drop_bad_utf8,
                        .threads = p->spec.threads};
}

/* SentencePiece's own words for a vocabulary the text cannot fill are long. */
static Err explain_training(const Prepare *p, size_t pairs) {
  const char *least = strstr(err_message(), "smaller than required_chars");
  const char *most = least ? NULL : strstr(err_message(), "<= "); /* both have that sign */
  if (most) {
    return err_set(ERR_WORK,
                   "a vocabulary of %d pieces is more than these %zu pairs allow: set "
                   "--vocab-size to %d or less",
                   p->spec.training.vocab_size, pairs, atoi(most + 3));
  }
  if (least) {
    return err_set(ERR_WORK,
                   "a vocabulary of %d pieces has no room for all the characters of the text: "
                   "raise --vocab-size or lower "
                   "--character-coverage",
                   p->spec.training.vocab_size);
  }
  return ERR_WORK;
}

static Err pass_block(void *context, const PipelineBlock *b) {
  (void)b;
  return check_stop(context);
}

/* Reads validation or test text before a tokenizer is learned, which may take hours: sides that
 * do not match and bad UTF-8 are found at once. A pipe can be read once only, so it is not. */
static Err check_held_out(Prepare *p, const TextPair *input) {
  for (int side = 0; side < 2 && input->path[side]; side++) {
    struct stat st;
    if (stat(input->path[side], &st) != 0 || !S_ISREG(st.st_mode)) return ERR_OK;
  }
  if (!input->path[0]) return ERR_OK;
  MetaSplit unused = {0};
  PipelineSpec spec = train_pipeline(p);
  spec.input = input;
  spec.inputs = 1;
  spec.rules = NULL;
  spec.drop_bad_utf8 = false;
  Err err = pipeline_run(&spec, &unused, pass_block, p);
  mem_free(unused.source);
  return err;
}

static Err learn_tokenizer(Prepare *p, const char *path) {
  TRY(check_held_out(p, &p->spec.valid));
  TRY(check_held_out(p, &p->spec.test));
  Sampling s = {.p = p};
  MetaSplit unused = {0};
  sample_begin(&s.sample, p->spec.seed, (size_t)p->spec.sample);
  PipelineSpec spec = train_pipeline(p);
  progress_begin(&p->progress, "sample", "bytes", p->input_bytes);
  Err err;
  TRY_DONE(pipeline_run(&spec, &unused, sample_block, &s));
  TRY_DONE(check_stop(p));
  progress_end(&p->progress);
  if (s.sample.size == 0) {
    err = err_set(ERR_WORK,
                  "no pair is left after cleaning; look at the text, or loosen the limits");
    goto done;
  }
  sample_sort(&s.sample);
  char pairs[32], size[32];
  log_info("learn: a %s vocabulary of %s pieces from %s pairs", p->spec.training.type,
           str_of_count(size, (uint64_t)p->spec.training.vocab_size),
           str_of_count(pairs, s.sample.size));
  ProgressWait wait;
  progress_wait_begin(&wait, "learn");
  stop_unwatch(); /* nothing is lost if a signal ends this */
  err = tokenizer_train(&p->spec.training, sample_line, &s.sample, path);
  stop_watch();
  progress_wait_end(&wait);
  if (err) err = explain_training(p, s.sample.size);
done:
  mem_free(unused.source);
  sample_free(&s.sample);
  return err;
}

static Err have_tokenizer(Prepare *p) {
  char path[FILE_PATH_MAX];
  TRY(in_partial(p, "tokenizer.model", path));
  if (!file_exists(path)) {
    if (p->spec.tokenizer)
      TRY(place_copy(p->spec.tokenizer, path));
    else
      TRY(learn_tokenizer(p, path));
    fault_point("prepare-tokenizer");
  }
  if (tokenizer_open(&p->tokenizer, path))
    return err_context("%s", p->spec.tokenizer ? p->spec.tokenizer : "tokenizer");
  Meta *m = p->meta;
  const Tokenizer *t = &p->tokenizer;
  m->vocab = t->vocab;
  m->pad = t->pad;
  m->bos = t->bos;
  m->eos = t->eos;
  m->unk = t->unk;
  snprintf(m->tokenizer_type, sizeof m->tokenizer_type, "%s", t->type);
  memcpy(m->tokenizer_sha256, t->sha256, sizeof m->tokenizer_sha256);
  return ERR_OK;
}

/* Encoding. */

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
  TRY(in_partial(p, name, path));
  e->split = which;
  snprintf(e->file.name, sizeof e->file.name, "%s", name);
  TRY(shard_write(&p->builder, path, &e->file.bytes, e->file.sha256));
  TRY(in_partial(p, MANIFEST_NAME, path));
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

static Err encode_held_out(Prepare *p, Split which, const TextPair *input) {
  if (!input->path[0]) return ERR_OK;
  static const char *const raw_name[SPLITS][2] = {
      {0}, {"valid.src", "valid.ref"}, {"test.src", "test.ref"}};
  PipelineSpec spec = train_pipeline(p);
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
    TRY_DONE(in_partial(p, raw_name[which][side], path));
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
    return too_many_pairs(p);
  TRY(keep_pair(p, b, k));
  return shard_bytes(&p->builder) >= p->spec.shard_bytes ? finish_train_shard(p) : ERR_OK;
}

static Err take_train(void *context, const PipelineBlock *b) {
  Prepare *p = context;
  TRY(check_stop(p));
  progress_set(&p->progress, b->bytes_read);
  for (uint32_t k = 0; k < b->lines; k++) TRY(take_train_line(p, b, k));
  return ERR_OK;
}

static Err encode_train(Prepare *p) {
  MetaSplit *split = &p->meta->split[SPLIT_TRAIN];
  PipelineSpec spec = train_pipeline(p);
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

static Err run_steps(Prepare *p) {
  TRY(prepare_enter(&p->state, &p->spec));
  TRY(gather(p));
  bool is_resumed;
  TRY(prepare_load(&p->state, p->meta, &is_resumed));
  Meta *m = p->meta;
  m->format = META_FORMAT;
  p->lines_done = m->split[SPLIT_TRAIN].lines;
  if (p->lines_done) {
    char lines[32];
    log_info("resume: %s lines are done", str_of_count(lines, p->lines_done));
  }
  for (int side = 0; side < 2; side++)
    snprintf(m->lang[side], sizeof m->lang[side], "%s", p->spec.lang[side]);
  m->rules = p->spec.rules;
  m->max_tokens = p->spec.max_tokens;
  m->dedup = p->spec.dedup;
  m->seed = p->spec.seed;
  TRY(have_tokenizer(p));
  TRY(shard_begin_pairs(&p->builder, (uint32_t)p->tokenizer.vocab, p->tokenizer.sha256));
  if (!is_resumed) {
    TRY(encode_held_out(p, SPLIT_VALID, &p->spec.valid));
    TRY(encode_held_out(p, SPLIT_TEST, &p->spec.test));
    TRY(prepare_save(&p->state, m));
  }
  TRY(encode_train(p));
  TRY(prepare_finish(p->state.dir, m, p->spec.window_pairs));
  return prepare_complete(&p->state, p->spec.out);
}

Err prepare_run(const PrepareSpec *spec, Meta *meta) {
  Prepare p = {.spec = *spec, .state = {.lock = -1}, .meta = meta};
  p.most_pairs =
      spec->window_pairs ? UINT64_MAX : fault_number("most-pairs", ORDER_WINDOW_PAIRS);
  *meta = (Meta){0};
  stop_watch();
  Err err = run_steps(&p);
  stop_unwatch();
  if (err) prepare_forget(&p.state);
  prepare_leave(&p.state);
  tokenizer_close(&p.tokenizer);
  shard_builder_free(&p.builder);
  seen_free(&p.seen);
  for (size_t i = 0; i < p.paths; i++) mem_free(p.path[i]);
  if (err) meta_free(meta);
  return err;
}
