/* trireme prepare --task translate: converts the options to a PrepareSpec, and prints the table at the
 * end. Depends on prepare_ranks, data/prepare, data/recipe. */
#include "data/prepare.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/prepare_ranks.h"
#include "cmd/prepare_task.h"
#include "data/convert.h"
#include "data/recipe.h"
#include "data/seen.h"
#include "demo/demo.h"

static TextPair text_pair(const OptSet *opts, const char *name, int i) {
  if (i >= opt_times(opts, name)) return (TextPair){0};
  return (TextPair){.path = {opt_word(opts, name, i, 0), opt_word(opts, name, i, 1)}};
}

/* Downloads the files of the recipe, which fills recipe->config with its options. The demo
 * corpus is generated and has no files. */
static Err obtain_recipe(Recipe *recipe, const OptSet *opts) {
  RecipeFrom from = {.cache_dir = opt_text(opts, "download-dir"),
                     .source_dir = opt_text(opts, "source-dir"),
                     .mirror = opt_text(opts, "mirror")};
  if (recipe->about) log_info("%s", recipe->about);
  return recipe->generate ? ERR_OK : recipe_obtain(recipe, &from);
}

/* Checks the recipe's name and --out before anything is downloaded. Only rank 0, or the only
 * process, calls it. */
static Err check_and_obtain(Recipe *recipe, const OptSet *opts) {
  const char *name = opt_text(opts, "recipe");
  if (name) TRY(recipe_load(recipe, name));
  TRY(prepare_check_out(opt_text(opts, "out"), opt_flag(opts, "resume")));
  return name ? obtain_recipe(recipe, opts) : ERR_OK;
}

/* What rank 0 broadcasts about the recipe's options, before their text. */
typedef struct {
  uint64_t len; /* length of the text in bytes */
  uint8_t is_demo;
} RecipeOptions;

/* Adds the recipe's options to those of the command line, which have precedence. */
static Err apply_recipe(Recipe *recipe, OptSet *opts, Ranks *ranks, bool *is_demo) {
  RecipeOptions o = {.len = recipe->config.len};
  o.is_demo = recipe->generate && strcmp(recipe->generate, "demo") == 0;
  ranks_broadcast(ranks, "recipe", &o, sizeof o);
  *is_demo = o.is_demo;
  char *text;
  TRY(mem_alloc(&text, o.len + 1, 1));
  memcpy(text, str_text(&recipe->config), recipe->config.len);
  ranks_broadcast(ranks, "options of the recipe", text, o.len);
  Err err = opt_parse_recipe(opts, text, o.len, recipe->path ? recipe->path : "recipe");
  mem_free(text);
  return ranks_agree(ranks, err);
}

static Err check_and_apply(OptSet *opts, Ranks *ranks, bool *is_demo) {
  Recipe recipe = {0};
  *is_demo = false;
  Err err = ranks_is_first(ranks) ? check_and_obtain(&recipe, opts) : ERR_OK;
  err = ranks_agree(ranks, err);
  if (!err && opt_text(opts, "recipe")) err = apply_recipe(&recipe, opts, ranks, is_demo);
  recipe_free(&recipe);
  return err;
}

/* Fails early if dataset.json, which is written at the end, could not store the language
 * code. */
static Err check_language(const char *option, const char *code) {
  size_t len = strlen(code);
  if (len > 0 && len < sizeof((Meta *)0)->lang[0] && utf8_valid(code, len) == len)
    return ERR_OK;
  return err_set(ERR_USAGE, "--%s '%s' is not a language code; pass 1 to %zu bytes of UTF-8",
                 option, code, sizeof((Meta *)0)->lang[0] - 1);
}

