/* trireme translate: translates lines and prints them in their order. With several ranks, rank
 * 0 reads and prints, and all ranks translate. Depends on decode, model, comm. */
#include "decode/share.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/place.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "data/input.h"
#include "model/store.h"
#include "model/weights.h"
#include "train/agree.h"
#include "train/checkpoint.h"

/* Number of lines that are sorted by length and translated together; a GPU needs large
 * batches. */
#define BLOCK_LINES        ((size_t)512)
#define BLOCK_LINES_DEVICE ((size_t)4096)
/* Milliseconds to wait for another line before a block is translated. */
#define LINE_WAIT    20
#define RANK_TIMEOUT 6 /* seconds without a heartbeat after which a rank is lost */

typedef struct {
  Backend backend;
  TransformerConfig config;
  Params params;
  Tokenizer tokenizer;
  Translator *translator;
  Share *share;
  Comm *comm;
  Weights weights;
  float *w;       /* weights as read from the file; NULL if they are in device memory */
  uint64_t lines; /* number of lines translated before this block */
  bool scores;
  int nbest;
  bool interactive; /* standard input is a terminal: translate line by line */
  bool prompts;
} Job;

/* Selects a checkpoint of a run: the best one or, if there is none, the newest one that is not
 * damaged. */
static Err find_checkpoint(const char *run, char dir[FILE_PATH_MAX]) {
  char model[FILE_PATH_MAX];
  TRY(file_join(dir, run, "checkpoints/best"));
  TRY(file_join(model, dir, "model.json"));
  bool found = place_exists(model);
  if (found) {
    log_info("model    %s", dir);
    return ERR_OK;
  }
  TRY(checkpoint_find(run, dir, &found));
  if (!found)
    return err_set(ERR_WORK,
                   "%s is a run without a checkpoint: training has saved none yet; wait for "
                   "the first one (--save-every), or continue it with --resume",
                   run);
  log_info(
      "model    %s, the latest checkpoint: the run has not validated, so it has no best one",
      dir);
  return ERR_OK;
}

/* Suggests the best checkpoint of a run for a wrong path inside the run's directory, such as
 * RUN/best. Returns false if there is none. */
static bool find_nearby(const char *given, char best[FILE_PATH_MAX]) {
  char run[FILE_PATH_MAX], model[FILE_PATH_MAX];
  snprintf(run, sizeof run, "%s", given);
  for (char *slash; (slash = strrchr(run, '/')) && slash > run;) {
    *slash = '\0';
    if (file_join(best, run, "checkpoints/best")) return false;
    if (file_join(model, best, "model.json")) return false;
    if (place_exists(model)) return true;
  }
  return false;
}

static Err refuse_missing(const char *given) {
  char best[FILE_PATH_MAX];
  if (find_nearby(given, best))
    return err_set(ERR_WORK,
                   "--model %s: there is no such directory; its run has a model in %s", given,
                   best);
  return err_set(
      ERR_WORK,
      "--model %s: there is no such directory; give a directory with a model.json: a "
      "run of 'trireme train' (RUN), a checkpoint (RUN/checkpoints/best) or RUN/average",
      given);
}

/* Finds the model that --model names: a model directory (a checkpoint is one too) or a run
 * directory. */
static Err find_model(const char *given, char dir[FILE_PATH_MAX]) {
  char model[FILE_PATH_MAX], checkpoints[FILE_PATH_MAX];
  TRY(place_check(given));
  TRY(file_join(model, given, "model.json"));
  TRY(file_join(checkpoints, given, "checkpoints"));
  if (!place_exists(given)) return refuse_missing(given);
  if (place_exists(model)) {
    memcpy(dir, given, strlen(given) + 1);
    return ERR_OK;
  }
  if (place_type(checkpoints) == PLACE_DIRECTORY) return find_checkpoint(given, dir);
  return err_set(
      ERR_WORK,
      "--model %s: it is not a model, as it has no model.json; give a run of 'trireme "
      "train' (RUN), a checkpoint (RUN/checkpoints/best) or RUN/average",
      given);
}

