/* Runs the checks of several hosts, in order. Depends on doctor_hosts.h. */
#include "launch/doctor_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "launch/probe.h"

#define FACTS_SECONDS     180.0 /* time limit for the facts of all hosts; opening GPUs takes long */
#define ALLREDUCE_SECONDS 300.0

/* Adds a finding for a host that cannot be reached. s->problem has the form "host x refuses the
 * connection (…); start …": the text after "); ", or without parentheses after "; ", is the
 * remedy. */
static void report_loss(Findings *f, const Session *s, const char *check, const char *remedy) {
  const char *text = s->problem, *end = strstr(text, "); ");
  if (end)
    end++;
  else
    end = strstr(text, "; ");
  findings_add(f, FINDING_PROBLEM, s->host.name, check, "%.*s",
               end ? (int)(end - text) : (int)strlen(text), text);
  findings_remedy(f, "%s", end ? end + 2 : remedy);
}

static void report_reach(DoctorHosts *d) {
  for (size_t i = 0; i < d->sessions.count; i++) {
    Session *s = &d->sessions.list[i];
    s->is_reported = !s->is_ready;
    if (!s->is_ready)
      report_loss(&d->findings, s, "ssh", "try by hand: 'ssh HOST true'");
    else
      findings_add(&d->findings, FINDING_OK, s->host.name, "ssh", "%s",
                   !s->is_member
                       ? "not needed: this machine, which starts the run on the others"
                   : s->is_local ? "not needed: this machine"
                                 : "works from this machine; host key and user key accepted");
  }
}

/* Reports hosts that were lost after they had been reached. */
static void report_lost(DoctorHosts *d) {
  for (size_t i = 0; i < d->sessions.count; i++) {
    Session *s = &d->sessions.list[i];
    if (s->is_ready || s->is_reported) continue;
    s->is_reported = true;
    report_loss(&d->findings, s, "agent",
                "the agent there has ended or the network is down: look at the kernel log "
                "('dmesg') of the host, and call doctor again");
  }
}

static Err read_facts(DoctorHosts *d, size_t i) {
  const json_t *answer = d->sessions.list[i].answer;
  const char *name = doctor_name(d, i);
  TRY(facts_from_json(&d->host[i].facts, json_object_get(answer, "facts"), name));
  return network_from_json(&d->host[i].networks, json_object_get(answer, "networks"), name);
}

static void gather_facts(DoctorHosts *d) {
  Sessions *s = &d->sessions;
  for (size_t i = 0; i < s->count; i++)
    session_ask(&s->list[i], json_pack("{s:s}", "ask", "facts"));
  sessions_wait(s, FACTS_SECONDS);
  for (size_t i = 0; i < s->count; i++) {
    if (!s->list[i].is_ready) continue;
    if (read_facts(d, i)) {
      findings_add(&d->findings, FINDING_PROBLEM, doctor_name(d, i), "program", "%s",
                   err_message());
      findings_remedy(&d->findings, "install the same version of trireme on all hosts");
      continue;
    }
    d->host[i].has_facts = true;
    if (!doctor_is_member(d, i)) continue; /* no ranks run there */
    doctor_judge_machine(&d->findings, doctor_name(d, i), &d->host[i].facts, &d->needs);
  }
}

/* Appends the hosts of the run in the syntax of --hosts, such as "ann@a:2,b,[fd00::1]". */
static uint64_t list_hosts(const DoctorHosts *d, Str *out) {
  uint64_t count = 0;
  for (size_t i = 0; i < d->sessions.count; i++) {
    const Host *h = &d->sessions.list[i].host;
    if (!doctor_is_member(d, i)) continue;
    str_add(out, count++ ? "," : "");
    if (h->user[0]) str_addf(out, "%s@", h->user);
    str_addf(out, strchr(h->address, ':') ? "[%s]" : "%s", h->address);
    if (h->slots) str_addf(out, ":%d", h->slots);
  }
  return count;
}

/* Appends an option and its value to the words of a command, unless the value is "" or NULL. */
static void add_option(const char **words, size_t *n, const char *name, const char *value) {
  if (!value || !*value) return;
  words[(*n)++] = name;
  words[(*n)++] = value;
}

