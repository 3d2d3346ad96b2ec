/* Options of prepare for texts, and its steps. Depends on prepare_ranks, data/prepare_classify. */
#include "cmd/prepare_texts.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/opt_rows.h"
#include "base/out.h"
#include "data/text_split.h"

#define GROUP "Texts (--task classify or mlm)"

const OptSpec prepare_text_options[] = {
    TEXTS(
        "text-column", "NAME", 1, "prepare", GROUP,
        "Column with the texts; with classify, give it twice for pairs of texts. The tables "
        "are CSV, "
        "TSV or JSON lines, also .gz or .zst, one file each for --train (or several), --valid "
        "and --test. mlm without it: plain text, one text per line"),
    {"split", OPT_TEXT, "VALID [TEST]", NULL, 0, 0, NULL, 2, OPT_LAST, "prepare", GROUP,
     "Take this share of the training rows for validation, for example 0.1, and another share "
     "for test; every class loses the same share, and --seed selects the rows"},
    INPUT(
        "vocab", "FILE", NULL, "prepare", GROUP,
        "Use this WordPiece vocabulary (vocab.txt of a BERT model), or the byte-level BPE of a "
        "RoBERTa model (vocab.json, with merges.txt beside it). Without it and --tokenizer, "
        "--vocab-size N trains a WordPiece vocabulary"),
    CHOICE(
        "casing", "HOW", "auto", "auto|uncased|cased", "prepare", GROUP,
        "Whether WordPiece keeps capital letters and accents (cased) or not; auto is cased if "
        "--vocab has capital letters"),
    {0}};

const char *const prepare_texts_unused[] = {
    "source-lang", "target-lang",     "bad-utf8", "min-words",      "max-words",
    "max-ratio",   "max-word-length", "dedup",    "tokenizer-type", "character-coverage",
    "recipe",      "source-dir",      "mirror",   "download-dir",   "demo-pairs",
    "convert",     "window-pairs",    NULL};

Err prepare_texts_check_column(const char *option, const char *name) {
  bool is_good = name[0] && strlen(name) < LABEL_NAME_SIZE;
  for (const char *at = name; is_good && *at; at++) is_good = (unsigned char)*at >= 0x20;
  if (is_good) return ERR_OK;
  return err_set(ERR_USAGE,
                 "--%s '%s' cannot be the name of a column: it must have 1 to %d bytes "
                 "and no control characters",
                 option, name, LABEL_NAME_SIZE - 1);
}

Err prepare_texts_list(const OptSet *opts, const char *name, const char ***list,
                       size_t *count) {
  *count = (size_t)opt_times(opts, name);
  TRY(mem_alloc(list, *count, sizeof **list));
  for (size_t i = 0; i < *count; i++) (*list)[i] = opt_word(opts, name, (int)i, 0);
  return ERR_OK;
}

static Err check_file(const char *split, const char *path) {
  if (strcmp(path, "-") != 0) return ERR_OK;
  return err_set(ERR_USAGE,
                 "--%s -: texts are read more than once, so they cannot come from standard "
                 "input; write them to a file",
                 split);
}

static Err fill_inputs(ClassifySpec *s, const OptSet *opts) {
  const char *task = opt_text(opts, "task");
  for (int split = 0; split < SPLITS; split++) {
    const char **list = NULL;
    for (int i = 0; i < opt_times(opts, split_name[split]); i++)
      if (opt_words(opts, split_name[split], i) > 1)
        return err_set(ERR_USAGE,
                       "--%s takes one file with --task %s, not '%s %s'; repeat "
                       "the option for further training files",
                       split_name[split], task, opt_word(opts, split_name[split], i, 0),
                       opt_word(opts, split_name[split], i, 1));
    Err err = prepare_texts_list(opts, split_name[split], &list, &s->inputs[split]);
    s->input[split] = list;
    TRY(err);
    for (size_t i = 0; i < s->inputs[split]; i++) TRY(check_file(split_name[split], list[i]));
  }
  if (s->inputs[SPLIT_TRAIN]) return ERR_OK;
  return err_set(ERR_USAGE, "pass the training texts: --train FILE");
}

