/* Facts about one machine, as a struct and as JSON, so that machines can be compared. An empty
 * text and the number 0 mean unknown or absent, unless stated otherwise. Depends on base,
 * Jansson. */
#ifndef LAUNCH_FACTS_H
#define LAUNCH_FACTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define FACTS_GPUS      32
#define FACTS_ADDRESSES 64
#define FACTS_UNLIMITED UINT64_MAX /* a resource limit that is not set; -1 in JSON */

typedef struct {
  char name[96];
  uint64_t memory, memory_free; /* total and free GPU memory in bytes */
  char problem[256]; /* why the CUDA plug-in cannot use the GPU; "": it can, or was not tried */
} GpuFacts;

/* One address of a network card; a card with two addresses is listed twice. */
typedef struct {
  char card[16];
  char address[46]; /* IPv4 or IPv6 in the form of inet_ntop; "" if the card has none */
  uint64_t prefix;  /* length of the network prefix in bits */
  uint64_t speed;   /* speed of the card in Mbit/s; 0: not reported */
  bool is_up, is_loopback;
} AddressFacts;

typedef struct {
  char host[65], boot_id[40];
  char system[128]; /* operating system: kernel and architecture */
  char cpu[96];
  uint64_t cores;       /* number of cores that this process may use */
  double core_quota;    /* CPU time that the cgroup allows, in cores; 0: no limit */
  uint64_t memory;      /* bytes of memory of the machine, or the limit of the cgroup */
  uint64_t memory_free; /* bytes of memory that can still be allocated */

  char gpu_driver[64];   /* version of the NVIDIA driver */
  char gpu_cuda[16];     /* newest CUDA version that the driver supports */
  char gpu_problem[256]; /* why the GPUs cannot be listed although a driver is installed */
  bool has_cuda_plugin;
  GpuFacts gpu[FACTS_GPUS];
  size_t gpus;
  AddressFacts address[FACTS_ADDRESSES];
  size_t addresses;
  uint64_t port_first, port_last; /* the kernel's range of local TCP ports, which MPI uses */
  bool has_rdma;

  double clock;         /* system clock in seconds since 1970 */
  bool is_clock_synced; /* synchronized by NTP or PTP, as reported by the kernel */

  /* version, path and SHA-256 of the running program. */
  char version[32], program[1024], sha256[65];
  char mpi[96];          /* library of the MPI plug-in, such as "Open MPI v4.1.4" */
  char mpi_problem[256]; /* why the MPI plug-in cannot be loaded */
  char mpi_sha256[65];   /* SHA-256 of the MPI plug-in */
  char mpirun[96];       /* version of the launcher, such as "mpirun (Open MPI) 4.1.4" */
  char nccl[32], libc[32];

  /* Number of open files allowed; FACTS_UNLIMITED: no limit. */
  uint64_t open_files, open_files_hard;
  uint64_t locked_memory; /* bytes that may be locked; FACTS_UNLIMITED: no limit */
  uint64_t shm, shm_free; /* size and free space of /dev/shm in bytes */
  char tmp[256];          /* directory of temporary files: TMPDIR or /tmp */
  uint64_t tmp_free;      /* its free space in bytes; 0 if this user cannot write there */
} MachineFacts;

/* A directory to which a run will write, and its speed. */
typedef struct {
  char path[1024];
  /* The directory that was measured: `path` or its nearest existing parent. */
  char measured[1024];
  char file_system[32];
  char problem[256]; /* why files cannot be written; "": they can */
  bool exists;
  bool has_locks;      /* flock works; it prevents two runs from using one directory */
  uint64_t free;       /* bytes of free space */
  uint64_t written;    /* bytes written by the measurement */
  double write_rate;   /* bytes/s when writing a large file, including fsync */
  double sync_seconds; /* median time to create, write and fsync a small file */
} DirectoryFacts;

/* Return new JSON objects; NULL: out of memory. */
json_t *facts_to_json(const MachineFacts *facts);
json_t *facts_directory_to_json(const DirectoryFacts *facts);
/* Parse facts that another machine has sent, which are not trusted. Missing members become 0; a
 * wrong type, a text that is too long and a negative number are errors, which begin with
 * `where`. */
NODISCARD Err facts_from_json(MachineFacts *facts, const json_t *json, const char *where);
NODISCARD Err facts_directory_from_json(DirectoryFacts *facts, const json_t *json,
                                        const char *where);

#endif
