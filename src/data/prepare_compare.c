/* Compares a complete data set with the options of a new call of prepare. dataset.json contains
 * the options that decide which pairs are kept and how they are encoded, and the names and sizes
 * of the inputs. Depends on base, meta. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/utf8.h"
#include "data/prepare.h"
#include "data/prepare_classify.h"

#define META_BYTES_MAX ((size_t)1 << 26)

static void add_difference(Str *out, const char *option, const char *is, const char *was) {
  str_addf(out, "%s--%s is %s and was %s", out->len ? "; " : "", option, is, was);
}

static void compare_text(Str *out, const char *option, const char *is, const char *was) {
  if (strcmp(is, was) != 0) add_difference(out, option, is, was);
}

static void compare_count(Str *out, const char *option, uint64_t is, uint64_t was) {
  char a[24], b[24];
  snprintf(a, sizeof a, "%" PRIu64, is);
  snprintf(b, sizeof b, "%" PRIu64, was);
  compare_text(out, option, a, b);
}

static void compare_cleaning(Str *out, const PrepareSpec *spec, const Meta *m) {
  char a[32], b[32];
  compare_text(out, "source-lang", spec->lang[0], m->lang[0]);
  compare_text(out, "target-lang", spec->lang[1], m->lang[1]);
  compare_count(out, "min-words", spec->rules.min_words, m->rules.min_words);
  compare_count(out, "max-words", spec->rules.max_words, m->rules.max_words);
  compare_count(out, "max-word-length", spec->rules.max_word_length, m->rules.max_word_length);
  snprintf(a, sizeof a, "%g", spec->rules.max_ratio);
  snprintf(b, sizeof b, "%g", m->rules.max_ratio);
  compare_text(out, "max-ratio", a, b);
  compare_count(out, "max-tokens", spec->max_tokens, m->max_tokens);
  compare_text(out, "dedup", spec->dedup ? "on" : "off", m->dedup ? "on" : "off");
  compare_count(out, "seed", spec->seed, m->seed);
}

static Err compare_tokenizer(Str *out, const PrepareSpec *spec, const Meta *m) {
  char hash[65];
  if (!spec->tokenizer) {
    compare_text(out, "tokenizer-type", spec->training.type, m->tokenizer_type);
    compare_count(out, "vocab-size", (uint64_t)spec->training.vocab_size, (uint64_t)m->vocab);
    return ERR_OK;
  }
  TRY(place_sha256(spec->tokenizer, hash));
  if (strcmp(hash, m->tokenizer_sha256) != 0)
    add_difference(out, "tokenizer", spec->tokenizer, "another one");
  return ERR_OK;
}

/* Returns the file name in the form used in dataset.json; "" if it is too long for that. */
static void name_input(const char *path, char name[1024]) {
  const char *slash = strrchr(path, '/');
  name[0] = '\0';
  if (strcmp(path, "-") == 0) path = "stdin";
  (void)!utf8_escape(slash ? slash + 1 : path, name, 1024);
}

static bool is_same_name(const TextPair *pair, const MetaSource *source) {
  for (int side = 0; side < 2; side++) {
    char name[1024] = "";
    if (pair->path[side]) name_input(pair->path[side], name);
    if (strcmp(name, source->name[side]) != 0) return false;
  }
  return true;
}

/* Compares the sizes of the input files with dataset.json. Files that were removed since are not
 * compared. */
static void compare_sizes(Str *out, const TextPair *pair, const MetaSource *source) {
  for (int side = 0; side < 2 && pair->path[side]; side++) {
    struct stat st;
    if (stat(pair->path[side], &st) != 0 || !S_ISREG(st.st_mode)) continue;
    if ((uint64_t)st.st_size == source->bytes[side]) continue;
    str_addf(out, "%s%s has %lld bytes and had %" PRIu64, out->len ? "; " : "",
             pair->path[side], (long long)st.st_size, source->bytes[side]);
  }
}

static void compare_inputs(Str *out, const char *option, const TextPair *pair, size_t pairs,
                           const MetaSplit *split) {
  if (pairs != split->sources) {
    str_addf(out, "%s--%s is given %zu times and was %zu times", out->len ? "; " : "", option,
             pairs, split->sources);
    return;
  }
  for (size_t i = 0; i < pairs; i++) {
    if (is_same_name(&pair[i], &split->source[i])) {
      compare_sizes(out, &pair[i], &split->source[i]);
      continue;
    }
    char is[2048];
    snprintf(is, sizeof is, "%s%s%s", pair[i].path[0], pair[i].path[1] ? " " : "",
             pair[i].path[1] ? pair[i].path[1] : "");
    char was[2064];
    const MetaSource *source = &split->source[i];
    snprintf(was, sizeof was, "%s%s%s", source->name[0], source->name[1][0] ? " " : "",
             source->name[1]);
    add_difference(out, option, is, was);
  }
}

static void compare_text_of_splits(Str *out, const PrepareSpec *spec, const Meta *m) {
  if (spec->generator) {
    compare_count(out, "demo-pairs", spec->generated_pairs, m->split[SPLIT_TRAIN].lines);
    return;
  }
  if (!spec->trains) return;
  compare_inputs(out, "train", spec->train, spec->trains, &m->split[SPLIT_TRAIN]);
  compare_inputs(out, "valid", &spec->valid, spec->valid.path[0] != NULL,
                 &m->split[SPLIT_VALID]);
  compare_inputs(out, "test", &spec->test, spec->test.path[0] != NULL, &m->split[SPLIT_TEST]);
}

