/* trireme prepare --task mlm: plain text, or a column of tables, for a masked language model. Depends on
 * prepare_texts, train/inspect_classify. */

#include "cmd/prepare_task.h"
#include "cmd/prepare_texts.h"
#include "data/table.h"
#include "train/inspect_classify.h"

static const OptSpec *const options[] = {prepare_text_options, NULL};

/* Refuses tables without --text-column: their rows, the header too, would be taken for text. */
static Err check_plain(const OptSet *opts) {
  static const char *const option[] = {"train", "valid", "test"};
  TableKind kind;
  for (size_t k = 0; k < sizeof option / sizeof *option; k++) {
    for (int i = 0; i < opt_times(opts, option[k]); i++) {
      const char *path = opt_word(opts, option[k], i, 0);
      if (table_kind(path, &kind)) continue;
      return err_set(ERR_USAGE,
                     "--%s %s is a table: pass --text-column NAME, the column that has the "
                     "texts; if it is plain text, rename it to .txt",
                     option[k], path);
    }
  }
  return ERR_OK;
}

/* Sets the column of the texts; without one the inputs are plain text. */
static Err fill_column(ClassifySpec *s, const OptSet *opts) {
  const char **text = NULL;
  size_t given = (size_t)opt_times(opts, "text-column");
  s->labels = (LabelSpec){.kind = LABEL_NONE};
  s->texts = 1;
  if (given == 0) return check_plain(opts);
  if (given > 1)
    return err_set(ERR_USAGE,
                   "--text-column is given %zu times; a text of --task mlm has one column",
                   given);
  Err err = prepare_texts_list(opts, "text-column", &text, &given);
  s->text_column = text;
  return err ? err : prepare_texts_check_column("text-column", text[0]);
}

static Err fill_spec(ClassifySpec *s, const OptSet *opts) {
  TRY(prepare_texts_begin(s, opts));
  TRY(fill_column(s, opts));
  return prepare_texts_finish(s, opts);
}

static void print_table(const Meta *m) {
  prepare_texts_print(m, "divided at --max-tokens", "left out: without a word");
}

static Err compare_complete(OptSet *opts, Str *differences);

static const PrepareTexts texts = {fill_spec, print_table, compare_complete};

static Err compare_complete(OptSet *opts, Str *differences) {
  return prepare_texts_compare(opts, &texts, differences);
}

static Err prepare_set(OptSet *opts, Comm *comm, Ranks *ranks) {
  return prepare_texts_set(opts, &texts, comm, ranks);
}

static Err run_mlm(OptSet *opts) {
  return prepare_on_ranks(opts, prepare_set);
}

const PrepareTask prepare_task_mlm = {.name = "mlm",
                                      .options = options,
                                      .unused = prepare_texts_unused,
                                      .defaults = "max-tokens = 512\n",
                                      .run = run_mlm,
                                      .inspect = mlm_inspect};
