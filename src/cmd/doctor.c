/* trireme doctor: checks machines before a run and prints findings with remedies. Depends on
 * launch/doctor, launch/doctor_hosts. */
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "cmd/cmd.h"
#include "launch/doctor.h"
#include "launch/doctor_agent.h"
#include "launch/doctor_hosts.h"

#define WIDTH 110 /* width of the table in columns if standard output is not a terminal */

static size_t get_width(void) {
  struct winsize size = {0};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return WIDTH;
  return size.ws_col;
}

static Err print_table(const Findings *f, size_t hosts) {
  Str out = {0};
  size_t problems = findings_count(f, FINDING_PROBLEM);
  size_t warnings = findings_count(f, FINDING_WARNING);
  findings_print(f, hosts, get_width(), &out);
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

/* Makes a JSON array with the facts and the clock offset of each host that answered. */
static json_t *make_machines(const DoctorHosts *d) {
  json_t *list = json_array();
  for (size_t i = 0; i < d->sessions.count; i++) {
    const HostFacts *h = &d->host[i];
    if (!h->has_facts) continue;
    json_t *m = facts_to_json(&h->facts);
    json_object_set_new(m, "name", json_string(doctor_name(d, i)));
    json_object_set_new(m, "address_used", json_string(h->address));
    json_object_set_new(m, "clock_offset", json_real(h->clock_offset));
    json_object_set_new(m, "clock_error", json_real(h->clock_error));
    json_array_append_new(list, m);
  }
  return list;
}

static json_t *make_pairs(const DoctorHosts *d) {
  json_t *list = json_array();
  for (size_t i = 0; i < d->pairs; i++) {
    const PairFacts *p = &d->pair[i];
    if (p->was_measured)
      json_array_append_new(
          list, json_pack("{s:s, s:s, s:f, s:f, s:f, s:s}", "a", doctor_name(d, p->a), "b",
                          doctor_name(d, p->b), "latency", p->latency, "rate_ab", p->rate_ab,
                          "rate_ba", p->rate_ba, "problem", p->why));
  }
  return list;
}

/* Prints `root` with the members that every report has, and frees it. */
static Err print_json(json_t *root, const RunNeeds *needs, const AllreduceFacts *allreduce,
                      const DirectoryFacts *directory, const Findings *f) {
  json_t *common = json_pack(
      "{s:o, s:o, s:o, s:o, s:I, s:I}", "directory", facts_directory_to_json(directory),
      "allreduce", make_allreduce(allreduce), "needs", make_needs(needs), "findings",
      findings_to_json(f), "problems", (json_int_t)findings_count(f, FINDING_PROBLEM),
      "warnings", (json_int_t)findings_count(f, FINDING_WARNING));
  Err err = ERR_OK;
  if (!root || !common || json_object_update(root, common) != 0)
    err = err_set(ERR_WORK, "out of memory while writing JSON");
  else
    json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
  if (!err) putchar('\n');
  json_decref(common);
  json_decref(root);
  return err ? err : out_check();
}

/* Returns an error, which sets the exit status, if there is a problem. */
static Err judge_findings(const Findings *f) {
  size_t problems = findings_count(f, FINDING_PROBLEM);
  if (problems == 0) return ERR_OK;
  return err_set(ERR_WORK, "%zu problem%s found; apply the remed%s and call doctor again",
                 problems, problems == 1 ? "" : "s", problems == 1 ? "y" : "ies");
}

static Err report_machine(const Doctor *d, bool is_json) {
  enum { ONE_HOST = 1 };
  if (is_json)
    TRY(print_json(json_pack("{s:[o]}", "machines", facts_to_json(&d->machine)), &d->needs,
                   &d->allreduce, &d->directory, &d->findings));
  else
    TRY(print_table(&d->findings, ONE_HOST));
  return judge_findings(&d->findings);
}

static size_t count_members(const DoctorHosts *d) {
  size_t members = 0;
  for (size_t i = 0; i < d->sessions.count; i++) members += d->sessions.list[i].is_member;
  return members;
}

static Err report_hosts(const DoctorHosts *d, bool is_json) {
  if (is_json)
    TRY(print_json(json_pack("{s:o, s:s, s:o}", "machines", make_machines(d), "network",
                             d->cidr, "pairs", make_pairs(d)),
                   &d->needs, &d->allreduce, &d->directory, &d->findings));
  else
    TRY(print_table(&d->findings, count_members(d)));
  return judge_findings(&d->findings);
}

static DoctorSpec read_plan(const OptSet *opts) {
  return (DoctorSpec){.preset = opt_text(opts, "preset"),
                      .vocab = (int)opt_count(opts, "vocab-size"),
                      .keep = (int)opt_count(opts, "keep-checkpoints"),
                      .run = opt_text(opts, "run"),
                      .data = opt_text(opts, "data")};
}

static Err check_machine(const OptSet *opts) {
  Doctor *d;
  DoctorSpec plan = read_plan(opts);
  TRY(mem_alloc(&d, 1, sizeof *d));
  Err err = doctor_check_machine(d, &plan);
  if (!err) err = report_machine(d, opt_flag(opts, "json"));
  doctor_free(d);
  mem_free(d);
  return err;
}

static Err check_hosts(const OptSet *opts, const HostList *hosts) {
  DoctorHosts *d;
  DoctorHostsSpec spec = {.plan = read_plan(opts),
                          .hosts = hosts,
                          .ssh = {.port = (int)opt_count(opts, "ssh-port"),
                                  .key = opt_text(opts, "ssh-key"),
                                  .program = opt_text(opts, "remote-program")},
                          .network = opt_text(opts, "network")};
  TRY(mem_alloc(&d, 1, sizeof *d));
  Err err = doctor_check_hosts(d, &spec);
  if (!err) err = report_hosts(d, opt_flag(opts, "json"));
  ErrRecord why = err_copy(); /* keep the error: closing the connections may overwrite it */
  doctor_hosts_free(d);
  mem_free(d);
  if (err) err_give(&why);
  return err;
}

static Err run_agent(void) {
  Channel *head;
  log_quiet(true);
  TRY(ssh_greet(STDOUT_FILENO));
  TRY(channel_open(&head, STDIN_FILENO, STDOUT_FILENO, "the doctor"));
  return doctor_agent_run(head);
}

Err cmd_doctor(OptSet *opts) {
  HostList hosts = {0};
  HostSource source = {.hosts = opt_text(opts, "hosts"),
                       .hostfile = opt_text(opts, "hostfile"),
                       .inventory = opt_text(opts, "inventory"),
                       .user = opt_text(opts, "ssh-user")};
  if (opt_flag(opts, "agent")) return run_agent();
  log_quiet(opt_flag(opts, "quiet"));
  TRY(cmd_refuse_ranks("doctor", "call it without mpirun or srun; it starts ranks itself"));
  TRY(ssh_check_key(opt_text(opts, "ssh-key")));
  Err err = hosts_read(&hosts, &source);
  if (!err) err = hosts.count ? check_hosts(opts, &hosts) : check_machine(opts);
  hosts_free(&hosts);
  return err;
}
