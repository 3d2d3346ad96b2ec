/* The steps of `trireme prepare`: gather the inputs, have a tokenizer, encode
 * validation and test, encode training into shards, sort by length, record.
 * Depends on the rest of data. */
#include "data/prepare.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "data/order.h"
#include "data/prepare_finish.h"
#include "data/prepare_work.h"

static Err run_steps(Prepare *p) {
  TRY(prepare_enter(&p->state, &p->spec));
  TRY(prepare_gather(p));
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
  TRY(prepare_open_tokenizer(p));
  TRY(shard_begin_pairs(&p->builder, (uint32_t)p->tokenizer.vocab, p->tokenizer.sha256));
  if (!is_resumed) {
    TRY(prepare_encode_held_out(p, SPLIT_VALID, &p->spec.valid));
    TRY(prepare_encode_held_out(p, SPLIT_TEST, &p->spec.test));
    TRY(prepare_save(&p->state, m));
  }
  TRY(prepare_encode_train(p));
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
