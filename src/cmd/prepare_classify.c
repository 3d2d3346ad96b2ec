/* trireme prepare --task classify: converts the options to a ClassifySpec and prints the table at the
 * end. Depends on data/prepare_classify, train/inspect_classify. */
#include "data/prepare_classify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/opt_rows.h"
#include "base/out.h"
#include "cmd/cmd.h"
#include "cmd/prepare_task.h"
#include "data/text_split.h"
#include "train/inspect_classify.h"

#define GROUP      "Texts with labels (--task classify)"
#define SHOWN_ROWS 20 /* largest number of labels in the table at the end */

static const OptSpec options[] = {
    TEXTS(
        "text-column", "NAME", 1, "prepare", GROUP,
        "Column with the texts; give it twice for pairs of texts. The tables are CSV, TSV or "
        "JSON "
        "lines, also .gz or .zst, one file each for --train (or several), --valid and --test"),
    TEXTS(
        "label-column", "NAME", 1, "prepare", GROUP,
        "Column with the class of each text. Several columns with 1 and 0: a text may have any "
        "number of labels"),
    CHOICE("label-type", "TYPE", "class", "class|number", "prepare", GROUP,
           "Whether label columns have classes, or numbers that a model predicts (regression)"),
    REAL("label-threshold", "X", NULL, -1e300, 1e300, "prepare", GROUP,
         "Label columns have numbers: X and more is 1, less is 0"),
    {"split", OPT_TEXT, "VALID [TEST]", NULL, 0, 0, NULL, 2, false, "prepare", GROUP,
     "Take this share of the training rows for validation, for example 0.1, and another share "
     "for test; every class loses the same share, and --seed selects the rows"},
    TEXT("vocab", "FILE", NULL, "prepare", GROUP,
         "Use this WordPiece vocabulary (vocab.txt of a BERT model). Without it and "
         "--tokenizer, "
         "--vocab-size N trains one"),
    CHOICE(
        "casing", "HOW", "auto", "auto|uncased|cased", "prepare", GROUP,
        "Whether WordPiece keeps capital letters and accents (cased) or not; auto is cased if "
        "--vocab has capital letters"),
    {0}};

static const char *const unused[] = {"source-lang",
                                     "target-lang",
                                     "bad-utf8",
                                     "min-words",
                                     "max-words",
                                     "max-ratio",
                                     "max-word-length",
                                     "dedup",
                                     "tokenizer-type",
                                     "character-coverage",
                                     "recipe",
                                     "source-dir",
                                     "mirror",
                                     "download-dir",
                                     "demo-pairs",
                                     "convert",
                                     "window-pairs",
                                     "resume",
                                     NULL};

/* ---- options ---- */

/* Column names are stored in dataset.json, and those of labels in labels.txt. */
static Err check_column(const char *option, const char *name) {
  bool is_good = name[0] && strlen(name) < LABEL_NAME_SIZE;
  for (const char *at = name; is_good && *at; at++) is_good = (unsigned char)*at >= 0x20;
  if (is_good) return ERR_OK;
  return err_set(ERR_USAGE,
                 "--%s '%s' cannot be the name of a column: it must have 1 to %d bytes "
                 "and no control characters",
                 option, name, LABEL_NAME_SIZE - 1);
}

/* Copies the words of an option that may be repeated. */
static Err list_words(const OptSet *opts, const char *name, const char ***list, size_t *count) {
  *count = (size_t)opt_times(opts, name);
  TRY(mem_alloc(list, *count, sizeof **list));
  for (size_t i = 0; i < *count; i++) (*list)[i] = opt_word(opts, name, (int)i, 0);
  return ERR_OK;
}

static Err fill_columns(ClassifySpec *s, const OptSet *opts) {
  const char **text = NULL, **label = NULL;
  Err err = list_words(opts, "text-column", &text, &s->texts);
  s->text_column = text;
  if (!err) err = list_words(opts, "label-column", &label, &s->labels.columns);
  s->labels.column = label;
  TRY(err);
  if (s->texts == 0 || s->texts > 2)
    return err_set(ERR_USAGE,
                   s->texts ? "--text-column is given %zu times; a text has one column, "
                              "or two for pairs"
                            : "pass the column of the texts: --text-column NAME",
                   s->texts);
  if (s->labels.columns == 0)
    return err_set(ERR_USAGE, "pass the column of the labels: --label-column NAME");
  for (size_t i = 0; i < s->texts; i++) TRY(check_column("text-column", text[i]));
  for (size_t i = 0; i < s->labels.columns; i++) {
    TRY(check_column("label-column", label[i]));
    for (size_t k = 0; k < i; k++)
      if (strcmp(label[i], label[k]) == 0)
        return err_set(ERR_USAGE, "--label-column %s is given twice; leave one out", label[i]);
  }
  return ERR_OK;
}