Err prepare_texts_begin(ClassifySpec *s, const OptSet *opts) {
  s->out = opt_text(opts, "out");
  s->max_tokens = (uint32_t)opt_count(opts, "max-tokens");
  s->seed = (uint64_t)opt_count(opts, "seed");
  s->shard_bytes = (size_t)opt_count(opts, "shard-size");
  s->threads = (int)opt_count(opts, "threads");
  s->resume = opt_flag(opts, "resume");
  return fill_inputs(s, opts);
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

/* Sets the path and the kind of the tokenizer. A directory has vocab.txt, tokenizer.model, or the files
 * of a byte-level BPE. */
static Err find_tokenizer(ClassifySpec *s, const char *path, TextTokenizer kind) {
  s->tokenizer = path;
  s->tokenizer_kind = str_ends(path, ".json") ? TEXT_BYTE_BPE : kind;
  if (!file_is_dir(path)) return ERR_OK;
  s->tokenizer_kind = TEXT_BYTE_BPE;
  for (int i = 0; i < TEXT_BYTE_BPE; i++) {
    TRY(file_join(s->tokenizer_path, path, text_tokenizer_file[i]));
    if (!file_exists(s->tokenizer_path)) continue;
    s->tokenizer = s->tokenizer_path;
    s->tokenizer_kind = (TextTokenizer)i;
    return ERR_OK;
  }
  return ERR_OK;
}

/* Sets the rules of WordPiece. Rank 0 alone reads the vocabulary; share_tokenizer sends the rules to the
 * others. */
static Err fill_casing(ClassifySpec *s, const OptSet *opts) {
  const char *casing = opt_text(opts, "casing");
  bool is_lower = strcmp(casing, "cased") != 0;
  s->rules = (BertRules){.is_lower = is_lower, .strips_accents = is_lower};
  if (!ranks_is_first(s->ranks)) return ERR_OK;
  if (s->tokenizer_kind != TEXT_WORDPIECE && opt_given(opts, "casing"))
    return err_set(
        ERR_USAGE, "--casing is for WordPiece, and %s is a %s; leave it out", s->tokenizer,
        s->tokenizer_kind == TEXT_BYTE_BPE ? "byte-level BPE" : "SentencePiece model");
  if (!s->tokenizer || s->tokenizer_kind != TEXT_WORDPIECE || strcmp(casing, "auto") != 0)
    return ERR_OK;
  TRY(text_encoder_find_rules(s->tokenizer, &s->rules));
  log_info("%s is %s (--casing)", s->tokenizer, s->rules.is_lower ? "uncased" : "cased");
  return ERR_OK;
}

static Err fill_tokenizer(ClassifySpec *s, const OptSet *opts) {
  const char *vocab = opt_text(opts, "vocab"), *model = opt_text(opts, "tokenizer");
  int ways = (vocab != NULL) + (model != NULL) + opt_given(opts, "vocab-size");
  if (ways != 1)
    return err_set(
        ERR_USAGE,
        "pass %s: --vocab vocab.txt of a BERT model or vocab.json of a RoBERTa model, "
        "--tokenizer FILE.model for SentencePiece or --tokenizer DIR of a model, or "
        "--vocab-size N to train a WordPiece vocabulary",
        ways ? "only one of these" : "the tokenizer");
  s->vocab_size = (size_t)opt_count(opts, "vocab-size");
  s->sample = (uint64_t)opt_count(opts, "tokenizer-sample");
  if (vocab) TRY(find_tokenizer(s, vocab, TEXT_WORDPIECE));
  if (model) TRY(find_tokenizer(s, model, TEXT_SENTENCEPIECE));
  return fill_casing(s, opts);
}

Err prepare_texts_finish(ClassifySpec *s, const OptSet *opts) {
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

static void print_row(const Meta *m, const char *what, const uint64_t count[SPLITS]) {
  char number[32];
  printf("  %24s", what);
  for (int s = 0; s < SPLITS; s++)
    if (m->split[s].lines) printf(" %12s", str_of_count(number, count[s]));
  printf("\n");
}

void prepare_texts_print(const Meta *m, const char *cut, const char *empty) {
  uint64_t texts[SPLITS], tokens[SPLITS], cuts[SPLITS], empties[SPLITS];
  printf("  %24s", "");
  for (int s = 0; s < SPLITS; s++) {
    texts[s] = m->split[s].pairs;
    tokens[s] = m->split[s].tokens[0];
    cuts[s] = m->classify->counts[s].cut;
    empties[s] = m->classify->counts[s].empty;
    if (m->split[s].lines) printf(" %12s", split_name[s]);
  }
  printf("\n");
  print_row(m, "texts", texts);
  print_row(m, "tokens", tokens);
  print_row(m, cut, cuts);
  print_row(m, empty, empties);
}

/* Sends what rank 0 has read from its files: it alone copies the tokenizer, and the files of other hosts
 * may differ. */
static void share_tokenizer(ClassifySpec *s) {
  ranks_broadcast(s->ranks, "kind of tokenizer", &s->tokenizer_kind, sizeof s->tokenizer_kind);
  ranks_broadcast(s->ranks, "casing", &s->rules, sizeof s->rules);
}

static Err prepare_set(OptSet *opts, const PrepareTexts *task, Comm *comm, Ranks *ranks) {
  ClassifySpec spec = {.ranks = ranks};
  Meta meta = {0};
  Err err = ranks_agree(ranks, task->fill(&spec, opts));
  if (!err) share_tokenizer(&spec);
  if (spec.threads == 0) spec.threads = comm_threads(comm);
  if (!err && ranks) log_info("ranks    %s share the texts", comm_about(comm));
  if (!err) err = prepare_classify(&spec, &meta);
  if (!err && ranks_is_first(ranks)) {
    task->print(&meta);
    printf("written to ");
    out_visible(spec.out);
    printf("\n");
  }
  meta_free(&meta);
  free_spec(&spec);
  return err;
}

Err prepare_texts_compare(OptSet *opts, const PrepareTexts *task, Str *differences) {
  ClassifySpec spec = {0};
  Err err = task->fill(&spec, opts);
  if (!err) err = prepare_compare_texts(&spec, differences);
  free_spec(&spec);
  return err;
}

Err prepare_texts_set(OptSet *opts, const PrepareTexts *task, Comm *comm, Ranks *ranks) {
  bool is_done;
  TRY(prepare_find_complete(opts, ranks, task->compare, &is_done));
  return is_done ? ERR_OK : prepare_set(opts, task, comm, ranks);
}
