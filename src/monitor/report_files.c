/* Answers from files: the training set, and what a checkpoint consists of. Depends on facts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "monitor/report_internal.h"

/* Draws the sizes of files as bars in MB. */
static void draw_files(Answer *a, const RunFacts *f) {
  static const char *const part[] = {"size"};
  double megabytes[FACTS_FILES];
  PlotRow rows[FACTS_FILES];
  for (size_t i = 0; i < f->file_count; i++) {
    megabytes[i] = f->file[i].bytes / 1e6;
    rows[i] = (PlotRow){f->file[i].name, &megabytes[i]};
  }
  PlotBars bars = {"Files of a checkpoint", "MB", part, 1, rows, f->file_count};
  plot_bars(&bars, &a->chart);
}

/* Draws the tokens of both sides, in millions. */
static void draw_tokens(Answer *a, const RunFacts *f) {
  static const char *const parts[] = {"source", "target"};
  double millions[] = {f->source_tokens / 1e6, f->data_target_tokens / 1e6};
  PlotRow row = {"tokens", millions};
  PlotBars bars = {"Tokens of the training set", "M", parts, 2, &row, 1};
  plot_bars(&bars, &a->chart);
}

/* Draws what a checkpoint consists of, in MB. */
static void draw_shares(Answer *a, const RunFacts *f) {
  static const char *const parts[] = {"weights", "optimizer state", "other"};
  double megabytes[3] = {0};
  for (size_t i = 0; i < f->file_count; i++) {
    const char *name = f->file[i].name;
    bool is_state = str_starts(name, "moment");
    bool is_weights = !is_state && str_ends(name, ".safetensors");
    megabytes[is_weights ? 0 : is_state ? 1 : 2] += f->file[i].bytes / 1e6;
  }
  PlotRow row = {"checkpoint", megabytes};
  PlotBars bars = {"Size of a checkpoint", "MB", parts, 3, &row, 1};
  plot_bars(&bars, &a->chart);
}

/* Draws the training texts of each label. */
static void draw_labels(Answer *a, const RunFacts *f) {
  static const char *const part[] = {"texts"};
  PlotRow rows[FACTS_LABELS];
  for (size_t i = 0; i < f->label_count; i++)
    rows[i] = (PlotRow){f->label[i].name, &f->label[i].texts};
  PlotBars bars = {"Training texts of each label", "texts", part, 1, rows, f->label_count};
  plot_bars(&bars, &a->chart);
}

static void say_epochs(Answer *a, const RunFacts *f) {
  if (isnan(f->epochs))
    report_say(a, " How often the run saw them is not known: it has no record yet.");
  else
    report_say(a, " The run saw them %.2f times.", f->epochs);
}

/* Returns what the labels are called. */
static const char *name_labels(const RunFacts *f) {
  bool is_one = f->labels == 1;
  if (strcmp(f->label_kind, "class") == 0) return is_one ? "class" : "classes";
  if (strcmp(f->label_kind, "number") == 0) return is_one ? "number" : "numbers";
  return is_one ? "label" : "labels";
}

static void say_labels(Answer *a, const RunFacts *f) {
  char texts[32];
  if (isnan(f->labels)) {
    report_say(a, " The texts have no labels.");
    return;
  }
  report_say(a, " %s %.0f %s, listed with the number of texts%s.",
             strcmp(f->label_kind, "number") == 0 ? "Each text has" : "They have", f->labels,
             name_labels(f),
             f->labels > (double)f->label_count ? "; the others are in dataset.json" : "");
  for (size_t i = 0; i < f->label_count; i++)
    str_addf(&a->table, "%s\t%s\ttraining texts\n", f->label[i].name,
             report_count(texts, f->label[i].texts));
  draw_labels(a, f);
}

/* A data set for classify or mlm. */
static void answer_texts(Answer *a, const RunFacts *f) {
  char bytes[32], texts[32], tokens[32];
  report_bytes(bytes, f->text_bytes);
  report_count(texts, f->train_texts);
  report_count(tokens, f->train_text_tokens);
  if (!isnan(f->train_texts)) {
    report_verdict(a, VERDICT_FACT, "%s, %s texts", bytes, texts);
    report_say(a, "The training set has %s of text in %s texts, %s tokens.", bytes, texts,
               tokens);
    say_labels(a, f);
    say_epochs(a, f);
  }
  report_figure(a, "text_bytes", "text", f->text_bytes, "%s", bytes);
  report_figure(a, "texts", "texts", f->train_texts, "%s", texts);
  report_figure(a, "tokens", "tokens", f->train_text_tokens, "%s", tokens);
  if (!isnan(f->labels))
    report_figure(a, "labels", name_labels(f), f->labels, "%.0f", f->labels);
  report_figure(a, "epochs", "epochs", f->epochs, "%.2f", f->epochs);
}

