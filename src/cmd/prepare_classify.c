/* trireme prepare --task classify: converts the options to a ClassifySpec and prints the table at the
 * end. Depends on prepare_texts, train/inspect_classify. */
#include "data/prepare_classify.h"

#include <stdio.h>
#include <string.h>

#include "base/opt_rows.h"
#include "base/out.h"
#include "cmd/prepare_task.h"
#include "cmd/prepare_texts.h"
#include "train/inspect_classify.h"

#define GROUP      "Texts with labels (--task classify)"
#define SHOWN_ROWS 20 /* largest number of labels in the table at the end */

static const OptSpec label_options[] = {
    TEXTS(
        "label-column", "NAME", 1, "prepare", GROUP,
        "Column with the class of each text. Several columns with 1 and 0: a text may have any "
        "number of labels"),
    CHOICE("label-type", "TYPE", "class", "class|number", "prepare", GROUP,
           "Whether label columns have classes, or numbers that a model predicts (regression)"),
    REAL("label-threshold", "X", NULL, -1e300, 1e300, "prepare", GROUP,
         "Label columns have numbers: X and more is 1, less is 0"),
    {0}};
static const OptSpec *const options[] = {prepare_text_options, label_options, NULL};

/* ---- options ---- */

/* A column is a text or a label: a label that the model reads in its text would be learned by heart. */
static Err check_names(const ClassifySpec *s) {
  const char *const *text = s->text_column, *const *label = s->labels.column;
  for (size_t i = 0; i < s->texts; i++) TRY(prepare_texts_check_column("text-column", text[i]));
  if (s->texts == 2 && strcmp(text[0], text[1]) == 0)
    return err_set(
        ERR_USAGE,
        "--text-column %s is given twice, so both texts of a pair would be the same; "
        "leave one out for single texts, or pass the column of the second text",
        text[0]);
  for (size_t i = 0; i < s->labels.columns; i++) {
    TRY(prepare_texts_check_column("label-column", label[i]));
    for (size_t k = 0; k < i; k++)
      if (strcmp(label[i], label[k]) == 0)
        return err_set(ERR_USAGE, "--label-column %s is given twice; leave one out", label[i]);
    for (size_t k = 0; k < s->texts; k++)
      if (strcmp(label[i], text[k]) == 0)
        return err_set(ERR_USAGE,
                       "--text-column and --label-column both name the column '%s', so every "
                       "text would be its own label; pass two different columns",
                       label[i]);
  }
  return ERR_OK;
}

static Err fill_columns(ClassifySpec *s, const OptSet *opts) {
  const char **text = NULL, **label = NULL;
  Err err = prepare_texts_list(opts, "text-column", &text, &s->texts);
  s->text_column = text;
  if (!err) err = prepare_texts_list(opts, "label-column", &label, &s->labels.columns);
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
  return check_names(s);
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

static Err fill_spec(ClassifySpec *s, const OptSet *opts) {
  TRY(prepare_texts_begin(s, opts));
  TRY(fill_columns(s, opts));
  TRY(fill_labels(s, opts));
  return prepare_texts_finish(s, opts);
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

static void print_table(const Meta *m) {
  const MetaClassify *c = m->classify;
  prepare_texts_print(m, "cut to --max-tokens", "without a word");
  printf("%s\n", c->kind == LABEL_NUMBER ? "values" : "labels");
  for (size_t i = 0; i < c->labels && i < SHOWN_ROWS; i++) print_counts(m, c->name[i], i);
  if (c->labels > SHOWN_ROWS) printf("  and %zu more\n", c->labels - SHOWN_ROWS);
}

static Err compare_complete(OptSet *opts, Str *differences);

static const PrepareTexts texts = {fill_spec, print_table, compare_complete};

static Err compare_complete(OptSet *opts, Str *differences) {
  return prepare_texts_compare(opts, &texts, differences);
}

static Err prepare_set(OptSet *opts, Comm *comm, Ranks *ranks) {
  return prepare_texts_set(opts, &texts, comm, ranks);
}

static Err run_classify(OptSet *opts) {
  return prepare_on_ranks(opts, prepare_set);
}

const PrepareTask prepare_task_classify = {.name = "classify",
                                           .options = options,
                                           .unused = prepare_texts_unused,
                                           .defaults = "max-tokens = 512\n",
                                           .run = run_classify,
                                           .inspect = classify_inspect};
