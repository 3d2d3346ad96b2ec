/* Measures the clocks of the hosts, and compares what must be the same on all of them. Depends
 * on doctor_hosts.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "launch/doctor_hosts.h"
#include "launch/probe.h"

#define CLOCK_ROUNDS    8
#define CLOCK_TOLERANCE 1.0  /* largest difference of clocks in seconds */
#define CLOCK_SECONDS   30.0 /* time limit for an answer */
/* Warn if a host has this many times the cores of another, because the faster host waits for
 * the slower one in every step. */
#define UNEVEN_CORES 2

/* Estimates the clock offset of a host as NTP does: the host read its clock between question
 * and answer. The shortest of several round trips has the smallest error. */
static void use_round(HostFacts *h, const Session *s, double wall_offset) {
  double clock = json_number_value(json_object_get(s->answer, "clock"));
  double error = (s->answered - s->asked) / 2;
  if (!s->answer || clock <= 0 || (h->has_clock && error >= h->clock_error)) return;
  h->has_clock = true;
  h->clock_error = error;
  h->clock_offset = clock - (s->asked + error + wall_offset);
}

void doctor_measure_clocks(DoctorHosts *d) {
  double wall_offset = probe_clock() - progress_clock();
  for (int round = 0; round < CLOCK_ROUNDS; round++) {
    for (size_t i = 0; i < d->sessions.count; i++)
      session_ask(&d->sessions.list[i], json_pack("{s:s}", "ask", "clock"));
    sessions_wait(&d->sessions, CLOCK_SECONDS);
    for (size_t i = 0; i < d->sessions.count; i++)
      use_round(&d->host[i], &d->sessions.list[i], wall_offset);
  }
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns true if at least two hosts, this machine among them, have told their clocks (or facts);
 * otherwise nothing is compared, and no row may say that all is well. */
static bool has_two(const DoctorHosts *d, bool of_clocks) {
  size_t n = 0;
  for (size_t i = 0; i < d->sessions.count; i++)
    n += of_clocks ? d->host[i].has_clock : d->host[i].has_facts;
  return n > 1;
}

/* Returns the median of the hosts' clock offsets to this machine, in seconds. With an even
 * number of hosts, returns the one of the two middle values that is nearer to 0. */
static double find_common_clock(const DoctorHosts *d) {
  double *offset;
  size_t n = 0;
  if (mem_alloc(&offset, d->sessions.count + 1, sizeof *offset)) return 0;
  for (size_t i = 0; i < d->sessions.count; i++)
    if (d->host[i].has_clock) offset[n++] = d->host[i].clock_offset;
  qsort(offset, n, sizeof *offset, compare_doubles);
  double low = n ? offset[(n - 1) / 2] : 0, high = n ? offset[n / 2] : 0;
  mem_free(offset);
  return fabs(low) <= fabs(high) ? low : high;
}

void doctor_judge_clocks(Findings *f, const DoctorHosts *d) {
  double common = find_common_clock(d);
  if (!has_two(d, true)) return;
  for (size_t i = 0; i < d->sessions.count; i++) {
    const HostFacts *h = &d->host[i];
    double ahead = h->clock_offset - common;
    if (!h->has_clock) continue;
    if (fabs(ahead) - h->clock_error > CLOCK_TOLERANCE) {
      findings_add(f, FINDING_PROBLEM, doctor_name(d, i), "clock skew",
                   "%.1f s %s the other hosts (tolerance %.0f s)", fabs(ahead),
                   ahead > 0 ? "ahead of" : "behind", CLOCK_TOLERANCE);
      findings_remedy(f, "synchronize it: 'timedatectl set-ntp true', or install chrony");
    } else {
      findings_add(f, FINDING_OK, doctor_name(d, i), "clock skew",
                   "within %.0f s of the other hosts", CLOCK_TOLERANCE);
    }
  }
}

static void compare_program(Findings *f, const DoctorHosts *d, size_t i, const char *own) {
  const MachineFacts *m = &d->host[i].facts;
  if (strcmp(m->sha256, own) == 0) {
    findings_add(f, FINDING_OK, doctor_name(d, i), "same program", "the same everywhere");
    return;
  }
  findings_add(f, FINDING_PROBLEM, doctor_name(d, i), "same program",
               "%s there is another program (version %s, SHA-256 %.12s) than here (%.12s)",
               m->program, m->version, m->sha256, own);
  findings_remedy(f,
                  "install the same file on all hosts, for example with 'trireme cluster up', "
                  "or in a directory that all hosts share");
}

/* A fact that must be the same on all hosts. Each host is compared with the first one that has
 * reported its facts. */
typedef struct {
  const char *check, *what, *remedy;
  size_t offset; /* offset of the fact in MachineFacts */
  FindingLevel level;
} SameFact;

static const SameFact same_facts[] = {
    {"same MPI", "MPI library", "install the same version of Open MPI on all hosts",
     offsetof(MachineFacts, mpi), FINDING_PROBLEM},
    {"same MPI", "launcher",
     "put the mpirun of the same version of Open MPI first in PATH on all hosts",
     offsetof(MachineFacts, mpirun), FINDING_PROBLEM},
    {"same NCCL", "version of NCCL", "install the same version of libnccl2 on all hosts",
     offsetof(MachineFacts, nccl), FINDING_PROBLEM},
    {"same driver", "version of the GPU driver",
     "install the same driver on all hosts; different ones usually work together",
     offsetof(MachineFacts, gpu_driver), FINDING_WARNING},
    {"same CPU", "processor",
     "hosts of different speed work together, but a step takes as long as on the slowest",
     offsetof(MachineFacts, cpu), FINDING_WARNING},
};

/* Returns the index of the first host with facts; the number of hosts if there is none. */
static size_t find_first(const DoctorHosts *d) {
  size_t first = 0;
  while (first < d->sessions.count && !d->host[first].has_facts) first++;
  return first;
}

static void compare_facts(Findings *f, const DoctorHosts *d, size_t first, size_t i) {
  for (size_t k = 0; k < sizeof same_facts / sizeof *same_facts; k++) {
    const SameFact *s = &same_facts[k];
    const char *one = (const char *)&d->host[first].facts + s->offset;
    const char *other = (const char *)&d->host[i].facts + s->offset;
    if (strcmp(one, other) == 0) continue;
    findings_add(f, s->level, doctor_name(d, i), s->check, "%s '%s', but '%s' on %s", s->what,
                 other, one, doctor_name(d, first));
    findings_remedy(f, "%s", s->remedy);
  }
}

static void compare_sizes(Findings *f, const DoctorHosts *d) {
  size_t least = find_first(d), most = least, gpus_least = least, gpus_most = least;
  for (size_t i = least; i < d->sessions.count; i++) {
    const MachineFacts *m = &d->host[i].facts;
    if (!d->host[i].has_facts || !d->sessions.list[i].is_member) continue;
    if (m->cores < d->host[least].facts.cores) least = i;
    if (m->cores > d->host[most].facts.cores) most = i;
    if (m->gpus < d->host[gpus_least].facts.gpus) gpus_least = i;
    if (m->gpus > d->host[gpus_most].facts.gpus) gpus_most = i;
  }
  uint64_t few = d->host[least].facts.cores, many = d->host[most].facts.cores;
  if (d->host[gpus_most].facts.gpus != d->host[gpus_least].facts.gpus) {
    findings_add(f, FINDING_WARNING, "", "same size", "%s has %zu GPUs, %s has %zu",
                 doctor_name(d, gpus_most), d->host[gpus_most].facts.gpus,
                 doctor_name(d, gpus_least), d->host[gpus_least].facts.gpus);
    findings_remedy(f,
                    "ranks on GPUs wait for ranks on CPUs: use hosts with the same number of "
                    "GPUs, or give the number of ranks of each, HOST:N");
  } else if (d->host[most].facts.gpus == 0 && many >= UNEVEN_CORES * few) {
    findings_add(f, FINDING_WARNING, "", "same size",
                 "%s has %" PRIu64 " cores, %s has %" PRIu64
                 ": a step takes as long as on the slowest host",
                 doctor_name(d, most), many, doctor_name(d, least), few);
    findings_remedy(f, "give larger hosts more ranks: HOST:N");
  }
}

void doctor_compare_hosts(Findings *f, const DoctorHosts *d, const char *own_sha256) {
  size_t first = find_first(d);
  if (first == d->sessions.count || !has_two(d, false)) return;
  for (size_t i = first; i < d->sessions.count; i++) {
    if (!d->host[i].has_facts) continue;
    compare_program(f, d, i, own_sha256);
    if (i != first) compare_facts(f, d, first, i);
  }
  compare_sizes(f, d);
}