/* Reads dataset.json of a complete data set. */
static Err read_meta(const char *out, Meta *meta) {
  char path[FILE_PATH_MAX];
  Str text = {0};
  TRY(file_join(path, out, "dataset.json"));
  Err err = file_read(path, META_BYTES_MAX, &text);
  if (!err) err = meta_parse(meta, str_text(&text), text.len, path);
  str_free(&text);
  return err;
}

Err prepare_compare(const PrepareSpec *spec, Str *differences) {
  Meta meta = {0};
  TRY(read_meta(spec->out, &meta));
  Err err = ERR_OK;
  if (meta.classify) {
    add_difference(differences, "task", "translate", "another one");
  } else {
    compare_cleaning(differences, spec, &meta);
    err = compare_tokenizer(differences, spec, &meta);
    if (!err) compare_text_of_splits(differences, spec, &meta);
  }
  meta_free(&meta);
  return err ? err : str_check(differences);
}

/* ---- texts ---- */

static const char *name_threshold(const bool has_threshold, double threshold, char text[32]) {
  snprintf(text, 32, "%g", threshold);
  return has_threshold ? text : "absent";
}

/* Compares the columns of labels. dataset.json names them, except the column of classes. */
static void compare_labels(Str *out, const LabelSpec *l, const MetaClassify *c) {
  size_t was = c->kind == LABEL_CLASS ? 1 : c->labels;
  char a[32], b[32];
  compare_text(out, "label-threshold", name_threshold(l->has_threshold, l->threshold, a),
               name_threshold(c->has_threshold, c->threshold, b));
  if (l->columns != was)
    str_addf(out, "%s--label-column is given %zu times and was %zu times", out->len ? "; " : "",
             l->columns, was);
  if (l->columns != was || c->kind == LABEL_CLASS) return;
  for (size_t i = 0; i < was; i++) compare_text(out, "label-column", l->column[i], c->name[i]);
}

static void compare_columns(Str *out, const ClassifySpec *spec, const MetaClassify *c) {
  compare_count(out, "text-column", spec->text_column ? spec->texts : 0,
                c->text_column[0][0] ? c->texts : 0);
  for (size_t i = 0; spec->text_column && i < spec->texts && i < c->texts; i++)
    compare_text(out, "text-column", spec->text_column[i], c->text_column[i]);
  compare_labels(out, &spec->labels, c);
}

static Err compare_vocabulary(Str *out, const ClassifySpec *spec, const Meta *m) {
  const char *file = text_tokenizer_file[spec->tokenizer_kind];
  char hash[65];
  bool is_wordpiece = spec->tokenizer_kind == TEXT_WORDPIECE;
  if (strcmp(file, m->classify->tokenizer_file) != 0) {
    add_difference(out, "tokenizer", file, m->classify->tokenizer_file);
    return ERR_OK;
  }
  if (is_wordpiece)
    compare_text(out, "casing", spec->rules.is_lower ? "uncased" : "cased",
                 m->classify->is_lower ? "uncased" : "cased");
  if (!spec->tokenizer) {
    /* A vocabulary of a small text is smaller than --vocab-size. */
    if ((uint64_t)m->vocab > spec->vocab_size)
      compare_count(out, "vocab-size", spec->vocab_size, (uint64_t)m->vocab);
    return ERR_OK;
  }
  TRY(text_encoder_hash(spec->tokenizer, spec->tokenizer_kind, hash));
  if (strcmp(hash, m->tokenizer_sha256) != 0)
    add_difference(out, is_wordpiece ? "vocab" : "tokenizer", spec->tokenizer, "another one");
  return ERR_OK;
}

static Err compare_tables(Str *out, const ClassifySpec *spec, const Meta *m) {
  for (int s = 0; s < SPLITS; s++) {
    TextPair *pair;
    TRY(mem_alloc(&pair, spec->inputs[s], sizeof *pair));
    for (size_t i = 0; i < spec->inputs[s]; i++) pair[i].path[0] = spec->input[s][i];
    compare_inputs(out, split_name[s], pair, spec->inputs[s], &m->split[s]);
    mem_free(pair);
  }
  return ERR_OK;
}

/* Compares what the texts are for. *is_same is false if the rest cannot be compared. */
static void compare_task(Str *out, LabelKind is, const MetaClassify *c, bool *is_same) {
  static const char *const task[LABEL_KINDS] = {"classify", "classify", "classify", "mlm"};
  static const char *const type[LABEL_KINDS] = {"class", "class", "number", "class"};
  size_t before = out->len;
  compare_text(out, "task", task[is], c ? task[c->kind] : "translate");
  if (out->len == before) compare_text(out, "label-type", type[is], type[c->kind]);
  *is_same = out->len == before;
}

static Err compare_texts(Str *out, const ClassifySpec *spec, const Meta *m) {
  bool is_same;
  compare_task(out, spec->labels.kind, m->classify, &is_same);
  if (!is_same) return ERR_OK;
  compare_count(out, "max-tokens", spec->max_tokens, m->max_tokens);
  compare_count(out, "seed", spec->seed, m->seed);
  compare_columns(out, spec, m->classify);
  TRY(compare_vocabulary(out, spec, m));
  return compare_tables(out, spec, m);
}

Err prepare_compare_texts(const ClassifySpec *spec, Str *differences) {
  Meta meta = {0};
  TRY(read_meta(spec->out, &meta));
  Err err = compare_texts(differences, spec, &meta);
  meta_free(&meta);
  return err ? err : str_check(differences);
}
