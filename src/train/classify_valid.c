/* Gathers the outputs of a classifier and scores them. Depends on comm, data/text_shard,
 * metric/classify. */
#include "train/classify_valid.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "data/text_shard.h"
#include "metric/classify.h"

/* ---- labels ---- */

static Err read_targets(ClassifyValid *v, DataSet *d) {
  DataReader reader;
  Err err = ERR_OK;
  dataset_enter(d, &reader);
  for (uint64_t i = 0; i < v->texts && !err; i++) {
    uint64_t within;
    Shard *shard;
    err = dataset_find(&reader, SPLIT_VALID, i, &shard, &within);
    if (!err) err = text_shard_target(shard, &d->meta, within, v->target + i * v->targets);
  }
  dataset_leave(&reader);
  return err;
}

Err classify_valid_open(ClassifyValid *v, DataSet *d) {
  const MetaClassify *c = d->meta.classify;
  *v = (ClassifyValid){.kind = c->kind,
                       .texts = (size_t)d->meta.split[SPLIT_VALID].pairs,
                       .labels = c->labels,
                       .targets = text_targets(c)};
  if (!v->texts) return ERR_OK;
  Err err = mem_alloc(&v->target, v->texts * v->targets, sizeof *v->target);
  if (!err) err = mem_alloc(&v->output, v->texts * v->labels, sizeof *v->output);
  if (!err) err = mem_alloc(&v->batch, v->texts, sizeof *v->batch);
  if (!err) err = read_targets(v, d);
  if (err) classify_valid_free(v);
  return err;
}

void classify_valid_free(ClassifyValid *v) {
  mem_free(v->target);
  mem_free(v->output);
  mem_free(v->batch);
  *v = (ClassifyValid){0};
}

/* Several labels: returns true if every label of the text is known. Scores leave other texts out. */
static bool is_known(const ClassifyValid *v, size_t text) {
  const float *target = v->target + text * v->targets;
  for (size_t i = 0; i < v->targets; i++)
    if (isnan(target[i])) return false;
  return true;
}

static bool has_label(const ClassifyValid *v, size_t text, size_t label) {
  const float *target = v->target + text * v->targets;
  return v->kind == LABEL_CLASS ? (size_t)target[0] == label
                                : target[label] >= (float)CLASSIFY_THRESHOLD;
}

static size_t count_known(const ClassifyValid *v) {
  size_t n = 0;
  for (size_t i = 0; i < v->texts; i++) n += is_known(v, i);
  return n;
}

/* ---- choice of the metric ---- */

/* Returns true if some texts have the label and some do not, without which there is no ROC curve. */
static bool is_divided(const ClassifyValid *v, size_t label) {
  size_t with = 0, known = 0;
  for (size_t i = 0; i < v->texts; i++) {
    if (!is_known(v, i)) continue;
    known++;
    with += has_label(v, i, label);
  }
  return with > 0 && with < known;
}

static bool is_any_divided(const ClassifyValid *v) {
  for (size_t i = 0; i < v->labels; i++)
    if (is_divided(v, i)) return true;
  return false;
}

/* Returns why the metric is not defined for these labels, or NULL. */
static const char *find_obstacle(const ClassifyValid *v, int metric) {
  bool is_number = v->kind == LABEL_NUMBER;
  bool is_of_numbers = metric == METRIC_MAE || metric == METRIC_PEARSON;
  bool is_of_classes = metric == METRIC_MCC || metric == METRIC_ECE;
  if (metric == METRIC_LOSS) return NULL;
  if (is_number != is_of_numbers)
    return is_number ? "the labels of this data set are numbers; pass loss, mae or pearson"
                     : "the labels of this data set are no numbers; pass another metric";
  if (is_of_classes && v->kind != LABEL_CLASS)
    return "a text of this data set may have several labels; pass another metric";
  if (is_number || !v->texts) return NULL;
  if (count_known(v) == 0)
    return "no validation text has all its labels; pass loss, or --valid-every 0";
  bool needs_both = metric == METRIC_AUC || metric == METRIC_AVERAGE_PRECISION;
  if (needs_both && !is_any_divided(v))
    return "all validation texts have the same labels; pass another metric";
  return NULL;
}

Err classify_valid_choose(const ClassifyValid *v, const char *name, int *metric) {
  size_t len = strlen(name);
  int i = -1; /* "auto" */
  for (const char *at = METRIC_NAMES; *at; i++) {
    size_t n = strcspn(at, "|");
    if (n == len && memcmp(at, name, n) == 0) break;
    at += n + (at[n] == '|');
  }
  *metric = i;
  if (i < 0) *metric = v->kind == LABEL_NUMBER ? METRIC_LOSS : METRIC_F1_MACRO;
  const char *obstacle = find_obstacle(v, *metric);
  if (!obstacle) return ERR_OK;
  if (i < 0) {
    *metric = METRIC_LOSS;
    return ERR_OK;
  }
  return err_set(ERR_USAGE, "--metric %s is not defined: %s", name, obstacle);
}

