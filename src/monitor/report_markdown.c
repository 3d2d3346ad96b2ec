/* The report as Markdown: the same in plain text, with sparklines for charts. Depends on report. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "monitor/report_internal.h"

/* Adds text with the characters escaped that Markdown or a table would interpret. */
static void add(Str *out, const char *text) {
  for (const char *at = text; *at; at++) {
    if (strchr("\\`*_<>|[]&~", *at)) str_addc(out, '\\');
    str_addc(out, *at);
  }
}

static void add_figures(Str *out, const Figure *figures, size_t count) {
  for (size_t i = 0; i < count; i++) {
    str_add(out, "- ");
    add(out, figures[i].label);
    str_add(out, ": ");
    add(out, figures[i].shown);
    str_addc(out, '\n');
  }
}

/* `is_of_labels`: the rows are labels with their texts, else files with their sizes. */
static void add_table(Str *out, const char *rows, bool is_of_labels) {
  if (!*rows) return;
  str_addf(out, "| %s | what |\n|---|---|---|\n",
           is_of_labels ? "label | number" : "file | size");
  for (const char *at = rows; *at;) {
    size_t len = strcspn(at, "\n");
    str_add(out, "| ");
    for (size_t i = 0; i < len; i++) {
      char text[2] = {at[i], 0};
      if (at[i] == '\t')
        str_add(out, " | ");
      else
        add(out, text);
    }
    str_add(out, " |\n");
    at += len;
    if (*at) at++;
  }
  str_addc(out, '\n');
}

static void add_answer(Str *out, const Answer *a, int index) {
  str_addf(out, "### %d. %s\n\n**", index + 1, a->question);
  add(out, a->headline);
  str_add(out, ".** ");
  add(out, a->sentence);
  str_add(out, "\n\n");
  if (a->caption.len) str_addf(out, "%s\n\n", str_text(&a->caption));
  add_table(out, str_text(&a->table), strcmp(a->id, "data") == 0);
  add_figures(out, a->figures, a->figure_count);
  str_addc(out, '\n');
}

static void add_changes(Str *out, const RunReport *run) {
  str_add(out, "## What to change\n\n");
  if (run->change_count == 0)
    str_add(out, "Nothing that was measured would save 1 % of the run's time.\n");
  for (size_t i = 0; i < run->change_count; i++) {
    str_addf(out, "%zu. **", i + 1);
    add(out, run->changes[i].what);
    str_add(out, "**: ");
    add(out, run->changes[i].gain);
    str_add(out, ". ");
    add(out, run->changes[i].how);
    str_addc(out, '\n');
  }
  str_addc(out, '\n');
}

static void add_ranks(Str *out, const RunReport *run) {
  const RunFacts *f = &run->facts;
  str_add(out, "## Ranks\n\n");
  if (f->rank_count == 0) {
    str_add(out, "The times of the ranks were not recorded: unknown.\n\n");
    return;
  }
  if (run->straggler != SIZE_MAX)
    str_addf(out, "**Straggler: rank %zu**, which the others wait for.\n\n", run->straggler);
  else
    str_add(out, "No rank stands out as slower than the others.\n\n");
  str_add(out,
          "| rank | host | step | work | data wait | wait for others "
          "|\n|---|---|---|---|---|---|\n");
  for (size_t r = 0; r < f->rank_count; r++) {
    const RankTimes *t = &f->rank[r];
    char ms[4][32];
    str_addf(out, "| %zu | ", r);
    add(out, t->host);
    str_addf(out, " | %s | %s | %s | %s |\n", report_ms(ms[0], t->total),
             report_ms(ms[1], t->work), report_ms(ms[2], t->data), report_ms(ms[3], t->wait));
  }
  str_addc(out, '\n');
}

/* Adds lines as a block of code. Its fence is longer than any row of backticks in it. */
static void add_block(Str *out, const char *text) {
  size_t longest = 2;
  for (const char *at = text; *at; at++) {
    size_t row = strspn(at, "`");
    if (row > longest) longest = row;
    if (row > 0) at += row - 1;
  }
  for (size_t i = 0; i <= longest; i++) str_addc(out, '`');
  str_addc(out, '\n');
  report_visible(text, out);
  str_addc(out, '\n');
  for (size_t i = 0; i <= longest; i++) str_addc(out, '`');
  str_add(out, "\n\n");
}