/* Runs the all-reduce on all hosts with `trireme launch`, over the selected network. */
static void run_allreduce(DoctorHosts *d, const char *logs) {
  const SshOptions *ssh = &d->sessions.ssh;
  char own[FILE_PATH_MAX], port[16] = "";
  const char *words[24] = {ssh_program(&(SshOptions){0}, own), "launch", "--quiet"};
  size_t n = 3;
  Str hosts = {0};
  uint64_t count = list_hosts(d, &hosts);
  if (ssh->port) snprintf(port, sizeof port, "%d", ssh->port);
  add_option(words, &n, "--log-dir", logs);
  add_option(words, &n, "--hosts", str_text(&hosts));
  add_option(words, &n, "--network", d->cidr);
  add_option(words, &n, "--ssh-port", port);
  add_option(words, &n, "--ssh-key", ssh->key);
  add_option(words, &n, "--remote-program", ssh->program);
  words[n++] = "--";
  words[n] = NULL;
  if (count > 1)
    doctor_run_allreduce(&d->allreduce, words, d->needs.gradient, ALLREDUCE_SECONDS);
  d->allreduce.hosts = count;
  str_free(&hosts);
}

static Err check_allreduce(DoctorHosts *d) {
  static const char *const needed[] = {"ssh",  "agent",    "ports",        "network used",
                                       "MPI",  "same MPI", "same program", "open files",
                                       "/tmp", NULL};
  if (doctor_refuse_allreduce(&d->findings, needed)) return ERR_OK;
  char logs[] = "/tmp/trireme-doctor-XXXXXX";
  if (!mkdtemp(logs)) return err_errno("cannot create", logs);
  log_info("running an all-reduce over all hosts");
  run_allreduce(d, logs);
  doctor_judge_allreduce(&d->findings, &d->allreduce, &d->needs);
  return file_remove_all(logs);
}

/* Makes a path absolute, because agents run in other directories. */
static Err make_absolute(const char *path, char out[FILE_PATH_MAX]) {
  char here[FILE_PATH_MAX];
  if (path[0] == '/') return file_join(out, path, "");
  if (!getcwd(here, sizeof here)) return err_errno("cannot read", "the current directory");
  return file_join(out, here, path);
}

static Err check_directories(DoctorHosts *d, const DoctorSpec *plan) {
  char path[FILE_PATH_MAX];
  if (plan->data) {
    TRY(make_absolute(plan->data, path));
    doctor_check_data(d, path);
  }
  if (plan->run) TRY(make_absolute(plan->run, path));
  log_info("checking the directory of the run");
  doctor_check_shared(d, plan->run ? path : NULL);
  return ERR_OK;
}

static Err check_reached(DoctorHosts *d, const DoctorHostsSpec *spec) {
  char own[65];
  probe_hash_file("/proc/self/exe", own);
  log_info("reading facts");
  doctor_measure_clocks(d);
  gather_facts(d);
  doctor_judge_clocks(&d->findings, d);
  doctor_compare_hosts(&d->findings, d, own);
  log_info("trying the network");
  TRY(doctor_check_network(d, spec->network));
  log_info("measuring every pair of hosts");
  TRY(doctor_measure_pairs(d));
  doctor_judge_pairs(d);
  TRY(check_directories(d, &spec->plan));
  report_lost(d);
  return check_allreduce(d);
}

Err doctor_check_hosts(DoctorHosts *d, const DoctorHostsSpec *spec) {
  *d = (DoctorHosts){0};
  TRY(doctor_plan(&spec->plan, &d->needs));
  log_info("reaching %zu host%s", spec->hosts->count, spec->hosts->count == 1 ? "" : "s");
  TRY(sessions_open(&d->sessions, spec->hosts, &spec->ssh));
  TRY(mem_alloc(&d->host, d->sessions.count, sizeof *d->host));
  report_reach(d);
  TRY(check_reached(d, spec));
  return d->findings.err;
}

void doctor_hosts_free(DoctorHosts *d) {
  sessions_close(&d->sessions);
  mem_free(d->host);
  mem_free(d->pair);
  findings_free(&d->findings);
}
