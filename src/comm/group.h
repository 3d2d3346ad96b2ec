/* The ranks of a run: how many, on which hosts, with which cores. Filled in once at the start and
 * constant afterwards. Depends on transport, base. */
#ifndef COMM_GROUP_H
#define COMM_GROUP_H

#include <stdint.h>

#include "comm/transport.h"

#define HOST_MAX 64

/* What the ranks learn about each other when they join. */
typedef struct {
  char host[HOST_MAX];
  uint64_t
      machine; /* hash of the kernel's boot_id: two machines may have one name; 0: unknown */
  uint64_t
      pid_space; /* inode of the pid namespace, within which pids can be compared; 0: unknown */
  uint64_t core_set; /* hash of the cores it may use */
  int32_t pid, cores;
} Identity;

typedef struct {
  int rank, size;
  int local_rank, local_size; /* among the ranks of this host */
  int hosts;
  bool is_oversubscribed;     /* more ranks on this rank's cores than there are cores */
  const Transport *transport; /* NULL: one rank */
  TransportInfo info;
  Identity *identity; /* (size); a host is "" until the ranks have met */
} Group;

void identity_read(Identity *self);
/* Computes hosts, local_rank, local_size and is_oversubscribed from the identities. */
void group_count(Group *g);

/* Host of a rank, to be printed. */
const char *group_host(const Group *g, int r);
/* Are two ranks on one machine, and in containers of the same name if in any? */
bool group_is_same_host(const Group *g, int a, int b);
/* Ranks of this host that may use exactly the cores of this one, itself included. */
int group_count_core_sharers(const Group *g);
/* Has the process of rank r ended? Known for ranks in the pid namespace of this one only. */
bool group_is_dead(const Group *g, int r);

#endif
