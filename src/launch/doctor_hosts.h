/* Checks of several hosts. Each step asks all hosts in parallel and adds findings. A host that
 * is lost is left out of the later steps. Depends on doctor.h, doctor_session, network. */
#ifndef LAUNCH_DOCTOR_HOSTS_H
#define LAUNCH_DOCTOR_HOSTS_H

#include "launch/doctor.h"
#include "launch/doctor_session.h"
#include "launch/link.h"
#include "launch/network.h"

#define DOCTOR_PORTS 3 /* number of ports that are tested on each host */

/* What the doctor knows about one host. */
typedef struct {
  bool has_facts;
  MachineFacts facts;
  NetworkList networks;
  bool has_clock;
  /* Seconds that its clock is ahead of this machine's, and the uncertainty. */
  double clock_offset, clock_error;
  char address[NETWORK_TEXT_MAX]; /* address on the selected network; "": none */
  char card[NETWORK_CARD_MAX];
  uint16_t port[DOCTOR_PORTS]; /* ports on which its agent listens */
} HostFacts;

/* The network link between hosts a < b. */
typedef struct {
  size_t a, b;
  bool was_measured;
  char why[LINK_WHY];      /* reason of a failure; "" if it was measured */
  double latency;          /* one-way latency in seconds */
  double rate_ab, rate_ba; /* bandwidth in bytes/s, from a to b and from b to a */
} PairFacts;

typedef struct {
  Sessions sessions;
  HostFacts *host;             /* facts of each host, in the order of the sessions */
  char cidr[NETWORK_TEXT_MAX]; /* the selected network; "": none */
  int speed;                   /* speed of the slowest card on it, in Mbit/s; 0: unknown */
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
  const char *network; /* value of --network, a CIDR or a card; NULL: select automatically */
} DoctorHostsSpec;

/* Runs all checks. Call doctor_hosts_free also after an error. */
NODISCARD Err doctor_check_hosts(DoctorHosts *d, const DoctorHostsSpec *spec);
void doctor_hosts_free(DoctorHosts *d);

/* Steps of doctor_check_hosts, in this order: */

/* Measure the clocks of all hosts, and compare them (doctor_compare.c). */
void doctor_measure_clocks(DoctorHosts *d);
void doctor_judge_clocks(Findings *f, const DoctorHosts *d);
/* Compares program, libraries and GPUs of the hosts; own_sha256 is the hash of the program on
 * this machine. */
void doctor_compare_hosts(Findings *f, const DoctorHosts *d, const char *own_sha256);
/* Selects the network and tests the ports (doctor_network.c). */
NODISCARD Err doctor_check_network(DoctorHosts *d, const char *wish);
/* Measure latency and bandwidth of every pair of hosts, and judge them (doctor_pairs.c). */
NODISCARD Err doctor_measure_pairs(DoctorHosts *d);
void doctor_judge_pairs(DoctorHosts *d);
/* Check that all hosts see the data set and the directory of the run (doctor_shared.c). */
void doctor_check_data(DoctorHosts *d, const char *data);
void doctor_check_shared(DoctorHosts *d, const char *run);

/* Returns the name of host i for findings. */
static inline const char *doctor_name(const DoctorHosts *d, size_t i) {
  return d->sessions.list[i].host.name;
}

/* Returns true if host i is part of the run and can still be reached. */
static inline bool doctor_is_member(const DoctorHosts *d, size_t i) {
  return d->sessions.list[i].is_member && d->sessions.list[i].is_ready;
}

#endif
