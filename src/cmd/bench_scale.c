/* trireme bench scale: runs the same command on several numbers of ranks of this machine, one after
 * the other, and prints how the time falls: speed-up, efficiency, loss and metric of each run, and
 * whether the result is the same to the bit. Depends on launch/command, monitor/runlog. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/place.h"
#include "base/progress.h"
#include "base/str.h"
#include "base/thread.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"
#include "launch/command.h"
#include "monitor/runlog.h"

#define RUNS_MAX   64   /* largest number of runs */
#define RANKS_MAX  4096 /* largest number of ranks of a run */
#define WORDS_MORE 16   /* words that are added to the command */
#define NO_LIMIT   1e9  /* seconds; the user ends a command that takes too long */

typedef struct {
  int ranks;
  double seconds;      /* of the whole command */
  double loss, metric; /* of the last record of a training run; NAN: none */
  char sha256[65];     /* of the weights or of the output */
} ScaleRun;

typedef struct {
  const char *command;
  const char **word; /* the command's name and its arguments */
  int words;
  OptSet *options;          /* its options */
  const char *metric;       /* name of the metric in metrics.jsonl; NULL: none */
  char base[FILE_PATH_MAX]; /* --run or --output; the runs append "/ranks-N" or ".ranks-N" */
  char temp[FILE_PATH_MAX]; /* directory of outputs that nobody asked for; empty: none */
  char micro_batches[16];   /* value that is added for train; empty: the command has one */
  ScaleRun run[RUNS_MAX];
  int runs;
} Scale;

/* ---- numbers of ranks ---- */

static Err refuse_list(const char *text) {
  return err_set(
      ERR_USAGE,
      "--ranks %s: pass numbers of ranks from 1 to %d in increasing order, at most %d, "
      "such as 1,2,4 or 1..4",
      text, RANKS_MAX, RUNS_MAX);
}

static const char *parse_number(const char *at, int *n) {
  size_t digits = strspn(at, "0123456789");
  *n = digits >= 1 && digits <= 4 ? atoi(at) : 0;
  return at + digits;
}

static bool add_run(Scale *s, int ranks) {
  int last = s->runs ? s->run[s->runs - 1].ranks : 0;
  if (s->runs == RUNS_MAX || ranks <= last || ranks > RANKS_MAX) return false;
  s->run[s->runs++].ranks = ranks;
  return true;
}

/* Reads "1,2,4", "1..4" or a mixture. */
static Err read_list(Scale *s, const char *text) {
  for (const char *at = text;;) {
    int first, last;
    at = parse_number(at, &first);
    last = first;
    if (strncmp(at, "..", 2) == 0) at = parse_number(at + 2, &last);
    if (first < 1 || last < first) return refuse_list(text);
    for (int n = first; n <= last; n++)
      if (!add_run(s, n)) return refuse_list(text);
    if (*at == '\0') return ERR_OK;
    if (*at++ != ',') return refuse_list(text);
  }
}

/* The default: powers of two below the number of cores, and that number. */
static void use_cores(Scale *s) {
  int cores = thread_cores();
  for (int n = 1; n < cores && n < RANKS_MAX; n *= 2) add_run(s, n);
  add_run(s, cores);
}

/* ---- the command ---- */

static bool is_train(const Scale *s) {
  return strcmp(s->command, "train") == 0;
}

static Err check_train(Scale *s) {
  static const char *const refused[] = {"resume", "auto-resume", "dry-run"};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (opt_flag(s->options, refused[i]))
      return err_set(ERR_USAGE,
                     "bench scale begins a run for each number of ranks: leave out --%s",
                     refused[i]);
  if (!opt_text(s->options, "run"))
    return err_set(ERR_USAGE, "no --run given: its runs are written to DIR/ranks-1, …");
  if (opt_given(s->options, "micro-batches")) return ERR_OK;
  snprintf(s->micro_batches, sizeof s->micro_batches, "%d", s->run[s->runs - 1].ranks);
  log_info("train gets --micro-batches %s, so that all runs do the same work",
           s->micro_batches);
  return ERR_OK;
}

static Err make_temp(Scale *s) {
  const char *tmp = getenv("TMPDIR");
  char path[FILE_PATH_MAX];
  TRY(file_join(path, tmp && *tmp ? tmp : "/tmp", "trireme-scale-XXXXXX"));
  if (!mkdtemp(path)) return err_errno("cannot create", path);
  memcpy(s->temp, path, sizeof path);
  return file_join(s->base, s->temp, "output");
}