static Err fill_labels(ClassifySpec *s, const OptSet *opts) {
  LabelSpec *l = &s->labels;
  bool is_number = strcmp(opt_text(opts, "label-type"), "number") == 0;
  l->kind = is_number ? LABEL_NUMBER : l->columns > 1 ? LABEL_MULTI : LABEL_CLASS;
  l->has_threshold = opt_given(opts, "label-threshold");
  if (l->has_threshold) l->threshold = opt_real(opts, "label-threshold");
  if (is_number && l->has_threshold)
    return err_set(ERR_USAGE,
                   "--label-threshold makes classes of numbers, --label-type number "
                   "keeps them; leave one out");
  if (is_number && l->columns > LABEL_NUMBERS)
    return err_set(ERR_USAGE,
                   "--label-type number: at most %d label columns are possible, not %zu",
                   LABEL_NUMBERS, l->columns);
  return ERR_OK;
}

static Err fill_inputs(ClassifySpec *s, const OptSet *opts) {
  for (int split = 0; split < SPLITS; split++) {
    const char **list = NULL;
    for (int i = 0; i < opt_times(opts, split_name[split]); i++)
      if (opt_words(opts, split_name[split], i) > 1)
        return err_set(ERR_USAGE,
                       "--%s takes one file with --task classify, not '%s %s'; repeat "
                       "the option for further training files",
                       split_name[split], opt_word(opts, split_name[split], i, 0),
                       opt_word(opts, split_name[split], i, 1));
    Err err = list_words(opts, split_name[split], &list, &s->inputs[split]);
    s->input[split] = list;
    TRY(err);
  }
  if (s->inputs[SPLIT_TRAIN]) return ERR_OK;
  return err_set(ERR_USAGE, "pass the table of the training texts: --train FILE.csv");
}

static Err fill_shares(ClassifySpec *s, const OptSet *opts) {
  double sum = 0;
  for (int split = SPLIT_VALID; split < SPLITS && opt_given(opts, "split"); split++) {
    const char *word = opt_word(opts, "split", 0, split - SPLIT_VALID);
    if (!word) break;
    TRY(str_real(word, &s->share[split]));
    sum += s->share[split];
    if (!(s->share[split] > 0) || !(sum <= TEXT_SPLIT_MAX))
      return err_set(ERR_USAGE,
                     "--split %s: shares are above 0 and at most %g together, for example 0.1",
                     word, TEXT_SPLIT_MAX);
    if (s->inputs[split])
      return err_set(ERR_USAGE, "--split and --%s both make %s text; leave one out",
                     split_name[split], split == SPLIT_VALID ? "validation" : "test");
  }
  return ERR_OK;
}

static Err fill_tokenizer(ClassifySpec *s, const OptSet *opts) {
  const char *vocab = opt_text(opts, "vocab"), *model = opt_text(opts, "tokenizer");
  const char *casing = opt_text(opts, "casing");
  int ways = (vocab != NULL) + (model != NULL) + opt_given(opts, "vocab-size");
  if (ways != 1)
    return err_set(ERR_USAGE,
                   "pass %s: --vocab vocab.txt of a BERT model, --tokenizer FILE.model for "
                   "SentencePiece, or --vocab-size N to train a WordPiece vocabulary",
                   ways ? "only one of these" : "the tokenizer");
  if (model && opt_given(opts, "casing"))
    return err_set(ERR_USAGE,
                   "--casing is for WordPiece, and --tokenizer is a SentencePiece model; "
                   "leave it out");
  s->tokenizer = vocab ? vocab : model;
  s->tokenizer_kind = model ? TEXT_SENTENCEPIECE : TEXT_WORDPIECE;
  s->vocab_size = (size_t)opt_count(opts, "vocab-size");
  s->sample = (uint64_t)opt_count(opts, "tokenizer-sample");
  bool is_lower = strcmp(casing, "cased") != 0;
  s->rules = (BertRules){.is_lower = is_lower, .strips_accents = is_lower};
  if (!vocab || strcmp(casing, "auto") != 0) return ERR_OK;
  TRY(text_encoder_find_rules(vocab, &s->rules));
  log_info("%s is %s (--casing)", vocab, s->rules.is_lower ? "uncased" : "cased");
  return ERR_OK;
}

