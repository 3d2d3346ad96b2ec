/* Lists cores and counts GPUs. Depends on Linux (/sys, /dev). */
#include "launch/cores.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int socket, core, cpu;
} Place;

static int read_topology(int cpu, const char *name) {
  char path[128];
  int value = 0;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
  FILE *f = fopen(path, "re");
  if (!f) return 0;
  if (fscanf(f, "%d", &value) != 1) value = 0;
  fclose(f);
  return value;
}

static int compare_places(const void *a, const void *b) {
  const Place *x = a, *y = b;
  if (x->socket != y->socket) return x->socket < y->socket ? -1 : 1;
  if (x->core != y->core) return x->core < y->core ? -1 : 1;
  return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

int cores_list(int cpu[CORES_MAX]) {
  static Place place[CORES_MAX];
  cpu_set_t set;
  int count = 0;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
  for (int i = 0; i < CORES_MAX; i++) {
    if (!CPU_ISSET((size_t)i, &set)) continue;
    place[count++] =
        (Place){read_topology(i, "physical_package_id"), read_topology(i, "core_id"), i};
  }
  qsort(place, (size_t)count, sizeof *place, compare_places);
  for (int i = 0; i < count; i++) cpu[i] = place[i].cpu;
  return count;
}

bool cores_divide(const int *cpu, int cpus, int local_rank, int ranks, cpu_set_t *share) {
  if (ranks > cpus || local_rank < 0 || local_rank >= ranks) return false;
  int first = (int)((long)cpus * local_rank / ranks);
  int end = (int)((long)cpus * (local_rank + 1) / ranks);
  CPU_ZERO(share);
  for (int i = first; i < end; i++) CPU_SET((size_t)cpu[i], share);
  return true;
}

bool cores_share(int local_rank, int ranks, cpu_set_t *share) {
  int cpu[CORES_MAX];
  int cpus = cores_list(cpu);
  return cores_divide(cpu, cpus, local_rank, ranks, share);
}

/* Counts the entries of CUDA_VISIBLE_DEVICES: "0,1" has two, "" and "-1" none. CUDA ignores the
 * entries after an invalid one. */
static int count_visible(const char *list) {
  int count = 0;
  for (const char *at = list; *at && *at != '-'; count++) {
    at += strcspn(at, ",");
    if (*at == ',') at++;
  }
  return count;
}

static bool is_gpu_file(const char *name) {
  if (strncmp(name, "nvidia", 6) != 0 || !name[6]) return false;
  for (const char *at = name + 6; *at; at++)
    if (!isdigit((unsigned char)*at)) return false;
  return true;
}

int cores_count_gpus(void) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible) return count_visible(visible);
  int count = 0;
  DIR *dir = opendir("/dev");
  if (!dir) return 0;
  for (struct dirent *entry; (entry = readdir(dir));) count += is_gpu_file(entry->d_name);
  closedir(dir);
  return count;
}