/* ---- outputs ---- */

void classify_valid_begin(ClassifyValid *v) {
  v->batches = 0;
  v->first = 0;
}

void classify_valid_add(ClassifyValid *v, uint32_t texts) {
  if (v->batches) v->first += v->batch[v->batches - 1];
  v->batch[v->batches++] = texts;
}

float *classify_valid_place(ClassifyValid *v) {
  return v->output + v->first * v->labels;
}

typedef enum { PACK, UNPACK } Direction;

/* Copies the outputs of each rank's batches to its part of `packed`, or back. */
static void copy_outputs(ClassifyValid *v, const Comm *comm, float *packed, const size_t *off,
                         Direction direction) {
  float *at = v->output;
  for (int r = 0; r < comm_size(comm); r++) {
    size_t skipped = 0, done = off[r] / sizeof *packed;
    for (size_t i = 0; i < v->batches; i++) {
      size_t n = v->batch[i] * v->labels;
      float *mine = packed + done, *text = at + skipped;
      skipped += n;
      if (comm_owner(comm, i) != r) continue;
      memcpy(direction == PACK ? mine : text, direction == PACK ? text : mine,
             n * sizeof *packed);
      done += n;
    }
  }
}

static Err gather_outputs(ClassifyValid *v, Comm *comm) {
  int ranks = comm_size(comm);
  size_t *off = NULL;
  float *packed = NULL;
  Err err = ERR_OK;
  if (ranks == 1) return ERR_OK;
  TRY_DONE(mem_alloc(&off, (size_t)ranks + 1, sizeof *off));
  TRY_DONE(mem_alloc(&packed, v->texts * v->labels, sizeof *packed));
  for (size_t i = 0; i < v->batches; i++)
    off[comm_owner(comm, i) + 1] += v->batch[i] * v->labels * sizeof *packed;
  for (int r = 0; r < ranks; r++) off[r + 1] += off[r];
  copy_outputs(v, comm, packed, off, PACK);
  comm_allgather(comm, "validation outputs", packed, off);
  copy_outputs(v, comm, packed, off, UNPACK);
done:
  mem_free(off);
  mem_free(packed);
  return err;
}

/* ---- scores of numbers ---- */

/* Correlation of the numbers of one label with their predictions; 0 if one of them is constant. */
static double compute_pearson(const ClassifyValid *v, size_t label) {
  double n = 0, sum[2] = {0}, products[3] = {0}; /* of x and y; of xx, yy and xy */
  for (size_t i = 0; i < v->texts; i++) {
    double x = (double)v->target[i * v->labels + label];
    double y = (double)v->output[i * v->labels + label];
    if (isnan(x)) continue;
    n++;
    sum[0] += x;
    sum[1] += y;
  }
  for (size_t i = 0; i < v->texts; i++) {
    double x = (double)v->target[i * v->labels + label] - sum[0] / n;
    double y = (double)v->output[i * v->labels + label] - sum[1] / n;
    if (isnan(x)) continue;
    products[0] += x * x;
    products[1] += y * y;
    products[2] += x * y;
  }
  double scale = sqrt(products[0] * products[1]);
  return scale > 0 ? products[2] / scale : 0;
}

static void score_numbers(const ClassifyValid *v, double *value) {
  double square = 0, absolute = 0, n = 0, pearson = 0;
  for (size_t i = 0; i < v->texts * v->labels; i++) {
    double error = (double)v->output[i] - (double)v->target[i];
    if (isnan(v->target[i])) continue;
    square += error * error;
    absolute += fabs(error);
    n++;
  }
  for (size_t i = 0; i < v->labels; i++) pearson += compute_pearson(v, i) / (double)v->labels;
  value[METRIC_LOSS] = n > 0 ? square / n : 0;
  value[METRIC_MAE] = n > 0 ? absolute / n : 0;
  value[METRIC_PEARSON] = pearson;
}

/* ---- scores of classes ---- */

/* Converts the logits of a text to probabilities; returns the log-likelihood of its class. */
static double apply_softmax(const ClassifyValid *v, size_t text, double *probability) {
  const float *logit = v->output + text * v->labels;
  double most = (double)logit[0], sum = 0;
  for (size_t i = 1; i < v->labels; i++)
    most = (double)logit[i] > most ? (double)logit[i] : most;
  for (size_t i = 0; i < v->labels; i++) {
    probability[i] = exp((double)logit[i] - most);
    sum += probability[i];
  }
  for (size_t i = 0; i < v->labels; i++) probability[i] /= sum;
  return (double)logit[(size_t)v->target[text]] - most - log(sum);
}

