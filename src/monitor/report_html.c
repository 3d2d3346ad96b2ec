/* The report as one HTML page that loads nothing: style and charts are inline, no script. Everything
 * that comes from a run is escaped. Depends on report, plot. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "monitor/report_internal.h"

static const char style[] =
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:880px;margin:2em auto;padding:0 1em;"
    "color:#1c1e21;background:#fff}"
    "h1{font-size:1.6em;margin:.2em 0}h2{font-size:1.25em;margin:2em 0 .4em;border-bottom:1px "
    "solid "
    "#8884}h3{font-size:1.05em;margin:1.8em 0 .2em}"
    "p{margin:.4em 0}.about{opacity:.75}.none{opacity:.6}"
    "table{border-collapse:collapse;margin:.6em 0;font-size:.92em}"
    "td,th{padding:.2em .9em .2em 0;text-align:left;vertical-align:top;border-bottom:1px solid "
    "#8883}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "svg{width:100%;height:auto;margin:.4em 0}"
    ".v{display:inline-block;padding:0 .55em;border-radius:.6em;font-weight:600;color:#fff}"
    ".good{background:#2d8a4e}.bad{background:#c23b3b}.mixed{background:#a86a00}"
    ".fact{background:#4a6fa5}.unknown{background:#777}"
    "dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(190px,1fr));gap:.3em 1.2em;"
    "margin:.6em 0;font-size:.9em}dt{opacity:.7}dd{margin:0;font-weight:600}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#8881;padding:.6em .8em;"
    "font-size:.85em}ol li{margin:.5em 0}a{color:inherit}"
    "tr.slow td{font-weight:700;color:#c23b3b}"
    "@media(prefers-color-scheme:dark){body{color:#e4e6e9;background:#16181c}tr.slow "
    "td{color:#ff8b8b}}"
    "@media print{body{max-width:none;margin:0}h3{break-after:avoid}svg{max-height:7cm}}";

static const char *const verdict_class[] = {[VERDICT_UNKNOWN] = "unknown",
                                            [VERDICT_GOOD] = "good",
                                            [VERDICT_MIXED] = "mixed",
                                            [VERDICT_BAD] = "bad",
                                            [VERDICT_FACT] = "fact"};

/* Adds <tag>text</tag>. */
static void add(Str *out, const char *tag, const char *text) {
  str_addf(out, "<%s>", tag);
  plot_escape(text, out);
  str_addf(out, "</%.*s>", (int)strcspn(tag, " "), tag);
}

static void add_verdict(Str *out, const Answer *a) {
  str_addf(out, "<span class=\"v %s\">", verdict_class[a->verdict]);
  plot_escape(a->headline, out);
  str_add(out, "</span>");
}

static void add_figures(Str *out, const Figure *figures, size_t count) {
  if (count == 0) return;
  str_add(out, "<dl>");
  for (size_t i = 0; i < count; i++) {
    str_add(out, "<div>");
    add(out, "dt", figures[i].label);
    add(out, "dd", figures[i].shown);
    str_add(out, "</div>");
  }
  str_add(out, "</dl>\n");
}

/* Adds rows "name\tvalue\tmeaning\n" as a table. */
static void add_table(Str *out, const char *rows) {
  if (!*rows) return;
  str_add(out, "<table>");
  for (const char *at = rows; *at;) {
    str_add(out, "<tr>");
    for (int column = 0; column < 3; column++) {
      size_t len = strcspn(at, "\t\n");
      char cell[256];
      snprintf(cell, sizeof cell, "%.*s", (int)len, at);
      add(out, column == 1 ? "td class=n" : "td", cell);
      at += len;
      if (*at) at++;
    }
    str_add(out, "</tr>");
  }
  str_add(out, "</table>\n");
}

