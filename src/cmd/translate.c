/* trireme translate: translates lines and prints them in their order. With several ranks, rank
 * 0 reads and prints, and all ranks translate. Depends on decode, model, comm. */
#include "decode/translate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/place.h"
#include "cmd/cmd.h"
#include "cmd/infer.h"
#include "model/bert.h"
#include "model/store.h"
#include "model/weights.h"

/* Number of lines that are sorted by length and translated together; a GPU needs many large
 * batches. */
#define BLOCK_LINES        ((size_t)512)
#define BLOCK_LINES_DEVICE ((size_t)8192)

typedef struct {
  Backend backend;
  TransformerConfig config;
  Params params;
  Tokenizer tokenizer;
  Translator *translator;
  Share *share;
  Comm *comm;
  Weights weights;
  float *w; /* weights as read from the file; NULL if they are in device memory */
  LineJob lines;
  bool scores;
  int nbest;
} Job;

static bool is_classifier(const ModelConfig *model) {
  const BertConfig *config = bert_config(model);
  return config && bert_is_classifier(config);
}

static Err open_model(Job *job, const char *dir) {
  char path[FILE_PATH_MAX];
  StoreSums sums;
  ModelConfig model;
  TRY(store_load_config(&model, &sums, dir));
  const TransformerConfig *config = transformer_config(&model);
  if (!config)
    return err_set(ERR_WORK,
                   "%s is a model of family %s, which does not translate%s; give --model a "
                   "translation model",
                   dir, model.family->name,
                   is_classifier(&model) ? ": use 'trireme classify' for it" : "");
  job->config = *config;
  if (!sums.known) TRY(infer_check_older_model(dir));
  TRY(transformer_lay_out_params(&job->params, config));
  TRY(file_join(path, dir, "weights.safetensors"));
  TRY(store_load_weights(&job->params, &sums, path, &job->w));
  TRY(weights_new(&job->weights, &job->backend, job->w, job->params.padded));
  if (!job->backend.host) {
    mem_free(job->w);
    job->w = NULL;
  }
  return store_open_tokenizer(&job->tokenizer, &sums, config->vocab, dir);
}

/* Prints an n-best list in the format of Moses: number of the sentence from 0, translation,
 * named scores (here one), and the score by which the list is sorted. */
static Err print_line(void *context, size_t i, int k, const char *text, float score) {
  const Job *job = context;
  (void)k;
  if (job->nbest > 1) {
    printf("%" PRIu64 " ||| %s ||| Score= %.4f ||| %.4f\n", job->lines.lines + i, text,
           (double)score, (double)score);
  } else {
    if (job->scores) printf("%.4f\t", (double)score);
    puts(text);
  }
  return out_check();
}

static void warn_cut(void *context, size_t n, const LineCut *cut) {
  const Job *job = context;
  char more[96] = "";
  if (!cut->count) return;
  if (cut->count > 1)
    snprintf(more, sizeof more, " (and %" PRIu64 " of the next %zu)", cut->count - 1, n);
  log_warn(
      "line %llu%s is longer than the model's maximum of %d tokens and was truncated: split "
      "such "
      "lines into sentences",
      (unsigned long long)cut->first, more, job->config.max_positions - 1);
}

/* Refuses options that have no effect: sampling options without --sample, beam search options
 * with it. */
static Err check_options(const OptSet *opts) {
  static const char *const sampling[] = {"temperature", "top-k", "seed"}, *const searching[] = {
                                                                              "beam-size",
                                                                              "length-penalty",
                                                                              "search-rules"};
  for (int i = 0; i < 3 && !opt_flag(opts, "sample"); i++) {
    if (opt_given(opts, sampling[i]))
      return err_set(ERR_USAGE, "--%s has no effect without --sample: add --sample",
                     sampling[i]);
  }
  for (int i = 0; i < 3 && opt_flag(opts, "sample"); i++) {
    if (opt_given(opts, searching[i]))
      return err_set(ERR_USAGE, "--%s has no effect with --sample: leave out one of the two",
                     searching[i]);
  }
  if (!opt_flag(opts, "sample") && opt_count(opts, "nbest") > opt_count(opts, "beam-size"))
    return err_set(ERR_USAGE, "--nbest %d is larger than --beam-size %d; raise --beam-size",
                   (int)opt_count(opts, "nbest"), (int)opt_count(opts, "beam-size"));
  return ERR_OK;
}

