/* The tokenizer of a data set: given, or trained on a sample of the training text. Depends on
 * text, pipeline, sample. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/stop.h"
#include "data/prepare_work.h"
#include "data/sample.h"

typedef struct {
  Prepare *p;
  Sample sample;
  uint64_t pairs; /* number of pairs that remain after cleaning */
} Sampling;

static Err sample_block(void *context, const PipelineBlock *b) {
  Sampling *s = context;
  TRY(prepare_check_stop(&s->p->state));
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
  /* Reports too many pairs now instead of hours later during encoding. With --dedup the limit may
   * still hold, because duplicates will be dropped. */
  if (s->pairs > s->p->most_pairs && !s->p->spec.dedup) return prepare_too_many_pairs(s->p);
  return ERR_OK;
}

/* Replaces SentencePiece's long message for an impossible vocabulary size. */
static Err explain_training(const Prepare *p, size_t pairs) {
  const char *least = strstr(err_message(), "smaller than required_chars");
  /* The messages for a vocabulary that is too small and for one that is too large both contain
   * "<= ", so the first is searched by its own words. */
  const char *most = least ? NULL : strstr(err_message(), "<= ");
  if (most) {
    return err_set(ERR_WORK,
                   "a vocabulary of %d pieces is too large for these %zu pairs: set "
                   "--vocab-size to %d or less",
                   p->spec.training.vocab_size, pairs, atoi(most + 3));
  }
  if (least) {
    return err_set(ERR_WORK,
                   "a vocabulary of %d pieces is too small for all the characters of the text: "
                   "raise --vocab-size or lower --character-coverage",
                   p->spec.training.vocab_size);
  }
  return ERR_WORK;
}

static Err pass_block(void *context, const PipelineBlock *b) {
  (void)b;
  const Prepare *p = context;
  return prepare_check_stop(&p->state);
}

/* Reads validation or test text before a tokenizer is trained, which may take hours. Sides of
 * different lengths and invalid UTF-8 are thus reported immediately. A pipe is not read, because
 * it can be read only once. */
static Err check_held_out(Prepare *p, const TextPair *input) {
  for (int side = 0; side < 2 && input->path[side]; side++) {
    struct stat st;
    if (stat(input->path[side], &st) != 0 || !S_ISREG(st.st_mode)) return ERR_OK;
  }
  if (!input->path[0]) return ERR_OK;
  PipelineSpec spec = prepare_pipeline(p);
  spec.input = input;
  spec.inputs = 1;
  spec.part = (PipelinePart){0};
  spec.rules = NULL;
  spec.drop_bad_utf8 = false;
  return pipeline_run(&spec, NULL, pass_block, p);
}

/* Draws the sample from the training text; with several ranks, from this rank's part of the
 * text. */
static Err draw_sample(Sampling *s) {
  Prepare *p = s->p;
  PipelineSpec spec = prepare_pipeline(p);
  Err err = ERR_OK;
  if (ranks_is_first(p->spec.ranks)) err = check_held_out(p, &p->spec.valid);
  if (!err && ranks_is_first(p->spec.ranks)) err = check_held_out(p, &p->spec.test);
  progress_begin(&p->progress, "sample", "bytes", p->input_bytes);
  if (!err) err = pipeline_run(&spec, NULL, sample_block, s);
  if (!err) err = prepare_check_stop(&p->state);
  if (!err) progress_end(&p->progress);
  return err;
}

/* Trains the tokenizer on the sample of all ranks. Called on rank 0 only. */
static Err train_on_sample(Prepare *p, Sample *sample, const char *path) {
  if (sample->size == 0)
    return err_set(ERR_WORK,
                   "no pair is left after cleaning; check the text, or relax limits such as "
                   "--max-words and --max-ratio");
  sample_sort(sample);
  char pairs[32], size[32];
  log_info("learn: a %s vocabulary of %s pieces from %s pairs", p->spec.training.type,
           str_of_count(size, (uint64_t)p->spec.training.vocab_size),
           str_of_count(pairs, sample->size));
  ProgressWait wait;
  progress_wait_begin(&wait, "learn");
  /* A signal may end the process during training, because no work would be lost. */
  stop_unwatch();
  Err err = tokenizer_train(&p->spec.training, sample_line, sample, path);
  stop_watch();
  progress_wait_end(&wait);
  return err ? explain_training(p, sample->size) : ERR_OK;
}