static void add_summary(Str *out, const RunReport *run, size_t number) {
  str_add(out, "<table>");
  for (int i = 0; i < REPORT_ANSWERS; i++) {
    const Answer *a = &run->answers[i];
    str_addf(out, "<tr><td class=n>%d</td><td><a href=\"#%s-%zu\">", i + 1, a->id, number);
    plot_escape(a->question, out);
    str_add(out, "</a></td><td>");
    add_verdict(out, a);
    str_add(out, "</td></tr>\n");
  }
  str_add(out, "</table>\n");
}

static void add_answer(Str *out, const Answer *a, int index, size_t number) {
  str_addf(out, "<h3 id=\"%s-%zu\">%d. ", a->id, number, index + 1);
  plot_escape(a->question, out);
  str_add(out, "</h3>\n<p>");
  add_verdict(out, a);
  str_add(out, " ");
  plot_escape(a->sentence, out);
  str_add(out, "</p>\n");
  if (a->chart.len) str_add(out, str_text(&a->chart));
  add_table(out, str_text(&a->table));
  add_figures(out, a->figures, a->figure_count);
}

static void add_changes(Str *out, const RunReport *run) {
  str_add(out, "<h2>What to change</h2>\n");
  if (run->change_count == 0) {
    str_add(out, "<p>Nothing that was measured would save 1&#8239;% of the run's time.</p>\n");
    return;
  }
  str_add(out, "<ol>");
  for (size_t i = 0; i < run->change_count; i++) {
    const Change *c = &run->changes[i];
    str_add(out, "<li>");
    add(out, "b", c->what);
    str_add(out, ": ");
    plot_escape(c->gain, out);
    str_add(out, ". ");
    plot_escape(c->how, out);
    str_add(out, "</li>\n");
  }
  str_add(out, "</ol>\n");
}

static void add_ranks(Str *out, const RunReport *run) {
  const RunFacts *f = &run->facts;
  str_add(out, "<h2>Ranks</h2>\n");
  if (f->rank_count == 0) {
    str_add(out, "<p>The times of the ranks were not recorded: unknown.</p>\n");
    return;
  }
  if (run->straggler != SIZE_MAX)
    str_addf(out, "<p><b>Straggler: rank %zu</b>, which the others wait for.</p>\n",
             run->straggler);
  else
    str_add(out, "<p>No rank stands out as slower than the others.</p>\n");
  if (run->rank_chart.len) str_add(out, str_text(&run->rank_chart));
  str_add(out,
          "<table><tr><th>rank</th><th>host</th><th>step</th><th>work</th><th>data "
          "wait</th><th>wait for others</th></tr>\n");
  for (size_t r = 0; r < f->rank_count; r++) {
    const RankTimes *t = &f->rank[r];
    char ms[4][32];
    str_addf(out, "<tr%s><td class=n>%zu</td>", r == run->straggler ? " class=slow" : "", r);
    add(out, "td", t->host);
    str_addf(
        out,
        "<td class=n>%s</td><td class=n>%s</td><td class=n>%s</td><td class=n>%s</td></tr>\n",
        report_ms(ms[0], t->total), report_ms(ms[1], t->work), report_ms(ms[2], t->data),
        report_ms(ms[3], t->wait));
  }
  str_add(out, "</table>\n");
}

static void add_line(Str *out, const char *name, const char *text) {
  str_add(out, "<tr>");
  add(out, "td", name);
  add(out, "td", *text ? text : "unknown");
  str_add(out, "</tr>\n");
}

static void add_lines(Str *out, const char *text) {
  Str shown = {0};
  report_visible(text, &shown);
  if (shown.failed) out->failed = true;
  add(out, "pre", str_text(&shown));
  str_free(&shown);
}

static void add_command(Str *out, const RunFacts *f) {
  str_add(out, "<h2>Command and versions</h2>\n");
  if (f->ranks > 1) str_addf(out, "<p>Command of each of the %.0f ranks:</p>\n", f->ranks);
  if (f->command.len)
    add_lines(out, str_text(&f->command));
  else
    str_add(out, "<p>The command was not recorded: unknown.</p>\n");
  str_add(out, "<table>");
  add_line(out, "called in", f->directory);
  add_line(out, "Trireme", f->version);
  add_line(out, "compiler", f->compiler);
  add_line(out, "system", f->system);
  add_line(out, "device", f->device);
  add_line(out, "ranks", f->transport);
  add_line(out, "all-reduce", report_allreduce(f));
  str_add(out,
          "</table>\n<p>Options that differ from their defaults (<code>config</code>):</p>\n");
  add_lines(out, str_text(&f->config));
}