static void add_command(Str *out, const RunFacts *f) {
  str_add(out, "## Command and versions\n\n");
  add_block(out, f->command.len ? str_text(&f->command) : "unknown");
  const char *const rows[][2] = {{"called in", f->directory},
                                 {"Trireme", f->version},
                                 {"compiler", f->compiler},
                                 {"system", f->system},
                                 {"device", f->device},
                                 {"ranks", f->transport},
                                 {"all-reduce", report_allreduce(f)}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    str_addf(out, "- %s: ", rows[i][0]);
    add(out, *rows[i][1] ? rows[i][1] : "unknown");
    str_addc(out, '\n');
  }
  str_add(out, "\nOptions that differ from their defaults:\n\n");
  add_block(out, f->config.len ? str_text(&f->config) : "unknown");
}

static void add_left_out(Str *out, const RunFacts *f) {
  char text[RUNLOG_LEFT_OUT];
  if (!runlog_left_out(&f->log, text, sizeof text)) return;
  add(out, text);
  str_add(out, "\n\n");
}

static void add_damage(Str *out, const RunFacts *f) {
  char shown[sizeof f->log.damage];
  if (!f->log.damaged_lines) return;
  utf8_visible(f->log.damage, shown, sizeof shown);
  str_add(out, "Some lines of the measurements could not be read, the first: ");
  add(out, shown);
  str_add(out, "\n\n");
}

static void add_run(Str *out, const RunReport *run) {
  const RunFacts *f = &run->facts;
  str_add(out, "# Run ");
  add(out, f->name);
  str_add(out, "\n\n| question | answer |\n|---|---|\n");
  for (int i = 0; i < REPORT_ANSWERS; i++) {
    str_addf(out, "| %s | ", run->answers[i].question);
    add(out, run->answers[i].headline);
    str_add(out, " |\n");
  }
  str_addc(out, '\n');
  add_damage(out, f);
  add_left_out(out, f);
  add_changes(out, run);
  str_add(out, "## Cost and energy\n\n");
  add_figures(out, run->costs, run->cost_count);
  str_add(out, "\n## Questions\n\n");
  for (int i = 0; i < REPORT_ANSWERS; i++) add_answer(out, &run->answers[i], i);
  add_ranks(out, run);
  add_command(out, f);
}

static void add_comparison(Str *out, const Report *r) {
  str_add(out, "# Runs compared\n\n| |");
  for (size_t i = 0; i < r->run_count; i++) {
    str_addc(out, ' ');
    add(out, r->runs[i]->facts.name);
    str_add(out, " |");
  }
  str_add(out, "\n|---|");
  for (size_t i = 0; i < r->run_count; i++) str_add(out, "---|");
  str_addc(out, '\n');
  for (size_t k = 0; k < r->row_count; k++) {
    str_add(out, r->rows[k].key ? "| " : "| --");
    add(out, r->rows[k].label);
    str_add(out, " |");
    for (size_t i = 0; i < r->run_count; i++) {
      str_addc(out, ' ');
      add(out, r->rows[k].shown[i]);
      str_add(out, " |");
    }
    str_addc(out, '\n');
  }
  str_addc(out, '\n');
  for (size_t i = 1; i < r->run_count; i++) {
    if (!r->bleu[i][0]) continue; /* no translations */
    str_add(out, "- ");
    add(out, r->runs[i]->facts.name);
    str_add(out, ": ");
    add(out, r->bleu[i]);
    str_addc(out, '\n');
  }
  str_addc(out, '\n');
}

Err report_markdown(const Report *r, Str *out) {
  if (r->run_count > 1) add_comparison(out, r);
  for (size_t i = 0; i < r->run_count; i++) add_run(out, r->runs[i]);
  return str_check(out);
}
