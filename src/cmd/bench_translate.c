/* trireme bench translate: speed of beam search with random weights. The sources have the
 * lengths listed in a file, and each output is forced to the length of its target, so the speed
 * depends only on lengths and model size. Depends on decode/beam_pool, model. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cmd/bench.h"
#include "decode/beam_pool.h"
#include "decode/translate.h"
#include "model/weights.h"

/* Sentences that are translated together. */
typedef struct {
  size_t first, count; /* indices of sentences */
  size_t at;           /* index of the first source token */
  double seconds;      /* time of its search */
} BenchBatch;

/* What the batch of a stream needs. */
typedef struct {
  int32_t *off;
  Hypothesis *best;
} StreamArrays;

typedef struct {
  TransformerConfig config;
  Params params;
  Backend backend;
  Weights weights;
  float *w;
  BeamSpec spec;
  BeamPool *pool;
  size_t rows, sentences; /* largest number of source tokens and of sentences in a batch */
  int32_t *src, *length;  /* source tokens of all sentences; forced length of each output */
  uint32_t *source_len;   /* source tokens of each sentence */
  BenchBatch *batch;
  size_t batches;
  size_t streams;       /* largest number of batches that are searched at the same time */
  StreamArrays *arrays; /* (streams) */
  double seconds;       /* wall-clock seconds of all searches */
  double cpu;           /* CPU seconds of all threads during the searches */
  double *latency;      /* (batches) seconds of each batch, sorted */
  double load;          /* seconds to pack the weights for the GEMMs */
  double first;         /* seconds of the warm-up, in which a GPU selects GEMM algorithms */
  BeamTimes before;     /* times of the parts of the warm-up */
} Run;

/* Sets the limits of a batch: those of `trireme translate`, or as many sentences as the user wants. */
static void limit_batches(Run *r, const Lengths *l, const OptSet *opts) {
  size_t tokens = opt_given(opts, "batch-tokens") ? (size_t)opt_count(opts, "batch-tokens") : 0;
  translator_batch(&r->backend, tokens, l->longest, r->spec.beam_size, &r->rows, &r->sentences);
  if (!tokens) translator_fit_batch(&r->config, &r->backend, &r->spec, &r->rows, &r->sentences);
  if (opt_given(opts, "batch-sentences"))
    r->sentences = (size_t)opt_count(opts, "batch-sentences");
}

/* Divides the sentences into the batches that `trireme translate` would form, and draws their
 * source tokens. */
static Err form_batches(Run *r, const Lengths *l) {
  Rng rng = {.key = 7};
  size_t tokens = 0, at = 0;
  for (size_t i = 0; i < l->pairs; i++) tokens += l->len[i][0] + 1;
  TRY(mem_alloc(&r->src, tokens, sizeof *r->src));
  TRY(mem_alloc(&r->length, l->pairs, sizeof *r->length));
  TRY(mem_alloc(&r->source_len, l->pairs, sizeof *r->source_len));
  TRY(mem_alloc(&r->batch, l->pairs, sizeof *r->batch));
  TRY(mem_alloc(&r->latency, l->pairs, sizeof *r->latency));
  for (size_t i = 0; i < l->pairs; r->batches++) {
    BenchBatch *b = &r->batch[r->batches];
    *b = (BenchBatch){.first = i, .at = at};
    for (; i < l->pairs && b->count < r->sentences && at - b->at + l->len[i][0] + 1 <= r->rows;
         i++, b->count++) {
      r->length[i] = (int32_t)l->len[i][1];
      r->source_len[i] = l->len[i][0] + 1;
      for (uint32_t c = 0; c < l->len[i][0]; c++)
        r->src[at++] = (int32_t)(4 + rng_below(&rng, (uint64_t)r->config.vocab - 4));
      r->src[at++] = r->config.eos;
    }
  }
  return ERR_OK;
}

static Err new_arrays(Run *r) {
  TRY(mem_alloc(&r->arrays, beam_pool_streams(r->pool), sizeof *r->arrays));
  r->streams = beam_pool_streams(r->pool);
  for (size_t i = 0; i < r->streams; i++) {
    TRY(mem_alloc(&r->arrays[i].off, r->sentences + 1, sizeof *r->arrays->off));
    TRY(mem_alloc(&r->arrays[i].best, r->sentences, sizeof *r->arrays->best));
  }
  return ERR_OK;
}

/* Opens the pool. Batches of one sentence are translated one after the other, because their
 * latency is of interest. */
