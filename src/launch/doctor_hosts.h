/* Checks of several hosts. Each step asks all hosts at the same time and adds findings; a host that
 * is lost on the way is left out of the later steps. Depends on doctor.h, doctor_session, network. */
#ifndef LAUNCH_DOCTOR_HOSTS_H
#define LAUNCH_DOCTOR_HOSTS_H

#include "launch/doctor.h"
#include "launch/doctor_session.h"
#include "launch/link.h"
#include "launch/network.h"

#define DOCTOR_PORTS 3 /* that are tried on each host */

/* What is known about one host. */
typedef struct {
  bool has_facts;
  MachineFacts facts;
  NetworkList networks;
  bool has_clock;
  double clock_offset, clock_error; /* seconds ahead of this machine, give or take */
  char address[NETWORK_TEXT_MAX];   /* in the network that was chosen; "": none */
  char card[NETWORK_CARD_MAX];
  uint16_t port[DOCTOR_PORTS]; /* on which its agent listens */
} HostFacts;

/* The link between hosts a < b. */
typedef struct {
  size_t a, b;
  bool was_measured;
  char why[LINK_WHY];      /* what failed */
  double latency;          /* seconds, one way */
  double rate_ab, rate_ba; /* bytes/s */
} PairFacts;

typedef struct {
  Sessions sessions;
  HostFacts *host;             /* for each session */
  char cidr[NETWORK_TEXT_MAX]; /* the network that was chosen; "": none */
  int speed;                   /* of its slowest card, Mbit/s; 0: unknown */
  char token[2 * LINK_TOKEN + 1];
  PairFacts *pair;
  size_t pairs;
  DirectoryFacts directory;
  AllreduceFacts allreduce;
  RunNeeds needs;
  Findings findings;
} DoctorHosts;

typedef struct {
  DoctorSpec plan;
  const HostList *hosts;
  SshOptions ssh;
  const char *network; /* --network: a CIDR or a card; NULL: chosen */
} DoctorHostsSpec;

/* All checks. doctor_hosts_free also after an error. */
NODISCARD Err doctor_check_hosts(DoctorHosts *d, const DoctorHostsSpec *spec);
void doctor_hosts_free(DoctorHosts *d);

/* ---- steps, in this order ---- */

/* Clocks and facts of every host (doctor_compare.c). */
void doctor_measure_clocks(DoctorHosts *d);
void doctor_judge_clocks(Findings *f, const DoctorHosts *d);
/* Same program, libraries and GPUs; `own` is the program that runs here. */
void doctor_compare_hosts(Findings *f, const DoctorHosts *d, const char *own_sha256);
/* Chooses the network and tries the ports (doctor_network.c). */
NODISCARD Err doctor_check_network(DoctorHosts *d, const char *wish);
/* Latency and bandwidth of every pair (doctor_pairs.c). */
NODISCARD Err doctor_measure_pairs(DoctorHosts *d);
void doctor_judge_pairs(DoctorHosts *d);
/* The data set and the directory of the run, seen from every host (doctor_shared.c). */
void doctor_check_data(DoctorHosts *d, const char *data);
void doctor_check_shared(DoctorHosts *d, const char *run);

/* The name of host i for findings. */
static inline const char *doctor_name(const DoctorHosts *d, size_t i) {
  return d->sessions.list[i].host.name;
}

/* Is host i part of the run, and does it still answer? */
static inline bool doctor_is_member(const DoctorHosts *d, size_t i) {
  return d->sessions.list[i].is_member && d->sessions.list[i].is_ready;
}

#endif