/* A data set for translate. */
static void answer_pairs(Answer *a, const RunFacts *f) {
  char bytes[32], lines[32], pairs[32], tokens[32];
  report_bytes(bytes, f->text_bytes);
  report_count(lines, f->train_lines);
  report_count(pairs, f->train_pairs);
  if (!isnan(f->train_pairs)) {
    report_verdict(a, VERDICT_FACT, "%s, %s lines", bytes, lines);
    report_say(
        a,
        "The training set has %s of text on both sides in %s lines, of which %s pairs were "
        "kept.",
        bytes, lines, pairs);
    say_epochs(a, f);
  }
  if (!isnan(f->source_tokens)) draw_tokens(a, f);
  report_figure(a, "text_bytes", "text of both sides", f->text_bytes, "%s", bytes);
  report_figure(a, "lines", "lines read", f->train_lines, "%s", lines);
  report_figure(a, "pairs", "pairs kept", f->train_pairs, "%s", pairs);
  report_figure(a, "source_tokens", "source tokens", f->source_tokens, "%s",
                report_count(tokens, f->source_tokens));
  report_figure(a, "target_tokens", "target tokens", f->data_target_tokens, "%s",
                report_count(tokens, f->data_target_tokens));
  report_figure(a, "target_tokens_trained", "target tokens trained", f->target_tokens, "%s",
                report_count(tokens, f->target_tokens));
  report_figure(a, "epochs", "epochs", f->epochs, "%.2f", f->epochs);
}

static void answer_data(RunReport *r) {
  Answer *a = &r->answers[ANSWER_DATA];
  const RunFacts *f = &r->facts;
  char where[256];
  bool is_of_texts = f->has_texts || (f->is_text_task && isnan(f->train_pairs));
  bool is_known = !isnan(is_of_texts ? f->train_texts : f->train_pairs);
  if (!f->data_dir[0]) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown: the config names no data set");
    report_say(a, "Without the data set the size of the training set is not known.");
  } else if (!is_known) {
    utf8_visible(f->data_dir, where, sizeof where);
    report_verdict(a, VERDICT_UNKNOWN, "Unknown: the data set is not there");
    report_say(
        a,
        "%s has no dataset.json that can be read here, so the size of the training set is "
        "not known.",
        where);
  }
  if (is_of_texts)
    answer_texts(a, f);
  else
    answer_pairs(a, f);
}

static const char *describe_file(const char *name) {
  static const char *const files[][2] = {
      {"model.json", "sizes of the model, checksums"},
      {"weights.safetensors", "the weights of the model (fp32)"},
      {"training.safetensors",
       "the weights that training continues from, beside their average"},
      {"moment1.safetensors", "optimizer state: mean of the gradients (m)"},
      {"moment2.safetensors", "optimizer state: mean of their squares (v)"},
      {"tokenizer.model", "SentencePiece model"},
      {"vocab.txt", "WordPiece vocabulary"},
      {"labels.txt", "names of the labels"},
      {"training.json", "step, learning rate, counters, best score"}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (strcmp(files[i][0], name) == 0) return files[i][1];
  return "other";
}

static void answer_checkpoint(RunReport *r) {
  Answer *files = &r->answers[ANSWER_FILES], *size = &r->answers[ANSWER_SIZE];
  const RunFacts *f = &r->facts;
  char bytes[32], all[32];
  if (f->file_count == 0) {
    report_verdict(files, VERDICT_UNKNOWN, "Unknown: no checkpoint");
    report_say(files, "The run directory has no checkpoint.");
    report_verdict(size, VERDICT_UNKNOWN, "Unknown: no checkpoint");
    report_say(size, "The run directory has no checkpoint.");
    return;
  }
  report_verdict(files, VERDICT_FACT, "%zu file%s", f->file_count, str_plural(f->file_count));
  report_say(files,
             "A checkpoint is a directory of %zu file%s: the model, and "
             "what training needs to continue.",
             f->file_count, str_plural(f->file_count));
  for (size_t i = 0; i < f->file_count; i++)
    str_addf(&files->table, "%s\t%s\t%s\n", f->file[i].name,
             report_bytes(bytes, f->file[i].bytes), describe_file(f->file[i].name));
  report_figure(files, "files", "files", (double)f->file_count, "%zu", f->file_count);
  draw_files(files, f);
  double total = f->checkpoint_bytes * f->checkpoints;
  report_verdict(size, VERDICT_FACT, "%s", report_bytes(bytes, f->checkpoint_bytes));
  report_say(size, "One checkpoint has %s", bytes);
  if (!isnan(f->parameters))
    report_say(size, ", %.1f bytes for each of %s parameters",
               f->checkpoint_bytes / f->parameters, report_count(all, f->parameters));
  report_say(size, "; the run keeps %.0f, together %s.", f->checkpoints,
             report_bytes(all, total));
  draw_shares(size, f);
  report_figure(size, "checkpoint_bytes", "one checkpoint", f->checkpoint_bytes, "%s", bytes);
  report_figure(size, "checkpoints", "kept", f->checkpoints, "%.0f", f->checkpoints);
  report_figure(size, "parameters", "parameters", f->parameters, "%s",
                report_count(all, f->parameters));
}

void report_answer_files(RunReport *r) {
  answer_data(r);
  answer_checkpoint(r);
}