static Err open_pool(Run *r) {
  BeamPoolSpec spec = {.config = &r->config,
                       .backend = &r->backend,
                       .weights = r->weights,
                       .spec = &r->spec,
                       .tokens = r->rows,
                       .sentences = r->sentences};
  TRY(beam_pool_new(&r->pool, &spec,
                    r->sentences == 1 ? 1 : beam_pool_default_streams(&r->backend)));
  double start = progress_clock();
  TRY(beam_pool_pack(r->pool));
  r->load = progress_clock() - start;
  return new_arrays(r);
}

static Err open_run(Run *r, const Lengths *l, const OptSet *opts) {
  /* beam search does not use fp8: beam.c */
  if (strcmp(opt_text(opts, "precision"), "fp8") == 0)
    return err_set(ERR_USAGE,
                   "bench translate has no --precision fp8: translating does not use it; pass "
                   "--precision bf16");
  BackendSpec backend = {opt_text(opts, "device"), opt_text(opts, "precision"),
                         (int)opt_count(opts, "threads")};
  r->spec = (BeamSpec){
      .beam_size = (int)opt_count(opts, "beam-size"), .length_penalty = 0.6f, .nbest = 1};
  TRY(backend_open(&r->backend, &backend));
  TRY(transformer_preset(&r->config, opt_text(opts, "preset")));
  r->config.max_positions = (int)l->longest;
  TRY(transformer_lay_out_params(&r->params, &r->config));
  TRY(mem_alloc_aligned(&r->w, r->params.padded * sizeof *r->w));
  params_init(&r->params, 1, r->w);
  TRY(weights_new(&r->weights, &r->backend, r->w, r->params.padded));
  limit_batches(r, l, opts);
  TRY(form_batches(r, l));
  return open_pool(r);
}

static void close_run(Run *r) {
  beam_pool_free(r->pool);
  params_free(&r->params);
  weights_free(&r->weights, &r->backend);
  for (size_t i = 0; i < r->streams; i++) {
    mem_free(r->arrays[i].off);
    mem_free(r->arrays[i].best);
  }
  void *list[] = {r->arrays, r->w, r->src, r->length, r->source_len, r->batch, r->latency};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) mem_free(list[i]);
  backend_close(&r->backend);
}

static int compare_longer_first(const void *a, const void *b) {
  const uint32_t *x = a, *y = b;
  if (x[0] != y[0]) return x[0] > y[0] ? -1 : 1;
  return x[1] > y[1] ? -1 : x[1] < y[1];
}

/* Translates a batch (PoolSearch). */
static Err translate_batch(void *run, Beam *beam, size_t stream, size_t index) {
  const Run *r = run;
  BenchBatch *b = &r->batch[index];
  const StreamArrays *a = &r->arrays[stream];
  const int32_t *length = r->length + b->first;
  a->off[0] = 0;
  for (size_t s = 0; s < b->count; s++)
    a->off[s + 1] = a->off[s] + (int32_t)r->source_len[b->first + s];
  beam_set_lengths(beam, length);
  double start = progress_clock();
  TRY(beam_search(beam, r->src + b->at, a->off, b->count, a->best));
  b->seconds = progress_clock() - start;
  for (size_t s = 0; s < b->count; s++) {
    if (a->best[s].len != (size_t)length[s])
      return err_set(
          ERR_WORK,
          "internal error: an output of %zu tokens where %d were forced; please report it",
          a->best[s].len, length[s]);
  }
  return ERR_OK;
}

static Err translate_all(Run *r) {
  double start = progress_clock(), start_cpu = progress_cpu_clock();
  TRY(beam_pool_run(r->pool, r->batches, translate_batch, r));
  r->seconds = progress_clock() - start;
  r->cpu = progress_cpu_clock() - start_cpu;
  return ERR_OK;
}

/* A GPU selects GEMM algorithms in the first pass and captures graphs in it, so only a later
 * one is measured. A stream captures the graphs of its batches, which may be others in the next
 * pass: with several streams there are two passes. */
static Err warm_up(Run *r) {
  if (r->backend.host) return ERR_OK;
  TRY(translate_all(r));
  r->first = r->seconds;
  if (beam_pool_opened(r->pool) > 1) TRY(translate_all(r));
  r->before = beam_pool_times(r->pool);
  return ERR_OK;
}