/* log(1 + exp(x)) without overflow */
static double compute_softplus(double x) {
  return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

/* The same for several labels: returns the sum over those that are known, and adds their number to
 * *known. */
static double apply_sigmoid(const ClassifyValid *v, size_t text, double *probability,
                            size_t *known) {
  const float *logit = v->output + text * v->labels, *target = v->target + text * v->labels;
  double sum = 0;
  for (size_t i = 0; i < v->labels; i++) {
    double x = (double)logit[i], t = (double)target[i];
    probability[i] = 1 / (1 + exp(-x));
    if (isnan(t)) continue;
    sum -= t * compute_softplus(-x) + (1 - t) * compute_softplus(x);
    ++*known;
  }
  return sum;
}

void classify_valid_probabilities(const ClassifyValid *v, size_t text, double *probability) {
  size_t known = 0;
  if (v->kind == LABEL_CLASS)
    apply_softmax(v, text, probability);
  else
    apply_sigmoid(v, text, probability, &known);
}

/* Labels and probabilities of the texts whose labels are known. */
typedef struct {
  size_t texts;
  uint32_t *label;
  uint8_t *has;
  double *probability;
} Scored;

static Err new_scored(Scored *s, const ClassifyValid *v) {
  *s = (Scored){0};
  TRY(mem_alloc(&s->label, v->texts, sizeof *s->label));
  TRY(mem_alloc(&s->has, v->kind == LABEL_MULTI ? v->texts * v->labels : 1, sizeof *s->has));
  return mem_alloc(&s->probability, v->texts * v->labels, sizeof *s->probability);
}

static void free_scored(Scored *s) {
  mem_free(s->label);
  mem_free(s->has);
  mem_free(s->probability);
}

/* Fills `s`; returns the mean negative log-likelihood of all known labels. */
static double fill_scored(Scored *s, const ClassifyValid *v) {
  double likelihood = 0;
  size_t known = 0;
  for (size_t i = 0; i < v->texts; i++) {
    double *probability = s->probability + s->texts * v->labels;
    if (v->kind == LABEL_CLASS) {
      likelihood += apply_softmax(v, i, probability);
      known++;
      s->label[s->texts++] = (uint32_t)v->target[i];
      continue;
    }
    likelihood += apply_sigmoid(v, i, probability, &known);
    if (!is_known(v, i)) continue;
    for (size_t k = 0; k < v->labels; k++)
      s->has[s->texts * v->labels + k] = has_label(v, i, k);
    s->texts++;
  }
  return known ? -likelihood / (double)known : 0;
}

static Err score_classes(const ClassifyValid *v, double *value) {
  static const int from[METRIC_COUNT] = {
      [METRIC_ACCURACY] = CLASSIFY_ACCURACY,
      [METRIC_F1_MACRO] = CLASSIFY_F1_MACRO,
      [METRIC_AUC] = CLASSIFY_AUC,
      [METRIC_F1_MICRO] = CLASSIFY_F1_MICRO,
      [METRIC_AVERAGE_PRECISION] = CLASSIFY_AVERAGE_PRECISION,
      [METRIC_MCC] = CLASSIFY_MCC,
      [METRIC_ECE] = CLASSIFY_ECE,
  };
  Scored s;
  ClassifyScore score = {0};
  Err err = ERR_OK;
  TRY_DONE(new_scored(&s, v));
  value[METRIC_LOSS] = fill_scored(&s, v);
  if (!s.texts) goto done;
  ClassifyInput in = {.kind = v->kind == LABEL_CLASS ? CLASSIFY_ONE : CLASSIFY_MANY,
                      .texts = s.texts,
                      .classes = v->labels,
                      .label = s.label,
                      .has = s.has,
                      .probability = s.probability,
                      .threshold = CLASSIFY_THRESHOLD};
  TRY_DONE(classify_score(&in, &score));
  for (int i = METRIC_ACCURACY; i <= METRIC_ECE; i++)
    value[i] = classify_value(&score, from[i]);
done:
  classify_free(&score);
  free_scored(&s);
  return err;
}

/* ---- */

static Err check_outputs(const ClassifyValid *v) {
  for (size_t i = 0; i < v->texts * v->labels; i++)
    if (!isfinite(v->output[i]))
      return err_set(
          ERR_WORK,
          "the model's output for validation text %zu is not a finite number: training "
          "has diverged; lower --lr, and continue from an earlier checkpoint",
          i / v->labels + 1);
  return ERR_OK;
}

Err classify_valid_score(ClassifyValid *v, Comm *comm, double value[METRIC_COUNT]) {
  TRY(gather_outputs(v, comm));
  for (int i = 0; i < METRIC_COUNT; i++) value[i] = NAN;
  if (comm_rank(comm) != 0) return ERR_OK;
  TRY(check_outputs(v));
  if (v->kind != LABEL_NUMBER) return score_classes(v, value);
  score_numbers(v, value);
  return ERR_OK;
}