/* Fills in all options except those that name inputs. */
static Err fill_options(PrepareSpec *spec, const OptSet *opts, bool is_demo) {
  spec->out = opt_text(opts, "out");
  spec->lang[0] = opt_text(opts, "source-lang");
  spec->lang[1] = opt_text(opts, "target-lang");
  TRY(check_language("source-lang", spec->lang[0]));
  TRY(check_language("target-lang", spec->lang[1]));
  spec->rules.min_words = (uint32_t)opt_count(opts, "min-words");
  spec->rules.max_words = (uint32_t)opt_count(opts, "max-words");
  spec->rules.max_word_length = (uint32_t)opt_count(opts, "max-word-length");
  spec->rules.max_ratio = opt_real(opts, "max-ratio");
  spec->max_tokens = (uint32_t)opt_count(opts, "max-tokens");
  spec->dedup = opt_flag(opts, "dedup");
  spec->drop_bad_utf8 = strcmp(opt_text(opts, "bad-utf8"), "drop") == 0;
  spec->tokenizer = opt_text(opts, "tokenizer");
  spec->training.type = opt_text(opts, "tokenizer-type");
  spec->training.vocab_size = (int)opt_count(opts, "vocab-size");
  spec->training.character_coverage = opt_real(opts, "character-coverage");
  spec->sample = (uint64_t)opt_count(opts, "tokenizer-sample");
  spec->seed = (uint64_t)opt_count(opts, "seed");
  spec->shard_bytes = (size_t)opt_count(opts, "shard-size");
  spec->window_pairs = (uint64_t)opt_count(opts, "window-pairs");
  spec->threads = (int)opt_count(opts, "threads");
  spec->resume = opt_flag(opts, "resume");
  if (spec->dedup && !seen_is_built()) {
    return err_set(ERR_WORK,
                   "--dedup is not available: this trireme was built without xxHash; install "
                   "libxxhash-dev and build it again");
  }
  if (is_demo) {
    spec->generator = &demo_generator;
    spec->generated_pairs = (uint64_t)opt_count(opts, "demo-pairs");
  }
  if (spec->rules.min_words > spec->rules.max_words)
    return err_set(ERR_USAGE,
                   "--min-words %u is above --max-words %u: no pair would be kept; lower "
                   "--min-words or raise --max-words",
                   spec->rules.min_words, spec->rules.max_words);
  return ERR_OK;
}

static Err fill_inputs(PrepareSpec *spec, const OptSet *opts) {
  spec->valid = text_pair(opts, "valid", 0);
  spec->test = text_pair(opts, "test", 0);
  spec->trains = spec->generator ? 0 : (size_t)opt_times(opts, "train");
  TRY(mem_alloc(&spec->train, spec->trains, sizeof *spec->train));
  for (size_t i = 0; i < spec->trains; i++) spec->train[i] = text_pair(opts, "train", (int)i);
  return ERR_OK;
}

/* The demo's text is generated, so texts that are given would be ignored. */
static Err refuse_inputs(const OptSet *opts) {
  static const char *const inputs[] = {"train", "valid", "test"};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (opt_given(opts, inputs[i]))
      return err_set(
          ERR_USAGE,
          "--recipe demo generates its text and does not read that of --%s; leave one "
          "of the two out",
          inputs[i]);
  return ERR_OK;
}

static Err fill_spec(PrepareSpec *spec, const OptSet *opts, bool is_demo) {
  TRY(fill_options(spec, opts, is_demo));
  if (is_demo) TRY(refuse_inputs(opts));
  TRY(fill_inputs(spec, opts));
  if (!is_demo && spec->trains == 0)
    return err_set(ERR_USAGE, "pass the training text: --train SRC TGT, or --recipe NAME");
  if (!is_demo && !spec->valid.path[0])
    return err_set(ERR_USAGE, "pass the validation text: --valid SRC TGT");
  return ERR_OK;
}

static void print_row(const char *what, uint64_t count, uint64_t of) {
  char number[32];
  printf("  %-20s %14s  %6.2f %%\n", what, str_of_count(number, count),
         of ? 100.0 * (double)count / (double)of : 0.0);
}