static Err fill_spec(ClassifySpec *s, const OptSet *opts) {
  s->out = opt_text(opts, "out");
  s->max_tokens = (uint32_t)opt_count(opts, "max-tokens");
  s->seed = (uint64_t)opt_count(opts, "seed");
  s->shard_bytes = (size_t)opt_count(opts, "shard-size");
  s->threads = (int)opt_count(opts, "threads");
  if (!s->out)
    return err_set(ERR_USAGE, "pass the directory of the data set to make: --out DIR");
  TRY(fill_inputs(s, opts));
  TRY(fill_columns(s, opts));
  TRY(fill_labels(s, opts));
  TRY(fill_shares(s, opts));
  if (s->max_tokens < 2 * s->texts + 1)
    return err_set(ERR_USAGE, "--max-tokens %u has no room for a text beside [CLS] and [SEP]",
                   s->max_tokens);
  return fill_tokenizer(s, opts);
}

static void free_spec(ClassifySpec *s) {
  for (int split = 0; split < SPLITS; split++) mem_free((void *)s->input[split]);
  mem_free((void *)s->text_column);
  mem_free((void *)s->labels.column);
}

/* ---- table ---- */

static void print_counts(const Meta *m, const char *name, size_t label) {
  char number[32];
  printf("  ");
  printf("%*s", (int)(24 - strlen(name) > 24 ? 0 : 24 - strlen(name)), "");
  out_visible(name);
  for (int s = 0; s < SPLITS; s++)
    if (m->split[s].lines)
      printf(" %12s", str_of_count(number, m->classify->counts[s].labeled[label]));
  printf("\n");
}

static void print_row(const Meta *m, const char *what, const uint64_t count[SPLITS]) {
  char number[32];
  printf("  %24s", what);
  for (int s = 0; s < SPLITS; s++)
    if (m->split[s].lines) printf(" %12s", str_of_count(number, count[s]));
  printf("\n");
}

static void print_table(const Meta *m, const char *out) {
  const MetaClassify *c = m->classify;
  uint64_t texts[SPLITS], tokens[SPLITS], cut[SPLITS], empty[SPLITS];
  printf("  %24s", "");
  for (int s = 0; s < SPLITS; s++) {
    texts[s] = m->split[s].pairs;
    tokens[s] = m->split[s].tokens[0];
    cut[s] = c->counts[s].cut;
    empty[s] = c->counts[s].empty;
    if (m->split[s].lines) printf(" %12s", split_name[s]);
  }
  printf("\n");
  print_row(m, "texts", texts);
  print_row(m, "tokens", tokens);
  print_row(m, "cut to --max-tokens", cut);
  print_row(m, "without a word", empty);
  printf("%s\n", c->kind == LABEL_NUMBER ? "values" : "labels");
  for (size_t i = 0; i < c->labels && i < SHOWN_ROWS; i++) print_counts(m, c->name[i], i);
  if (c->labels > SHOWN_ROWS) printf("  and %zu more\n", c->labels - SHOWN_ROWS);
  printf("written to ");
  out_visible(out);
  printf("\n");
}

static Err run_classify(OptSet *opts) {
  ClassifySpec spec = {0};
  Meta meta = {0};
  TRY(cmd_refuse_ranks("prepare --task classify", "call it without mpirun or srun"));
  Err err = fill_spec(&spec, opts);
  if (!err) err = prepare_classify(&spec, &meta);
  if (!err) print_table(&meta, spec.out);
  meta_free(&meta);
  free_spec(&spec);
  return err;
}

const PrepareTask prepare_task_classify = {.name = "classify",
                                           .options = options,
                                           .unused = unused,
                                           .defaults = "max-tokens = 512\n",
                                           .run = run_classify,
                                           .inspect = classify_inspect};