/* Checkpoints of model.json version 1 have the checksums of their files in training.json. */
static Err check_older_model(const char *dir) {
  char path[FILE_PATH_MAX];
  bool whole;
  TRY(file_join(path, dir, "training.json"));
  if (!place_exists(path)) {
    log_warn(
        "%s is not verified: its model.json, of an earlier version, has no checksums; damage "
        "would not be detected",
        dir);
    return ERR_OK;
  }
  TRY(checkpoint_check(dir, /*model_only=*/true, &whole));
  return whole ? ERR_OK : ERR_WORK; /* err_message() has the reason */
}

static Err open_model(Job *job, const char *dir) {
  char path[FILE_PATH_MAX];
  StoreSums sums;
  ModelConfig model;
  TRY(store_load_config(&model, &sums, dir));
  const TransformerConfig *config = transformer_config(&model);
  if (!config)
    return err_set(ERR_WORK,
                   "%s is a model of family %s, which does not translate; give --model a "
                   "translation model",
                   dir, model.family->name);
  job->config = *config;
  if (!sums.known) TRY(check_older_model(dir));
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
    printf("%" PRIu64 " ||| %s ||| Score= %.4f ||| %.4f\n", job->lines + i, text, (double)score,
           (double)score);
  } else {
    if (job->scores) printf("%.4f\t", (double)score);
    puts(text);
  }
  return out_check();
}

static Err check_text(const Input *in, const char *line, size_t len) {
  size_t valid = utf8_valid(line, len);
  const char *nul = memchr(line, 0, len);
  if (valid == len && !nul) return ERR_OK;
  if (nul && (size_t)(nul - line) < valid)
    return err_set(ERR_WORK,
                   "%s:%llu: byte %zu of the line is NUL; remove such bytes "
                   "with tr -d '\\000'",
                   input_path(in), (unsigned long long)input_number(in),
                   (size_t)(nul - line) + 1);
  return err_set(ERR_WORK,
                 "%s:%llu: byte %zu of the line is not UTF-8; convert the text with iconv -t "
                 "UTF-8, or leave such bytes out with iconv -c",
                 input_path(in), (unsigned long long)input_number(in), valid + 1);
}

static void show_prompt(const Job *job) {
  if (job->prompts) fputs("> ", stderr);
}

/* Reads a block: at least one line, then further lines as long as they arrive without delay. On
 * a terminal a block is one line. */
static Err read_block(const Job *job, Input *in, Str *text, size_t *at, size_t *n, bool *end) {
  size_t most = job->interactive ? 1 : share_block(job->share);
  str_clear(text);
  for (*n = 0; *n < most && (*n == 0 || input_ready(in, LINE_WAIT));) {
    const char *one;
    size_t len;
    /* for the first line the prompt has been printed before input_open, which blocks */
    if (job->lines > 0) show_prompt(job);
    TRY(input_line(in, &one, &len));
    *end = one == NULL;
    if (*end) {
      if (job->prompts) fputc('\n', stderr);
      break;
    }
    TRY(check_text(in, one, len));
    str_addn(text, one, len);
    TRY(str_check(text));
    at[++*n] = text->len;
  }
  return ERR_OK;
}

/* Reads and translates a block. If a line cannot be read, the lines before it are still
 * translated. */
static Err translate_block(Job *job, Input *in, Str *text, size_t *at, Line *line, bool *end) {
  size_t n;
  ShareCut cut;
  ErrRecord fault = err_take(read_block(job, in, text, at, &n, end));
  for (size_t i = 0; i < n; i++) line[i] = (Line){str_text(text) + at[i], at[i + 1] - at[i]};
  if (n > 0) {
    TRY(share_run(job->share, line, n, print_line, job, &cut));
    TRY(out_flush());
    job->lines += n;
    if (cut.count) {
      char more[96] = "";
      if (cut.count > 1)
        snprintf(more, sizeof more, " (and %" PRIu64 " of the next %zu)", cut.count - 1, n);
      log_warn(
          "line %llu%s is longer than the model's maximum of %d tokens and was truncated: "
          "split such "
          "lines into sentences",
          (unsigned long long)cut.first, more, job->config.max_positions - 1);
    }
  }
  return err_give(&fault);
}