static BeamSpec make_beam_spec(const OptSet *opts) {
  bool random = opt_flag(opts, "sample");
  return (BeamSpec){
      .beam_size = (int)opt_count(opts, random ? "nbest" : "beam-size"),
      .length_penalty = (float)opt_real(opts, "length-penalty"),
      .is_hf = strcmp(opt_text(opts, "search-rules"), "hf") == 0,
      .extra_length = (int)opt_count(opts, "extra-length"),
      .nbest = (int)opt_count(opts, "nbest"),
      .max_length = opt_given(opts, "max-length") ? (int)opt_count(opts, "max-length") : 0,
      .fixed_weights = true,
      .is_sampling = random,
      .sample = {.temperature = (float)opt_real(opts, "temperature"),
                 .top_k = (int)opt_count(opts, "top-k"),
                 .seed = (uint64_t)opt_count(opts, "seed")}};
}

/* Returns an upper limit, in seconds, of the time between two reports of the search: 600 s for
 * start-up (libraries, kernels compiled by the driver) plus 2 FLOPs per parameter for each
 * source token and hypothesis, at a speed that any device exceeds. */
static double step_limit(const Job *job, size_t batch_rows, int beam) {
  size_t rows, sentences;
  double start = 600, slowest = job->backend.host ? 1e9 : 1e11;
  translator_batch(&job->backend, batch_rows, (size_t)job->config.max_positions, beam, &rows,
                   &sentences);
  double work = (double)rows + (double)sentences * (double)beam;
  return start + 2.0 * (double)job->params.total * work / slowest;
}

static Err open_job(Job *job, const OptSet *opts, const BeamSpec *spec) {
  char dir[FILE_PATH_MAX];
  TRY(infer_open_backend(&job->backend, opts, job->comm));
  TRY(infer_find_model("--model ", opt_text(opts, "model"), dir));
  TRY(infer_agree(job->comm, opts, dir));
  TRY(open_model(job, dir));
  size_t rows = opt_given(opts, "batch-tokens") ? (size_t)opt_count(opts, "batch-tokens") : 0;
  TRY(translator_new(&job->translator, &job->config, &job->backend, job->weights,
                     &job->tokenizer, spec, rows));
  return share_new(&job->share, job->comm, translator_worker(job->translator),
                   job->backend.host ? BLOCK_LINES : BLOCK_LINES_DEVICE,
                   step_limit(job, rows, spec->beam_size));
}

static void close_job(Job *job) {
  share_free(job->share);
  translator_free(job->translator);
  tokenizer_close(&job->tokenizer);
  params_free(&job->params);
  weights_free(&job->weights, &job->backend);
  mem_free(job->w);
  backend_close(&job->backend);
}

Err cmd_translate(OptSet *opts) {
  log_quiet(opt_flag(opts, "quiet"));
  Job job = {.scores = opt_flag(opts, "scores")};
  TRY(comm_open(&job.comm, INFER_RANK_TIMEOUT));
  cmd_introduce(job.comm);
  comm_report(job.comm, COMM_NO_LIMIT, "loading the model");
  Err err;
  TRY_DONE(check_options(opts));
  TRY_DONE(infer_check_files(opts, job.comm));
  BeamSpec spec = make_beam_spec(opts);
  job.nbest = spec.nbest;
  TRY_DONE(open_job(&job, opts, &spec));
  if (comm_size(job.comm) > 1) log_info("ranks    %s share the lines", comm_about(job.comm));
  job.lines = (LineJob){.share = job.share,
                        .source = {.path = opt_text(opts, "input")},
                        .hint = "type a sentence and press Enter; Ctrl-D ends the input",
                        .take = print_line,
                        .done = warn_cut,
                        .context = &job};
  err = comm_rank(job.comm) == 0 ? infer_run(&job.lines) : share_serve(job.share);
done:
  err = infer_end_output(err);
  comm_report(job.comm, COMM_NO_LIMIT, "its end");
  close_job(&job);
  comm_close(job.comm, err);
  return err;
}
