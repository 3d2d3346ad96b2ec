/* trireme report: explains runs from what they measured. Depends on monitor/report. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "cmd/cmd.h"
#include "monitor/report.h"

typedef Err WriteReport(const Report *r, Str *out);

/* Selects the form: --json and --markdown print to standard output unless --out is given; a page
 * goes to report.html. */
static Err select_form(const OptSet *opts, WriteReport **write, const char **path) {
  bool is_json = opt_flag(opts, "json"), is_markdown = opt_flag(opts, "markdown");
  if (is_json && is_markdown)
    return err_set(ERR_USAGE,
                   "--json and --markdown exclude each other: leave out one of the two");
  *write = is_json ? report_json : is_markdown ? report_markdown : report_html;
  *path = opt_text(opts, "out");
  if (!*path) *path = is_json || is_markdown ? "-" : "report.html";
  return ERR_OK;
}

static Err write_text(const char *path, const Str *text) {
  if (strcmp(path, "-") == 0) return out_print(str_text(text));
  TRY(file_write_output(path, str_text(text), text->len));
  log_info("report   %s", path);
  return ERR_OK;
}

static void print_headlines(const Report *r) {
  for (size_t i = 0; i < r->run_count; i++) {
    if (r->run_count > 1) log_info("%s", r->runs[i]->facts.dir);
    for (int k = 0; k < REPORT_ANSWERS; k++)
      log_info("%-46s  %s", r->runs[i]->answers[k].question, r->runs[i]->answers[k].headline);
  }
}

Err cmd_report(OptSet *opts) {
  const char *dirs[REPORT_RUNS], *path = NULL;
  WriteReport *write = NULL;
  Report *report;
  Str text = {0};
  Err err;
  log_quiet(opt_flag(opts, "quiet"));
  TRY(cmd_refuse_ranks("report", "call it without mpirun or srun"));
  TRY(select_form(opts, &write, &path));
  size_t count = (size_t)opt_operands(opts);
  for (size_t i = 0; i < count; i++) dirs[i] = opt_operand(opts, (int)i);
  double price = opt_given(opts, "price-per-hour") ? opt_real(opts, "price-per-hour") : NAN;
  TRY(mem_alloc(&report, 1, sizeof *report));
  TRY_DONE(report_make(report, dirs, count, price));
  TRY_DONE(write(report, &text));
  TRY_DONE(write_text(path, &text));
  if (strcmp(path, "-") != 0) print_headlines(report);
done:
  report_free(report);
  mem_free(report);
  str_free(&text);
  return err;
}