static Err translate_input(Job *job, const char *path) {
  Input *in = NULL;
  Str text = {0};
  size_t block = share_block(job->share), *at = NULL;
  Line *line;
  TRY(mem_alloc(&line, block, sizeof *line));
  Err err = mem_alloc(&at, block + 1, sizeof *at); /* offsets of the lines in `text` */
  job->interactive = strcmp(path, "-") == 0 && isatty(STDIN_FILENO);
  job->prompts = job->interactive && log_is_terminal() && !log_is_quiet();
  if (job->prompts) log_info("type a sentence and press Enter; Ctrl-D ends the input");
  show_prompt(job);
  if (!err) err = input_open(&in, path);
  for (bool end = false; !err && !end;) err = translate_block(job, in, &text, at, line, &end);
  if (!err) share_end(job->share);
  input_close(in);
  mem_free(at);
  str_free(&text);
  mem_free(line);
  return err;
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

/* Reports a wrong --input before a large model is loaded. */
static Err check_input(const char *path) {
  if (strcmp(path, "-") == 0 || access(path, R_OK) == 0) return ERR_OK;
  return err_errno("cannot open", path);
}

/* Opens --output on rank 0 instead of redirecting standard output: mpirun forwards standard
 * output and ignores write errors. */
static Err open_output(const OptSet *opts) {
  const char *path = opt_text(opts, "output");
  const char *input = opt_text(opts, "input");
  struct stat from, to;
  if (strcmp(path, "-") == 0) return ERR_OK;
  if (strcmp(input, "-") != 0 && stat(input, &from) == 0 && stat(path, &to) == 0 &&
      from.st_dev == to.st_dev && from.st_ino == to.st_ino)
    return err_set(ERR_USAGE, "--output %s is the --input too; pass another file", path);
  return out_to(path);
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

/* Fails unless all ranks have the same options and the same model. */
static Err agree_on_model(const Job *job, const OptSet *opts, const char *dir) {
  if (comm_size(job->comm) == 1) return ERR_OK;
  char path[FILE_PATH_MAX], hash[65];
  Str options = {0};
  Err err;
  opt_record(opts, &options);
  TRY_DONE(str_check(&options));
  /* model.json contains the checksums of the other files. */
  TRY_DONE(file_join(path, dir, "model.json"));
  TRY_DONE(place_sha256(path, hash));
  err = agree_ranks(job->comm, str_text(&options), "model-hash", hash);
done:
  str_free(&options);
  return err;
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
  BackendSpec backend = {opt_text(opts, "device"), opt_text(opts, "precision"),
                         (int)opt_count(opts, "threads")};
  if (!backend.threads && comm_size(job->comm) > 1) backend.threads = comm_threads(job->comm);
  TRY(backend_open_for_rank(&job->backend, &backend, comm_local_rank(job->comm)));
  if (!job->backend.host) log_info("device   %s", job->backend.about);
  TRY(find_model(opt_text(opts, "model"), dir));
  TRY(agree_on_model(job, opts, dir));
  TRY(open_model(job, dir));
  size_t rows = opt_given(opts, "batch-tokens") ? (size_t)opt_count(opts, "batch-tokens") : 0;
  TRY(translator_new(&job->translator, &job->config, &job->backend, job->weights,
                     &job->tokenizer, spec, rows));
  return share_new(&job->share, job->comm, job->translator,
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
  TRY(comm_open(&job.comm, RANK_TIMEOUT));
  cmd_introduce(job.comm);
  comm_set_remedy(job.comm, "start it again");
  comm_report(job.comm, COMM_NO_LIMIT, "loading the model");
  Err err;
  if (!opt_text(opts, "model"))
    TRY_DONE(
        err_set(ERR_USAGE,
                "no model given: pass --model DIR, a run, a checkpoint or a model directory"));
  TRY_DONE(check_options(opts));
  if (comm_rank(job.comm) == 0) TRY_DONE(check_input(opt_text(opts, "input")));
  if (comm_rank(job.comm) == 0) TRY_DONE(open_output(opts));
  BeamSpec spec = make_beam_spec(opts);
  job.nbest = spec.nbest;
  TRY_DONE(open_job(&job, opts, &spec));
  if (comm_size(job.comm) > 1) log_info("ranks    %s share the lines", comm_about(job.comm));
  err = comm_rank(job.comm) == 0 ? translate_input(&job, opt_text(opts, "input"))
                                 : share_serve(job.share);
done:
  comm_report(job.comm, COMM_NO_LIMIT, "its end");
  close_job(&job);
  comm_close(job.comm, err);
  return err;
}
