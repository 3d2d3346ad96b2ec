/* trireme translate: lines in, translations out, in order. Relies on decode, model. */
#include "decode/translate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "data/input.h"
#include "model/store.h"

#define BLOCK_LINES ((size_t)512) /* translated together, sorted by length */

typedef struct {
  Backend backend;
  ModelConfig config;
  Params params;
  Tokenizer tokenizer;
  Translator *translator;
  float *w;
  bool scores;
  int nbest;
} Job;

static Err open_model(Job *job, const char *dir) {
  char path[FILE_PATH_MAX];
  TRY(store_load_config(&job->config, dir));
  TRY(params_lay_out(&job->params, &job->config));
  TRY(mem_alloc_aligned(&job->w, job->params.padded * sizeof(float)));
  TRY(file_join(path, dir, "weights.safetensors"));
  TRY(store_load_array(&job->params, job->w, path));
  TRY(file_join(path, dir, "tokenizer.model"));
  TRY(tokenizer_open(&job->tokenizer, path));
  if (job->tokenizer.vocab != job->config.vocab) {
    return err_set(ERR_WORK, "%s has %d pieces where the model has %d", path,
                   job->tokenizer.vocab, job->config.vocab);
  }
  return ERR_OK;
}

static Err print_line(void *context, size_t i, int k, const char *text, float score) {
  const Job *job = context;
  (void)i;
  if (job->nbest > 1) printf("%d\t", k + 1);
  if (job->scores) printf("%.4f\t", (double)score);
  puts(text);
  return ferror(stdout) ? err_set(ERR_WORK, "cannot write standard output") : ERR_OK;
}

/* A block of lines: as many as there are, but on a terminal one at a time. */
static Err translate_block(Job *job, Input *in, bool interactive, Str *text, Line *line,
                           bool *end, uint64_t first) {
  size_t at[BLOCK_LINES + 1], n = 0, cut;
  str_clear(text);
  while (n < (interactive ? 1 : BLOCK_LINES) && !*end) {
    const char *one;
    size_t len;
    if (interactive) fprintf(stderr, "> ");
    TRY(input_line(in, &one, &len));
    *end = one == NULL;
    if (*end) break;
    size_t valid = utf8_valid(one, len);
    if (valid < len) {
      return err_set(ERR_WORK, "%s:%llu: byte %zu of the line is not UTF-8", input_path(in),
                     (unsigned long long)input_number(in), valid + 1);
    }
    at[n++] = text->len;
    str_addn(text, one, len);
    TRY(str_check(text));
  }
  at[n] = text->len;
  for (size_t i = 0; i < n; i++) line[i] = (Line){str_text(text) + at[i], at[i + 1] - at[i]};
  if (n == 0) return ERR_OK;
  TRY(translator_run(job->translator, line, n, print_line, job, &cut));
  if (cut) {
    log_warn(
        "%zu of the lines from %llu on are longer than the %d tokens the model was trained "
        "for, and were cut",
        cut, (unsigned long long)first + 1, job->config.longest - 1);
  }
  return fflush(stdout) == 0 ? ERR_OK : err_set(ERR_WORK, "cannot write standard output");
}

static Err translate(Job *job, const char *path) {
  Input *in;
  Str text = {0};
  Line *line;
  TRY(mem_alloc(&line, BLOCK_LINES, sizeof *line));
  Err err = input_open(&in, path);
  bool interactive = strcmp(path, "-") == 0 && isatty(STDIN_FILENO);
  if (!err && interactive) log_info("type a sentence and press Enter; Ctrl-D ends");
  for (bool end = false; !err && !end;)
    err = translate_block(job, in, interactive, &text, line, &end, input_number(in));
  input_close(in);
  str_free(&text);
  mem_free(line);
  return err;
}

Err cmd_translate(OptSet *opts) {
  log_quiet(opt_flag(opts, "quiet"));
  const char *dir = opt_text(opts, "model");
  if (!dir)
    return err_set(ERR_USAGE,
                   "say which model: --model DIR, a checkpoint or a model directory");
  BeamSpec spec = {.beam = (int)opt_count(opts, "beam"),
                   .alpha = (float)opt_real(opts, "alpha"),
                   .extra = (int)opt_count(opts, "extra-length"),
                   .nbest = (int)opt_count(opts, "nbest")};
  if (spec.nbest > spec.beam)
    return err_set(ERR_USAGE, "--nbest %d is more than the beam holds; raise --beam",
                   spec.nbest);
  Job job = {.scores = opt_flag(opts, "scores"), .nbest = spec.nbest};
  Err err;
  BackendSpec backend = {opt_text(opts, "device"), opt_text(opts, "precision"),
                         (int)opt_count(opts, "threads")};
  TRY_DONE(backend_open(&job.backend, &backend));
  TRY_DONE(open_model(&job, dir));
  TRY_DONE(translator_new(&job.translator, &job.config, &job.backend, (Weights){job.w, job.w},
                          &job.tokenizer, &spec, (size_t)opt_count(opts, "batch-tokens")));
  err = translate(&job, opt_text(opts, "input"));
done:
  translator_free(job.translator);
  tokenizer_close(&job.tokenizer);
  params_free(&job.params);
  mem_free(job.w);
  backend_close(&job.backend);
  return err;
}