/* Adds text with control characters and those of HTML escaped. */
static void add_visible(Str *out, const char *text) {
  char shown[FILE_PATH_MAX];
  utf8_visible(text, shown, sizeof shown);
  plot_escape(shown, out);
}

static void add_run(Str *out, const Report *r, size_t i) {
  char left_out[RUNLOG_LEFT_OUT];
  const RunReport *run = r->runs[i];
  const RunFacts *f = &run->facts;
  if (r->run_count > 1) {
    add(out, "h1", f->name);
    str_addf(out, "<p class=about>Run %zu of %zu: ", i + 1, r->run_count);
  } else {
    str_add(out, "<p class=about>");
  }
  add_visible(out, f->dir);
  str_add(out, "</p>\n<h2>Answers</h2>\n");
  add_summary(out, run, i);
  if (f->log.damaged_lines) {
    str_add(out, "<p>Some lines of the measurements could not be read, the first: ");
    add_visible(out, f->log.damage);
    str_add(out, "</p>\n");
  }
  if (runlog_left_out(&f->log, left_out, sizeof left_out)) {
    str_add(out, "<p>");
    add_visible(out, left_out);
    str_add(out, "</p>\n");
  }
  add_changes(out, run);
  str_add(out, "<h2>Cost and energy</h2>\n");
  add_figures(out, run->costs, run->cost_count);
  str_add(out, "<h2>Questions</h2>\n");
  for (int k = 0; k < REPORT_ANSWERS; k++) add_answer(out, &run->answers[k], k, i);
  add_ranks(out, run);
  add_command(out, f);
}

static void add_comparison(Str *out, const Report *r) {
  str_add(out, "<h2>Side by side</h2>\n<table><tr><th></th>");
  for (size_t i = 0; i < r->run_count; i++) add(out, "th", r->runs[i]->facts.name);
  str_add(out, "</tr>\n");
  for (size_t k = 0; k < r->row_count; k++) {
    str_add(out, r->rows[k].key ? "<tr><td>" : "<tr><td>--");
    plot_escape(r->rows[k].label, out);
    str_add(out, "</td>");
    for (size_t i = 0; i < r->run_count; i++) add(out, "td class=n", r->rows[k].shown[i]);
    str_add(out, "</tr>\n");
  }
  str_add(out, "</table>\n");
  for (size_t i = 1; i < r->run_count; i++) {
    if (!r->bleu[i][0]) continue; /* no translations */
    str_add(out, "<p>");
    add(out, "b", r->runs[i]->facts.name);
    str_add(out, ": ");
    plot_escape(r->bleu[i], out);
    str_add(out, "</p>\n");
  }
  str_add(out, str_text(&r->charts));
}

Err report_html(const Report *r, Str *out) {
  const char *title = r->run_count == 1 ? r->runs[0]->facts.name : "runs compared";
  str_add(out,
          "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width\">"
          "<meta name=\"generator\" content=\"trireme " TRIREME_VERSION "\">\n<title>");
  plot_escape(title, out);
  str_add(out, "</title><style>");
  str_add(out, style);
  str_add(out, "</style></head><body>\n<h1>Training report: ");
  plot_escape(title, out);
  str_add(out, "</h1>\n");
  if (r->run_count > 1) add_comparison(out, r);
  for (size_t i = 0; i < r->run_count; i++) add_run(out, r, i);
  str_add(
      out,
      "<p class=about>Written by trireme " TRIREME_VERSION
      " from what the run measured. What was not measured is unknown.</p>\n</body></html>\n");
  return str_check(out);
}