static void print_table(const Meta *m, const char *out) {
  char a[32], b[32];
  const MetaSplit *t = &m->split[SPLIT_TRAIN];
  printf("training pairs\n");
  print_row("read", t->lines, t->lines);
  for (int v = CLEAN_KEEP + 1; v < CLEAN_VERDICTS; v++) {
    if (t->dropped[v]) print_row(clean_reason[v], t->dropped[v], t->lines);
  }
  print_row(clean_reason[CLEAN_KEEP], t->pairs, t->lines);
  printf("tokens               %s source, %s target; vocabulary %d\n",
         str_of_count(a, t->tokens[0]), str_of_count(b, t->tokens[1]), m->vocab);
  for (int s = SPLIT_VALID; s < SPLITS; s++) {
    if (!m->split[s].lines) continue;
    uint64_t unused = m->split[s].lines - m->split[s].pairs;
    printf("%-20s %s lines", split_name[s], str_of_count(a, m->split[s].lines));
    if (unused) printf(", of which %s too long or empty for the loss", str_of_count(b, unused));
    printf("\n");
  }
  printf("written to ");
  out_visible(out);
  printf("\n");
}

/* Refuses options that --convert does not use: it takes all settings except --out and
 * --window-pairs from the old data set. */
static Err refuse_text_options(const OptSet *opts) {
  static const char *const allowed[] = {"convert", "out", "window-pairs", "quiet", "task"};
  for (const OptSpec *s = cmd_general_options; s->name; s++) {
    bool is_allowed = !strstr(s->commands, "prepare") || !opt_given(opts, s->name);
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
      is_allowed |= strcmp(s->name, allowed[i]) == 0;
    if (!is_allowed)
      return err_set(ERR_USAGE, "--convert does not use --%s; leave it out", s->name);
  }
  return ERR_OK;
}

static Err convert_set(const OptSet *opts) {
  Meta meta;
  const char *out = opt_text(opts, "out");
  TRY(cmd_refuse_ranks("prepare --convert", "call it without mpirun or srun"));
  TRY(prepare_check_out_given(opts));
  TRY(refuse_text_options(opts));
  TRY(convert_run(opt_text(opts, "convert"), out, (uint64_t)opt_count(opts, "window-pairs"),
                  &meta));
  print_table(&meta, out);
  meta_free(&meta);
  return ERR_OK;
}

/* Lists the differences between these options and those of the complete data set at --out. The
 * input files of a recipe are not compared, because they would have to be downloaded. */
static Err compare_complete(OptSet *opts, Str *differences) {
  const char *name = opt_text(opts, "recipe");
  PrepareSpec spec = {0};
  Recipe recipe = {0};
  Err err = name ? recipe_load(&recipe, name) : ERR_OK;
  if (!err && name)
    err = opt_parse_recipe(opts, str_text(&recipe.config), recipe.config.len, recipe.path);
  if (!err) err = fill_options(&spec, opts, recipe.generate != NULL);
  if (!err && !name) err = fill_inputs(&spec, opts);
  if (!err) err = prepare_compare(&spec, differences);
  mem_free(spec.train);
  recipe_free(&recipe);
  return err;
}

static Err prepare_set(OptSet *opts, Comm *comm, Ranks *ranks) {
  bool is_demo, is_done;
  PrepareSpec spec = {.ranks = ranks};
  Meta meta = {0};
  TRY(prepare_find_complete(opts, ranks, compare_complete, &is_done));
  if (is_done) return ERR_OK;
  TRY(check_and_apply(opts, ranks, &is_demo));
  Err err = ranks_agree(ranks, fill_spec(&spec, opts, is_demo));
  if (spec.threads == 0) spec.threads = comm_threads(comm);
  if (!err && ranks) log_info("ranks    %s share the text", comm_about(comm));
  if (!err) err = prepare_run(&spec, &meta);
  if (!err && ranks_is_first(ranks)) print_table(&meta, spec.out);
  mem_free(spec.train);
  meta_free(&meta);
  return err;
}

static Err run_translate(OptSet *opts) {
  return opt_text(opts, "convert") ? convert_set(opts) : prepare_on_ranks(opts, prepare_set);
}

const PrepareTask prepare_task_translate = {.name = "translate", .run = run_translate};
