/* Facts about one machine, as one struct and as JSON, so that they can be compared between
 * machines. A text that is "" and a number that is 0 are unknown or absent, unless stated otherwise.
 * Depends on base, Jansson. */
#ifndef LAUNCH_FACTS_H
#define LAUNCH_FACTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define FACTS_GPUS      32
#define FACTS_ADDRESSES 64
#define FACTS_UNLIMITED UINT64_MAX /* of a resource limit; -1 in JSON */

typedef struct {
  char name[96];
  uint64_t memory, memory_free; /* bytes */
  char problem[256]; /* why the CUDA plug-in cannot use it; "": it can, or was not asked */
} GpuFacts;

/* One address of a network card; a card with two addresses is listed twice. */
typedef struct {
  char card[16];
  char address[46]; /* IPv4 or IPv6, as inet_ntop writes it; "" if the card has none */
  uint64_t prefix;  /* bits of the network */
  uint64_t speed;   /* Mbit/s; 0: not reported */
  bool is_up, is_loopback;
} AddressFacts;

typedef struct {
  char host[65], boot_id[40];
  char system[128]; /* kernel and architecture */
  char cpu[96];
  uint64_t cores;       /* that this process may use */
  double core_quota;    /* CPU time that the cgroup allows, in cores; 0: no limit */
  uint64_t memory;      /* bytes: of the machine, or the limit of the cgroup */
  uint64_t memory_free; /* bytes that can still be allocated */

  char gpu_driver[64];   /* version */
  char gpu_cuda[16];     /* newest CUDA that the driver supports */
  char gpu_problem[256]; /* why the GPUs cannot be listed although there is a driver */
  bool has_cuda_plugin;
  GpuFacts gpu[FACTS_GPUS];
  size_t gpus;
  AddressFacts address[FACTS_ADDRESSES];
  size_t addresses;
  uint64_t port_first, port_last; /* the kernel's range of local TCP ports, which MPI uses */
  bool has_rdma;

  double clock;         /* seconds since 1970 */
  bool is_clock_synced; /* by NTP or PTP, as the kernel reports */

  char version[32], program[1024], sha256[65]; /* of the running program */
  char mpi[96];          /* library of the MPI plug-in: "Open MPI v4.1.4" */
  char mpi_problem[256]; /* why the plug-in cannot be loaded */
  char mpi_sha256[65];   /* of the plug-in */
  char mpirun[96];       /* of the launcher: "mpirun (Open MPI) 4.1.4" */
  char nccl[32], libc[32];

  uint64_t open_files, open_files_hard; /* limits; FACTS_UNLIMITED where there is none */
  uint64_t locked_memory;               /* bytes; the same */
  uint64_t shm, shm_free;               /* bytes of /dev/shm */
} MachineFacts;

/* A directory that a run will write to, and how fast it is. */
typedef struct {
  char path[1024];
  char measured[1024]; /* where it was measured: `path`, or its nearest parent that exists */
  char file_system[32];
  char problem[256]; /* why files cannot be written; "": they can */
  bool exists;
  bool has_locks;      /* flock works, which keeps two runs out of one directory */
  uint64_t free;       /* bytes */
  uint64_t written;    /* bytes of the measurement */
  double write_rate;   /* bytes/s of a large file, fsync included */
  double sync_seconds; /* of a small file: create, write, fsync; the median */
} DirectoryFacts;

/* New JSON objects; NULL: out of memory. */
json_t *facts_to_json(const MachineFacts *facts);
json_t *facts_directory_to_json(const DirectoryFacts *facts);
/* Read what another machine sent: untrusted. Members that are missing leave zeros; a wrong type, a
 * text that is too long and a negative number are errors, which begin with `where`. */
NODISCARD Err facts_from_json(MachineFacts *facts, const json_t *json, const char *where);
NODISCARD Err facts_directory_from_json(DirectoryFacts *facts, const json_t *json,
                                        const char *where);

#endif