static Err check_lines(Scale *s) {
  const char *output = opt_text(s->options, "output");
  if (strcmp(opt_text(s->options, "input"), "-") == 0)
    return err_set(ERR_USAGE, "each run reads the input again: name a file with --input FILE");
  if (strcmp(output, "-") == 0) return make_temp(s);
  return file_join(s->base, output, "");
}

static Err read_command(Scale *s, const OptSet *opts) {
  s->words = opt_operands(opts) - 1;
  s->command = opt_operand(opts, 1);
  if (!s->command || (!is_train(s) && strcmp(s->command, "translate") != 0 &&
                      strcmp(s->command, "classify") != 0))
    return err_set(
        ERR_USAGE,
        "bench scale runs train, translate or classify: trireme bench scale --ranks 1,2,4 "
        "-- train …");
  TRY(mem_alloc(&s->word, (size_t)s->words, sizeof *s->word));
  for (int i = 0; i < s->words; i++) s->word[i] = opt_operand(opts, i + 1);
  TRY(opt_parse(&s->options, opt_command(s->command), s->words - 1,
                (char **)(uintptr_t)(s->word + 1)));
  if (!is_train(s)) return check_lines(s);
  TRY(check_train(s));
  TRY(file_join(s->base, opt_text(s->options, "run"), ""));
  return file_mkdirs(s->base);
}

/* ---- runs ---- */

/* Returns the directory or file that a run writes. */
static Err get_result_path(const Scale *s, const ScaleRun *r, char path[FILE_PATH_MAX]) {
  size_t len = strlen(s->base);
  while (len > 1 && s->base[len - 1] == '/') len--;
  int n = snprintf(path, FILE_PATH_MAX, "%.*s%sranks-%d", (int)len, s->base,
                   is_train(s) ? "/" : ".", r->ranks);
  if (n > 0 && n < FILE_PATH_MAX) return ERR_OK;
  return err_set(ERR_USAGE, "the path %s is too long; choose a shorter one", s->base);
}

static void add_launcher(const char **argv, int *n, const char *ranks) {
  const char *const mpirun[] = {"mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none"};
  for (size_t i = 0; i < sizeof mpirun / sizeof *mpirun; i++) argv[(*n)++] = mpirun[i];
  if (geteuid() == 0) argv[(*n)++] = "--allow-run-as-root";
}

static Err run_words(const Scale *s, const ScaleRun *r, const char **argv, double *seconds) {
  CommandResult result;
  char last[512];
  double start = progress_clock();
  TRY(command_run(argv, NO_LIMIT, &result));
  *seconds = progress_clock() - start;
  Err err = ERR_OK;
  if (result.status != 0) {
    command_last_line(&result, last, sizeof last);
    err = err_set(ERR_WORK, "%s on %d rank%s failed with status %d: %s", s->command, r->ranks,
                  r->ranks == 1 ? "" : "s", result.status, last);
  }
  command_free(&result);
  return err;
}

/* Runs the command; one rank runs without mpirun. */
static Err run_command(const Scale *s, ScaleRun *r, const char *path) {
  const char **argv;
  char program[FILE_PATH_MAX], ranks[16];
  int n = 0;
  TRY(file_program(program));
  TRY(mem_alloc(&argv, (size_t)s->words + WORDS_MORE, sizeof *argv));
  snprintf(ranks, sizeof ranks, "%d", r->ranks);
  if (r->ranks > 1) add_launcher(argv, &n, ranks);
  argv[n++] = program;
  for (int i = 0; i < s->words; i++) argv[n++] = s->word[i];
  argv[n++] = is_train(s) ? "--run" : "--output"; /* the last one counts */
  argv[n++] = path;
  if (s->micro_batches[0]) {
    argv[n++] = "--micro-batches";
    argv[n++] = s->micro_batches;
  }
  Err err = run_words(s, r, argv, &r->seconds);
  mem_free(argv);
  return err;
}

static void take_last(const RunLog *log, const char *name, double *value) {
  RunPoint point;
  if (runlog_last(log, name, &point)) *value = point.value;
}

/* Reads loss and metric of a training run. The first metric that the run has counts. */
static Err read_figures(Scale *s, ScaleRun *r, const char *dir) {
  static const char *const metrics[] = {"valid_auc", "valid_bleu", "valid_pearson",
                                        "valid_accuracy", "valid_nll"};
  RunLog log;
  TRY(runlog_open(&log, dir));
  Err err = runlog_read(&log);
  take_last(&log, "valid_nll", &r->loss); /* a run shorter than --log-every has no other */
  take_last(&log, "loss", &r->loss);
  take_last(&log, "nll",
            &r->loss); /* the loss without smoothing and weights, if there is one */
  for (size_t i = 0; i < sizeof metrics / sizeof *metrics && !s->metric; i++)
    if (runlog_column(&log, metrics[i])) s->metric = metrics[i];
  if (s->metric) take_last(&log, s->metric, &r->metric);
  runlog_close(&log);
  return err;
}

