/* trireme classify: prints the label of each text, in order. With several ranks, rank 0 reads and prints,
 * and all ranks classify. Depends on decode/labeler, decode/share, infer.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/progress.h"
#include "cmd/cmd.h"
#include "cmd/infer.h"
#include "data/table.h"
#include "decode/labeler.h"

/* Number of texts that a rank gets at once; a GPU needs large batches. */
#define BLOCK_TEXTS        ((size_t)1024)
#define BLOCK_TEXTS_DEVICE ((size_t)8192)

typedef struct {
  Comm *comm;
  Backend backend;
  Classifier classifier;
  Labeler *labeler;
  Share *share;
  LineJob lines;
  bool is_json;
  double threshold; /* several labels: those with a higher probability are printed */
  Str text;         /* the line of output of one text */
  Progress progress;
  bool has_progress;
  LineCut cut; /* texts that were cut so far */
  /* Of the current call of run_worker: */
  LineTake take;
  void *context;
} Job;

/* ---- output of one text, as text ---- */

static size_t find_best(const double *p, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; i++)
    if (p[i] > p[best]) best = i;
  return best;
}

static void add_label(Str *out, const char *label, double probability) {
  str_addf(out, "%s%s\t%.4f", out->len ? "\t" : "", label, probability);
}

static void add_text(Job *job, const double *p) {
  const Classifier *c = &job->classifier;
  size_t n = (size_t)c->config->labels, best = find_best(p, n);
  if (c->config->head == BERT_HEAD_SOFTMAX) add_label(&job->text, c->label[best], p[best]);
  for (size_t i = 0; i < n && c->config->head == BERT_HEAD_SIGMOID; i++)
    if (p[i] > job->threshold) add_label(&job->text, c->label[i], p[i]);
  for (size_t i = 0; i < n && c->config->head == BERT_HEAD_SQUARE; i++)
    str_addf(&job->text, "%s%.6g", i ? "\t" : "", p[i]);
}

/* ---- as JSON ---- */

/* Labels are UTF-8 without control characters (classifier_split_labels). */
static void add_string(Str *out, const char *text) {
  str_addc(out, '"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') str_addc(out, '\\');
    str_addc(out, *text);
  }
  str_addc(out, '"');
}

/* Nine digits keep every bit of a float. */
static void add_outputs(const Job *job, Str *out, const char *name, const double *p) {
  const Classifier *c = &job->classifier;
  str_addf(out, "\"%s\": {", name);
  for (size_t i = 0; i < (size_t)c->config->labels; i++) {
    if (i) str_add(out, ", ");
    add_string(out, c->label[i]);
    str_addf(out, ": %.9g", p[i]);
  }
  str_addc(out, '}');
}

static void add_labels(const Job *job, Str *out, const double *p) {
  const Classifier *c = &job->classifier;
  bool is_first = true;
  str_add(out, "\"labels\": [");
  for (size_t i = 0; i < (size_t)c->config->labels; i++) {
    if (p[i] <= job->threshold) continue;
    if (!is_first) str_add(out, ", ");
    add_string(out, c->label[i]);
    is_first = false;
  }
  str_add(out, "], ");
}

static void add_json(Job *job, const double *p) {
  const Classifier *c = &job->classifier;
  Str *out = &job->text;
  size_t best = find_best(p, (size_t)c->config->labels);
  str_addc(out, '{');
  if (c->config->head == BERT_HEAD_SOFTMAX) {
    str_add(out, "\"label\": ");
    add_string(out, c->label[best]);
    str_addf(out, ", \"probability\": %.9g, ", p[best]);
  }
  if (c->config->head == BERT_HEAD_SIGMOID) add_labels(job, out, p);
  add_outputs(job, out, c->config->head == BERT_HEAD_SQUARE ? "values" : "probabilities", p);
  str_addc(out, '}');
}

/* ---- worker: every rank formats the output of its texts ---- */

static Err format_text(void *context, size_t i, const double *output) {
  Job *job = context;
  str_clear(&job->text);
  if (job->is_json)
    add_json(job, output);
  else
    add_text(job, output);
  TRY(str_check(&job->text));
  return job->take(job->context, i, 0, str_text(&job->text), 0);
}

static Err run_worker(void *self, uint64_t before, const Line *line, size_t n, LineTake take,
                      void *context, LineCut *cut) {
  Job *job = self;
  job->take = take;
  job->context = context;
  return labeler_run(job->labeler, before, line, n, format_text, job, cut);
}

static void set_step(void *self, LineStep step, void *context) {
  labeler_on_step(((Job *)self)->labeler, step, context);
}

/* ---- rank 0 ---- */

static Err print_line(void *context, size_t i, int k, const char *text, float score) {
  (void)context, (void)i, (void)k, (void)score;
  puts(text);
  return out_check();
}

static void count_block(void *context, size_t n, const LineCut *cut) {
  Job *job = context;
  (void)n;
  if (cut->count && !job->cut.count) job->cut.first = cut->first;
  job->cut.count += cut->count;
  if (job->has_progress) progress_set(&job->progress, job->lines.lines);
}

static void report_cut(const Job *job) {
  char count[32], more[64] = "";
  if (!job->cut.count) return;
  if (job->cut.count > 1)
    snprintf(more, sizeof more, " (and %s other%s)", str_of_count(count, job->cut.count - 1),
             job->cut.count > 2 ? "s" : "");
  log_warn("text %" PRIu64 "%s is longer than the model's maximum of %zu tokens and was cut",
           job->cut.first, more, bert_max_tokens(job->classifier.config));
}

