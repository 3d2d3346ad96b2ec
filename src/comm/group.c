/* Reads the identity of a rank (host, pid, cores); computes from those of all ranks which of them
 * share a host or cores. Depends on base. */
#include "comm/group.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/thread.h"

/* Returns a hash of the kernel's boot_id; 0 if the kernel has none. */
static uint64_t identify_machine(void) {
  Str id = {0};
  bool known = file_read("/proc/sys/kernel/random/boot_id", 256, &id) == ERR_OK;
  uint64_t hash = known ? rng_hash(str_text(&id), id.len, 0) : 0;
  str_free(&id);
  return hash;
}

void identity_read(Identity *self) {
  struct stat space;
  /* Overrides the host name; tests simulate several hosts with it. */
  const char *name = getenv("TRIREME_HOST");
  gethostname(self->host, HOST_MAX - 1);
  if (name && *name) snprintf(self->host, HOST_MAX, "%s", name);
  self->machine = identify_machine();
  self->pid = (int32_t)getpid();
  self->pid_space = stat("/proc/self/ns/pid", &space) == 0 ? (uint64_t)space.st_ino : 0;
  self->cores = thread_cores();
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  self->core_set = rng_hash(&set, sizeof set, 0);
}

bool group_is_same_host(const Group *g, int a, int b) {
  const Identity *x = &g->identity[a], *y = &g->identity[b];
  return x->machine == y->machine && strcmp(x->host, y->host) == 0;
}

int group_count_core_sharers(const Group *g) {
  int sharers = 0;
  for (int r = 0; r < g->size; r++)
    sharers += group_is_same_host(g, r, g->rank) &&
               g->identity[r].core_set == g->identity[g->rank].core_set;
  return sharers;
}

bool group_is_first_of_host(const Group *g, int rank) {
  for (int r = 0; r < rank; r++)
    if (group_is_same_host(g, r, rank)) return false;
  return true;
}

void group_count(Group *g) {
  g->hosts = 0;
  g->local_rank = 0;
  g->local_size = 0;
  for (int r = 0; r < g->size; r++) {
    bool here = group_is_same_host(g, r, g->rank);
    g->hosts += group_is_first_of_host(g, r);
    g->local_size += here;
    g->local_rank += here && r < g->rank;
  }
  g->is_oversubscribed = group_count_core_sharers(g) > thread_cores();
}

const char *group_host(const Group *g, int r) {
  return g->identity[r].host[0] ? g->identity[r].host : "an unknown host";
}

int group_pid(const Group *g, int r) {
  const Identity *self = &g->identity[g->rank], *other = &g->identity[r];
  bool is_comparable = other->pid > 0 && other->pid_space &&
                       other->pid_space == self->pid_space && group_is_same_host(g, r, g->rank);
  return is_comparable ? other->pid : 0;
}

bool group_is_dead(const Group *g, int r) {
  int pid = group_pid(g, r);
  return pid && kill(pid, 0) != 0 && errno == ESRCH;
}