static Err run_once(Scale *s, ScaleRun *r) {
  char path[FILE_PATH_MAX], file[FILE_PATH_MAX];
  r->loss = r->metric = NAN;
  TRY(get_result_path(s, r, path));
  log_info("scale    %s on %d rank%s", s->command, r->ranks, r->ranks == 1 ? "" : "s");
  TRY(run_command(s, r, path));
  if (!is_train(s)) return place_sha256(path, r->sha256);
  TRY(read_figures(s, r, path));
  TRY(file_join(file, path, "checkpoints/latest/weights.safetensors"));
  return place_sha256(file, r->sha256);
}

/* ---- results ---- */

static double get_speed_up(const Scale *s, const ScaleRun *r) {
  return s->run[0].seconds / r->seconds;
}

static double get_efficiency(const Scale *s, const ScaleRun *r) {
  return get_speed_up(s, r) * s->run[0].ranks / r->ranks;
}

static bool is_same(const Scale *s, const ScaleRun *r) {
  return strcmp(s->run[0].sha256, r->sha256) == 0;
}

static void add_figure(Str *out, double value) {
  if (isnan(value))
    str_addf(out, " %12s", "-");
  else
    str_addf(out, " %12.6g", value);
}

static void print_table(const Scale *s, Str *out) {
  str_addf(out, "%5s %10s %9s %11s", "ranks", "time s", "speed-up", "efficiency");
  if (is_train(s)) str_addf(out, " %12s %12s", "loss", s->metric ? s->metric : "metric");
  str_addf(out, "  %s\n", is_train(s) ? "weights" : "output");
  for (const ScaleRun *r = s->run; r < s->run + s->runs; r++) {
    str_addf(out, "%5d %10.2f %9.2f %9.1f %%", r->ranks, r->seconds, get_speed_up(s, r),
             100 * get_efficiency(s, r));
    if (is_train(s)) {
      add_figure(out, r->loss);
      add_figure(out, r->metric);
    }
    str_addf(out, "  %s\n", is_same(s, r) ? "same bits" : "differ");
  }
}

static json_t *make_number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static json_t *make_run(const Scale *s, const ScaleRun *r) {
  json_t *run =
      json_pack("{s:i, s:f, s:f, s:f, s:b, s:s}", "ranks", r->ranks, "seconds", r->seconds,
                "speed_up", get_speed_up(s, r), "efficiency", get_efficiency(s, r), "is_same",
                (int)is_same(s, r), "sha256", r->sha256);
  if (run && is_train(s)) json_object_set_new(run, "loss", make_number(r->loss));
  if (run && s->metric) json_object_set_new(run, s->metric, make_number(r->metric));
  return run;
}

static Err print_json(const Scale *s, Str *out) {
  json_t *runs = json_array();
  for (int i = 0; i < s->runs; i++) json_array_append_new(runs, make_run(s, &s->run[i]));
  json_t *root =
      json_pack("{s:s, s:s, s:o}", "bench", "scale", "command", s->command, "runs", runs);
  char *text = root ? json_dumps(root, JSON_REAL_PRECISION(9)) : NULL;
  json_decref(root);
  if (!text) return err_set(ERR_WORK, "out of memory while writing JSON");
  str_addf(out, "%s\n", text);
  free(text); /* Jansson allocated it with malloc */
  return ERR_OK;
}

static Err print_results(const Scale *s, bool is_json) {
  Str out = {0};
  Err err = ERR_OK;
  if (is_json)
    err = print_json(s, &out);
  else
    print_table(s, &out);
  if (!err) err = str_check(&out);
  if (!err) err = out_print(str_text(&out));
  str_free(&out);
  return err;
}

Err bench_scale(const OptSet *opts) {
  Scale *s;
  Err err = ERR_OK;
  TRY(mem_alloc(&s, 1, sizeof *s));
  if (opt_text(opts, "ranks"))
    TRY_DONE(read_list(s, opt_text(opts, "ranks")));
  else
    use_cores(s);
  TRY_DONE(read_command(s, opts));
  for (int i = 0; i < s->runs; i++) TRY_DONE(run_once(s, &s->run[i]));
  err = print_results(s, opt_flag(opts, "json"));
done:
  if (s->temp[0] && file_remove_all(s->temp)) log_warn("%s stays: %s", s->temp, err_message());
  if (s->options) opt_free(s->options);
  mem_free(s->word);
  mem_free(s);
  return err;
}