/* Fails if all ranks together have more pairs after cleaning than a window can hold. */
static Err check_pairs(const Prepare *p, uint64_t pairs) {
  const Ranks *r = p->spec.ranks;
  uint64_t *all, sum = 0;
  TRY(mem_alloc(&all, (size_t)ranks_count(r), sizeof *all));
  Err err = ranks_gather(r, "pairs of the ranks", &pairs, sizeof pairs, all);
  for (int i = 0; i < ranks_count(r) && !err; i++) sum += all[i];
  mem_free(all);
  if (err) return err;
  return sum > p->most_pairs && !p->spec.dedup ? prepare_too_many_pairs(p) : ERR_OK;
}

static Err learn_tokenizer(Prepare *p, const char *path) {
  Sampling s = {.p = p};
  Ranks *r = p->spec.ranks;
  Err err;
  sample_begin(&s.sample, p->spec.seed, (size_t)p->spec.sample);
  ranks_report(r, "drawing the sample for the tokenizer");
  TRY_DONE(ranks_agree(r, draw_sample(&s)));
  TRY_DONE(ranks_agree(r, check_pairs(p, s.pairs)));
  TRY_DONE(sample_gather(&s.sample, r));
  ranks_report(r, "learning the tokenizer");
  err = ranks_agree(r, ranks_is_first(r) ? train_on_sample(p, &s.sample, path) : ERR_OK);
done:
  sample_free(&s.sample);
  return err;
}

/* Copies the given tokenizer or trains one, unless an earlier, stopped run did. Rank 0 writes the
 * file; all ranks draw the sample for the training. */
static Err make_tokenizer(Prepare *p, const char *path) {
  Ranks *r = p->spec.ranks;
  /* Only rank 0 looks: NFS would store on the other hosts that the file does not exist. */
  uint8_t is_there = ranks_is_first(r) && file_exists(path);
  ranks_broadcast(r, "tokenizer exists", &is_there, sizeof is_there);
  if (is_there) return ERR_OK;
  if (!p->spec.tokenizer)
    TRY(learn_tokenizer(p, path));
  else
    TRY(ranks_agree(r, ranks_is_first(r) ? place_copy(p->spec.tokenizer, path) : ERR_OK));
  fault_point("prepare-tokenizer");
  return ERR_OK;
}

static Err open_made(Prepare *p, const char *path) {
  if (tokenizer_open(&p->tokenizer, path))
    return err_context("%s", p->spec.tokenizer ? p->spec.tokenizer : "tokenizer");
  return ERR_OK;
}

/* Fails unless every rank has the tokenizer of rank 0. */
static Err compare_tokenizers(Prepare *p, const char *path) {
  Ranks *r = p->spec.ranks;
  char first[65];
  memcpy(first, p->tokenizer.sha256, sizeof first);
  ranks_broadcast(r, "tokenizer", first, sizeof first);
  Err err = ERR_OK;
  if (strcmp(first, p->tokenizer.sha256) != 0)
    err = err_set(
        ERR_WORK,
        "%s differs from the file on rank 0: --out must be a directory that all hosts share",
        path);
  return ranks_agree(r, err);
}

Err prepare_open_tokenizer(Prepare *p) {
  char path[FILE_PATH_MAX];
  TRY(prepare_path(&p->state, "tokenizer.model", path));
  TRY(make_tokenizer(p, path));
  TRY(ranks_agree(p->spec.ranks, open_made(p, path)));
  TRY(compare_tokenizers(p, path));
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