static BeamTimes get_times(const Run *r) {
  BeamTimes t = beam_pool_times(r->pool), b = r->before;
  return (BeamTimes){t.encode - b.encode,    t.step - b.step, t.choose - b.choose,
                     t.steps - b.steps,      t.rows - b.rows, t.graphs,
                     t.launched - b.launched};
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the latency in milliseconds that `percent` of the batches do not exceed. Needs sorted
 * latencies. */
static double get_percentile(const Run *r, size_t percent) {
  size_t rank = (r->batches * percent + 99) / 100;
  return 1e3 * r->latency[rank ? rank - 1 : 0];
}

/* Returns the FLOPs of the GEMMs, without attention scores. step_rows: number of hypotheses,
 * summed over all decoding steps. */
static double count_flops(const Run *r, double source_rows, double step_rows) {
  double d = r->config.d_model, ff = r->config.ffn_dim,
         layers[] = {r->config.layers[0], r->config.layers[1]};
  double encoder = layers[0] * (4 * d * d + 2 * d * ff) + layers[1] * 2 * d * d;
  double decoder = layers[1] * (6 * d * d + 2 * d * ff) + (double)r->config.vocab * d;
  return 2 * (source_rows * encoder + step_rows * decoder);
}

static void print_result(const Run *r, const Lengths *l, const OptSet *opts) {
  BeamTimes t = get_times(r);
  for (size_t i = 0; i < r->batches; i++) r->latency[i] = r->batch[i].seconds;
  qsort(r->latency, r->batches, sizeof *r->latency, compare_doubles);
  double tokens[2] = {0};
  for (size_t i = 0; i < l->pairs; i++) {
    tokens[0] += l->len[i][0] + 1;
    tokens[1] += l->len[i][1];
  }
  double rate = (tokens[0] + tokens[1]) / r->seconds, target = tokens[1] / r->seconds;
  double gflops = count_flops(r, tokens[0], (double)t.rows) / r->seconds * 1e-9;
  if (opt_flag(opts, "json")) {
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}",
        "bench", "translate", "backend", r->backend.about, "preset", opt_text(opts, "preset"),
        "precision", opt_text(opts, "precision"), "beam", (int)opt_count(opts, "beam-size"),
        "tok_s", rate, "tok_cpu_s", rate * r->seconds / r->cpu, "tgt_tok_s", target,
        "sentences_s", (double)l->pairs / r->seconds, "seconds", r->seconds, "cpu_s", r->cpu,
        "encode_s", t.encode, "step_s", t.step, "choose_s", t.choose, "gflops", gflops,
        "first_s", r->first, "steps", (json_int_t)t.steps, "graphs", (json_int_t)t.graphs,
        "graph_steps", (json_int_t)t.launched, "batches", (json_int_t)r->batches, "streams",
        (json_int_t)beam_pool_opened(r->pool), "p50_ms", get_percentile(r, 50), "p99_ms",
        get_percentile(r, 99), "max_ms", get_percentile(r, 100));
    json_dumpf(j, stdout, JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(j);
    return;
  }
  printf("%s; %s, beam %d, batches of at most %zu source tokens and %zu sentences",
         r->backend.about, opt_text(opts, "preset"), (int)opt_count(opts, "beam-size"), r->rows,
         r->sentences);
  if (beam_pool_opened(r->pool) > 1) printf(", %zu at a time", beam_pool_opened(r->pool));
  printf("\n");
  printf(
      "translate: %.0f tokens/s (source and target; target alone %.0f), %.2f sentences/s, "
      "%.1f GFLOP/s\n",
      rate, target, (double)l->pairs / r->seconds, gflops);
  printf(
      "           %.2f s (%.2f of CPU): encoder %.2f, decoder %.2f in %llu steps of %.0f "
      "hypotheses, "
      "search %.2f; weights packed in %.2f\n",
      r->seconds, r->cpu, t.encode, t.step, (unsigned long long)t.steps,
      (double)t.rows / (double)t.steps, t.choose, r->load);
  printf("           %zu batches: half in at most %.2f ms, 99 %% in %.2f, all in %.2f\n",
         r->batches, get_percentile(r, 50), get_percentile(r, 99), get_percentile(r, 100));
  if (t.graphs)
    printf("           graphs: %llu captured, %llu steps launched as graphs\n",
           (unsigned long long)t.graphs, (unsigned long long)t.launched);
  if (r->first > 0)
    printf("           the first pass, which also selected GEMM algorithms: %.2f s\n",
           r->first);
}

Err bench_translate(const OptSet *opts) {
  const char *path = opt_text(opts, "lengths");
  if (!path)
    return err_set(ERR_USAGE,
                   "no lengths given: pass --lengths FILE, source and target length per line");
  Run r = {.config = {.vocab = (int)opt_count(opts, "vocab-size"), .bos = 2, .eos = 1}};
  Lengths l = {0};
  Err err;
  TRY_DONE(bench_read_lengths(&l, path));
  qsort(l.len, l.pairs, sizeof *l.len, compare_longer_first);
  TRY_DONE(open_run(&r, &l, opts));
  TRY_DONE(warm_up(&r));
  TRY_DONE(translate_all(&r));
  print_result(&r, &l, opts);
done:
  close_run(&r);
  mem_free(l.len);
  return err;
}
