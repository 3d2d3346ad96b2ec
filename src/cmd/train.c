/* trireme train: options to a TrainSpec. Relies on train. */
#include "train/train.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cmd/cmd.h"

/* Position of the option's value among its choices. */
static int choice(const OptSet *opts, const char *name, const char *names) {
  const char *text = opt_text(opts, name);
  int i = 0;
  for (const char *at = names; *at; i++) {
    size_t n = strcspn(at, "|");
    if (strlen(text) == n && memcmp(text, at, n) == 0) return i;
    at += n + (at[n] == '|');
  }
  return 0;
}

static Err fill_model(ModelConfig *c, const OptSet *opts) {
  TRY(config_preset(c, opt_text(opts, "preset")));
  if (opt_given(opts, "width")) c->d = (int)opt_count(opts, "width");
  if (opt_given(opts, "feed-width")) c->ff = (int)opt_count(opts, "feed-width");
  if (opt_given(opts, "heads")) c->heads = (int)opt_count(opts, "heads");
  if (opt_given(opts, "encoder-layers")) c->layers[0] = (int)opt_count(opts, "encoder-layers");
  if (opt_given(opts, "decoder-layers")) c->layers[1] = (int)opt_count(opts, "decoder-layers");
  c->pre_norm = strcmp(opt_text(opts, "norm"), "pre") == 0;
  c->attention_bias = opt_flag(opts, "attention-bias");
  c->activation = (Activation)choice(opts, "activation", "relu|gelu|silu");
  c->positions = (Positions)choice(opts, "positions", "halves|interleaved|learned");
  c->tying = (Tying)choice(opts, "tie", "all|decoder|none");
  if (opt_given(opts, "dropout")) {
    c->drop_embed = c->drop_attention = c->drop_activation = c->drop_residual =
        (float)opt_real(opts, "dropout");
  }
  return config_check(c);
}

static Err fill_schedule(Schedule *s, const OptSet *opts, const ModelConfig *c,
                         uint64_t steps) {
  s->policy = (LrPolicy)choice(opts, "lr-policy", lr_policy_names);
  s->lr = opt_given(opts, "lr")         ? opt_real(opts, "lr")
          : s->policy == LR_TRANSFORMER ? 2.0
                                        : 1e-3;
  s->warmup = (uint64_t)opt_count(opts, "warmup");
  s->decay =
      opt_given(opts, "lr-decay-steps") ? (uint64_t)opt_count(opts, "lr-decay-steps") : steps;
  s->least = opt_real(opts, "lr-least");
  s->power = opt_real(opts, "lr-power");
  s->rate = opt_real(opts, "lr-rate");
  s->d = c->d;
  if (s->policy == LR_INVERSE && s->least <= 0)
    return err_set(ERR_USAGE, "the inverse policy needs --lr-least above 0");
  return opt_text(opts, "lr-pieces") ? schedule_pieces(s, opt_text(opts, "lr-pieces")) : ERR_OK;
}

static Err fill_spec(TrainSpec *s, const OptSet *opts) {
  s->data = opt_text(opts, "data");
  s->run = opt_text(opts, "run");
  if (!s->data)
    return err_set(ERR_USAGE, "say what to train on: --data DIR, made by 'trireme prepare'");
  if (!s->run) return err_set(ERR_USAGE, "say where the run shall be recorded: --run DIR");
  TRY(fill_model(&s->config, opts));
  s->batch_tokens = (uint32_t)opt_count(opts, "batch-tokens");
  s->micro_batches = (uint32_t)opt_count(opts, "micro-batches");
  s->steps = (uint64_t)opt_count(opts, "steps");
  s->seconds = opt_real(opts, "time");
  s->seed = (uint64_t)opt_count(opts, "seed");
  TRY(fill_schedule(&s->schedule, opts, &s->config, s->steps));
  s->beta1 = (float)opt_real(opts, "beta1");
  s->beta2 = (float)opt_real(opts, "beta2");
  s->epsilon = (float)opt_real(opts, "epsilon");
  s->decay = (float)opt_real(opts, "weight-decay");
  s->clip = (float)opt_real(opts, "clip");
  s->smoothing = (float)opt_real(opts, "label-smoothing");
  s->backend = (BackendSpec){opt_text(opts, "device"), opt_text(opts, "precision"),
                             (int)opt_count(opts, "threads")};
  if (strcmp(s->backend.precision, "fp16") == 0)
    return err_set(ERR_USAGE,
                   "fp16 needs its losses scaled, which train does not do yet; ask for "
                   "--precision bf16 or tf32");
  s->valid_every = (uint64_t)opt_count(opts, "valid-every");
  s->save_every = (uint64_t)opt_count(opts, "save-every");
  s->log_every = (uint64_t)opt_count(opts, "log-every");
  s->keep = (int)opt_count(opts, "keep");
  s->patience = (int)opt_count(opts, "patience");
  s->samples = (int)opt_count(opts, "samples");
  s->beam = (BeamSpec){.beam = (int)opt_count(opts, "beam"),
                       .alpha = (float)opt_real(opts, "alpha"),
                       .extra = 50,
                       .nbest = 1};
  s->resume = opt_flag(opts, "resume");
  return ERR_OK;
}

Err cmd_train(OptSet *opts) {
  log_quiet(opt_flag(opts, "quiet"));
  TrainSpec spec = {0};
  TrainResult r;
  Str options = {0};
  opt_record(opts, &options);
  Err err = str_check(&options);
  if (!err) err = fill_spec(&spec, opts);
  if (!err) err = train_run(&spec, str_text(&options), &r);
  str_free(&options);
  if (err) return err;
  char tokens[32], time[32];
  printf("%s at step %" PRIu64 " after %s, %s target tokens\n",
         r.stopped ? "stopped"
         : r.early ? "ended early"
                   : "done",
         r.step, str_of_seconds(time, r.seconds), str_of_count(tokens, r.target_tokens));
  if (r.best_step)
    printf("best: BLEU %.2f at step %" PRIu64 ", in %s/checkpoints/best\n", r.best_bleu,
           r.best_step, spec.run);
  return ERR_OK;
}
