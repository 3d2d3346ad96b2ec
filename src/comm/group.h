/* The ranks of a run: how many, on which hosts, with which cores. Filled in once at the start and
 * constant afterwards. Depends on transport, base. */
#ifndef COMM_GROUP_H
#define COMM_GROUP_H

#include <stdint.h>

#include "comm/transport.h"

#define HOST_MAX 64

/* What each rank sends to all others when they join. */
typedef struct {
  char host[HOST_MAX];
  /* Hash of the kernel's boot_id, because two machines may have the same name; 0: unknown. */
  uint64_t machine;
  /* Inode of the pid namespace; pids are comparable only within one namespace; 0: unknown. */
  uint64_t pid_space;
  uint64_t core_set; /* hash of the CPU affinity mask */
  int32_t pid, cores;
} Identity;

typedef struct {
  int rank, size;
  /* Number of this rank among the ranks on this host, and how many those are. */
  int local_rank, local_size;
  int hosts;
  bool is_oversubscribed;     /* this rank's cores are fewer than the ranks that run on them */
  const Transport *transport; /* functions of the MPI plug-in; NULL if there is one rank */
  TransportInfo info;
  Identity *identity; /* (size); the host names are empty until the ranks have exchanged them */
} Group;

void identity_read(Identity *self);
/* Computes hosts, local_rank, local_size and is_oversubscribed from the identities. */
void group_count(Group *g);

/* Returns the host name of rank r, or "an unknown host". */
const char *group_host(const Group *g, int r);
/* Returns true if boot_id and host name of two ranks are equal. Containers on one machine
 * count as different hosts if they have different host names. */
bool group_is_same_host(const Group *g, int a, int b);
/* Returns true if no lower rank is on the host of rank r. */
bool group_is_first_of_host(const Group *g, int r);
/* Returns the process id of rank r, or 0 if it cannot be used here: r is on another host or in
 * another pid namespace. */
int group_pid(const Group *g, int r);
/* Counts the ranks on this host that have the same CPU affinity mask as this rank, including
 * this rank. */
int group_count_core_sharers(const Group *g);
/* Returns true if the process of rank r has ended. Detects that only if r is in the same pid
 * namespace. */
bool group_is_dead(const Group *g, int r);

#endif
