/* The steps of `trireme prepare`: opens the inputs, copies or trains the tokenizer, encodes
 * validation and test text, encodes the training text into shards, sorts the pairs by length,
 * writes dataset.json. Depends on the rest of data. */
#include "data/prepare.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "data/order.h"
#include "data/prepare_finish.h"
#include "data/prepare_work.h"

/* Creates or reopens OUT.partial and checks that the inputs can be read. Called on rank 0
 * only. */
static Err open_directory(Prepare *p) {
  TRY(prepare_enter(&p->state, p->spec.out, p->spec.resume));
  return prepare_gather(p);
}

/* Counts of the training text that is already in finished shards; sent to all ranks. */
typedef struct {
  uint64_t lines, pairs, shards;
} Done;

/* Loads the progress of an earlier, stopped run. *is_resumed is set on rank 0 only. */
static Err load_progress(Prepare *p, bool *is_resumed) {
  MetaSplit *train = &p->meta->split[SPLIT_TRAIN];
  bool is_first = ranks_is_first(p->spec.ranks);
  *is_resumed = false;
  TRY(ranks_agree(p->spec.ranks,
                  is_first ? prepare_load(&p->state, p->meta, is_resumed) : ERR_OK));
  Done done = {train->lines, train->pairs, train->shards};
  ranks_broadcast(p->spec.ranks, "finished work", &done, sizeof done);
  train->lines = done.lines;
  train->pairs = done.pairs;
  p->lines_done = done.lines;
  p->train_shards = (size_t)done.shards;
  if (p->lines_done) {
    char lines[32];
    log_info("resume: %s lines are done", str_of_count(lines, p->lines_done));
  }
  return ERR_OK;
}

static void record_options(const PrepareSpec *spec, Meta *m) {
  m->format = META_FORMAT;
  for (int side = 0; side < 2; side++)
    snprintf(m->lang[side], sizeof m->lang[side], "%s", spec->lang[side]);
  m->rules = spec->rules;
  m->max_tokens = spec->max_tokens;
  m->dedup = spec->dedup;
  m->seed = spec->seed;
}

/* Encodes validation and test text and saves the progress. Called on rank 0 only. */
static Err encode_held_out(Prepare *p) {
  TRY(prepare_encode_held_out(p, SPLIT_VALID, &p->spec.valid));
  TRY(prepare_encode_held_out(p, SPLIT_TEST, &p->spec.test));
  return prepare_save(&p->state, p->meta);
}

/* Writes the training order and dataset.json and renames OUT.partial to OUT. Called on rank 0
 * only. */
static Err finish_dataset(Prepare *p) {
  TRY(prepare_finish(p->state.dir, p->meta, p->spec.window_pairs));
  return prepare_complete(&p->state, p->spec.out);
}

static Err run_steps(Prepare *p) {
  Ranks *r = p->spec.ranks;
  bool is_first = ranks_is_first(r), is_resumed;
  ranks_report(r, "opening the output directory");
  TRY(ranks_agree(r, is_first ? open_directory(p) : prepare_follow(&p->state, p->spec.out)));
  TRY(prepare_check_ranks(p));
  TRY(load_progress(p, &is_resumed));
  TRY(prepare_index_lines(p));
  record_options(&p->spec, p->meta);
  TRY(prepare_open_tokenizer(p));
  TRY(shard_begin_pairs(&p->builder, (uint32_t)p->tokenizer.vocab, p->tokenizer.sha256));
  ranks_report(r, "encoding validation and test text");
  TRY(ranks_agree(r, is_first && !is_resumed ? encode_held_out(p) : ERR_OK));
  TRY(ranks_count(r) > 1 ? prepare_share_train(p) : prepare_encode_train(p));
  ranks_report(r, "writing the order of the pairs");
  return ranks_agree(r, is_first ? finish_dataset(p) : ERR_OK);
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
  prepare_free_index(&p);
  for (size_t i = 0; i < p.paths; i++) mem_free(p.path[i]);
  if (err) meta_free(meta);
  return err;
}