static Err classify_input(Job *job) {
  const BertConfig *config = job->classifier.config;
  job->lines.share = job->share;
  job->lines.source.has_pairs = config->has_pairs;
  job->lines.source.pair_mark = LABELER_PAIR;
  job->lines.source.takes_nul = true; /* as prepare does */
  job->lines.hint = config->has_pairs
                        ? "type two texts with a tab between and press Enter; Ctrl-D ends"
                        : "type a text and press Enter; Ctrl-D ends the input";
  job->lines.take = print_line;
  job->lines.done = count_block;
  job->lines.context = job;
  job->has_progress = !infer_is_terminal(&job->lines.source);
  if (job->has_progress) progress_begin(&job->progress, "classify", "texts", 0);
  Err err = infer_run(&job->lines);
  if (job->has_progress && !err) progress_end(&job->progress);
  report_cut(job);
  return err;
}

/* ---- set-up ---- */

static Err read_columns(Job *job, const OptSet *opts) {
  LineSpec *source = &job->lines.source;
  int columns = opt_times(opts, "text-column");
  source->path = opt_text(opts, "input");
  if (columns > 2)
    return err_set(ERR_USAGE,
                   "--text-column was given %d times; an example has one text or two", columns);
  if (columns && strcmp(source->path, "-") == 0)
    return err_set(
        ERR_USAGE,
        "--text-column names a column of a table: pass it with --input FILE.csv, .tsv "
        "or .jsonl");
  source->columns = (size_t)columns;
  for (int i = 0; i < columns; i++) source->column[i] = opt_word(opts, "text-column", i, 0);
  return ERR_OK;
}

/* Refuses a table without --text-column: its lines, the header too, would be taken for texts. Pairs
 * may be in a file of two columns without names. */
static Err check_input_name(const LineSpec *source, bool has_pairs) {
  TableKind kind;
  if (source->columns || table_kind(source->path, &kind)) return ERR_OK;
  if (has_pairs && kind == TABLE_TSV) return ERR_OK;
  return err_set(
      ERR_USAGE,
      "--input %s is a table: pass --text-column NAME, the column that has the texts; "
      "if each line is a text, pass the file on standard input",
      source->path);
}

/* Refuses options that do not suit the model. */
static Err check_model(const Job *job, const OptSet *opts) {
  const BertConfig *config = job->classifier.config;
  size_t columns = job->lines.source.columns, texts = config->has_pairs ? 2 : 1;
  if (columns && columns != texts)
    return err_set(
        ERR_USAGE, "the model classifies %s: pass --text-column %s",
        config->has_pairs ? "pairs of texts" : "single texts",
        config->has_pairs
            ? "twice"
            : "once; an imported model of pairs is one after 'trireme import --pairs'");
  TRY(check_input_name(&job->lines.source, config->has_pairs));
  if (opt_given(opts, "threshold") && config->head != BERT_HEAD_SIGMOID)
    return err_set(
        ERR_USAGE,
        "--threshold is for models that give a text several labels; this one %s: leave "
        "it out",
        config->head == BERT_HEAD_SOFTMAX ? "chooses one class" : "computes numbers");
  return ERR_OK;
}

/* Returns an upper limit, in seconds, of the time of a batch: 600 s for start-up (libraries, kernels
 * compiled by the driver) plus 2 FLOPs per parameter and token at a speed that any device exceeds. */
static double get_step_limit(const Job *job) {
  double start = 600, slowest = job->backend.host ? 1e9 : 1e11;
  double tokens = (double)labeler_capacity(job->labeler);
  return start + 2.0 * (double)job->classifier.params.total * tokens / slowest;
}

static Err open_job(Job *job, const OptSet *opts) {
  char dir[FILE_PATH_MAX];
  LineWorker worker = {
      .self = job, .doing = "classifying", .run = run_worker, .on_step = set_step};
  size_t tokens = opt_given(opts, "batch-tokens") ? (size_t)opt_count(opts, "batch-tokens") : 0;
  TRY(infer_open_backend(&job->backend, opts, job->comm));
  TRY(infer_find_model("--model ", opt_text(opts, "model"), dir));
  TRY(infer_agree(job->comm, opts, dir));
  TRY(classifier_open(&job->classifier, &job->backend, dir));
  TRY(check_model(job, opts));
  TRY(labeler_new(&job->labeler, &job->classifier, tokens));
  return share_new(&job->share, job->comm, worker,
                   job->backend.host ? BLOCK_TEXTS : BLOCK_TEXTS_DEVICE, get_step_limit(job));
}

static void close_job(Job *job) {
  share_free(job->share);
  labeler_free(job->labeler);
  classifier_close(&job->classifier);
  str_free(&job->text);
  backend_close(&job->backend);
}

Err cmd_classify(OptSet *opts) {
  log_quiet(opt_flag(opts, "quiet"));
  Job job = {.is_json = opt_flag(opts, "json"), .threshold = opt_real(opts, "threshold")};
  TRY(comm_open(&job.comm, INFER_RANK_TIMEOUT));
  cmd_introduce(job.comm);
  comm_report(job.comm, COMM_NO_LIMIT, "loading the model");
  Err err;
  TRY_DONE(read_columns(&job, opts));
  TRY_DONE(infer_check_files(opts, job.comm));
  TRY_DONE(open_job(&job, opts));
  if (comm_size(job.comm) > 1) log_info("ranks    %s share the texts", comm_about(job.comm));
  err = comm_rank(job.comm) == 0 ? classify_input(&job) : share_serve(job.share);
done:
  err = infer_end_output(err);
  comm_report(job.comm, COMM_NO_LIMIT, "its end");
  close_job(&job);
  comm_close(job.comm, err);
  return err;
}
