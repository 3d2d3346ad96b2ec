/* trireme doctor: checks machines before a run and prints findings with remedies. Depends on
 * launch/doctor. */
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "cmd/cmd.h"
#include "launch/doctor.h"

#define WIDTH 110 /* columns of the table where standard output is not a terminal */

static size_t get_width(void) {
  struct winsize size = {0};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 40) return WIDTH;
  return size.ws_col;
}

static Err print_table(const Doctor *d) {
  Str out = {0};
  size_t problems = findings_count(&d->findings, FINDING_PROBLEM);
  size_t warnings = findings_count(&d->findings, FINDING_WARNING);
  enum { ONE_HOST = 1 };
  findings_print(&d->findings, ONE_HOST, get_width(), &out);
  str_addf(&out, "\n%zu problem%s, %zu warning%s\n", problems, problems == 1 ? "" : "s",
           warnings, warnings == 1 ? "" : "s");
  Err err = str_check(&out);
  if (!err) err = out_print(str_text(&out));
  str_free(&out);
  return err;
}

static json_t *make_allreduce(const AllreduceFacts *a) {
  if (!a->was_run) return json_null();
  return json_pack("{s:I, s:I, s:I, s:f, s:s, s:s}", "ranks", (json_int_t)a->ranks, "hosts",
                   (json_int_t)a->hosts, "bytes", (json_int_t)a->bytes, "seconds", a->seconds,
                   "transport", a->about, "problem", a->problem);
}

static json_t *make_needs(const RunNeeds *n) {
  return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "model", n->about, "parameters",
                   (json_int_t)n->parameters, "gradient", (json_int_t)n->gradient, "checkpoint",
                   (json_int_t)n->checkpoint, "disk", (json_int_t)n->disk, "memory",
                   (json_int_t)n->memory, "memory_gpu", (json_int_t)n->memory_gpu);
}

static Err print_json(const Doctor *d) {
  json_t *root =
      json_pack("{s:[o], s:o, s:o, s:o, s:o, s:I, s:I}", "machines", facts_to_json(&d->machine),
                "directory", facts_directory_to_json(&d->directory), "allreduce",
                make_allreduce(&d->allreduce), "needs", make_needs(&d->needs), "findings",
                findings_to_json(&d->findings), "problems",
                (json_int_t)findings_count(&d->findings, FINDING_PROBLEM), "warnings",
                (json_int_t)findings_count(&d->findings, FINDING_WARNING));
  if (!root) return err_set(ERR_WORK, "out of memory while writing JSON");
  json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
  putchar('\n');
  json_decref(root);
  return out_check();
}

static Err check_machine(Doctor *d, const OptSet *opts) {
  DoctorSpec spec = {.preset = opt_text(opts, "preset"),
                     .vocab = (int)opt_count(opts, "vocab-size"),
                     .keep = (int)opt_count(opts, "keep-checkpoints"),
                     .run = opt_text(opts, "run"),
                     .data = opt_text(opts, "data")};
  TRY(doctor_check_machine(d, &spec));
  TRY(opt_flag(opts, "json") ? print_json(d) : print_table(d));
  size_t problems = findings_count(&d->findings, FINDING_PROBLEM);
  if (problems == 0) return ERR_OK;
  return err_set(ERR_WORK, "%zu problem%s found; apply the remed%s and call doctor again",
                 problems, problems == 1 ? "" : "s", problems == 1 ? "y" : "ies");
}

Err cmd_doctor(OptSet *opts) {
  log_quiet(opt_flag(opts, "quiet"));
  TRY(cmd_refuse_ranks("doctor", "call it without mpirun or srun; it starts ranks itself"));
  Doctor *d;
  TRY(mem_alloc(&d, 1, sizeof *d));
  Err err = check_machine(d, opts);
  doctor_free(d);
  mem_free(d);
  return err;
}
