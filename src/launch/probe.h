/* Reads the facts of this machine (facts.h) and measures directories. Works without GPU, MPI and
 * network: what is missing is recorded as such and is no error. Depends on facts.h, base. */
#ifndef LAUNCH_PROBE_H
#define LAUNCH_PROBE_H

#include "launch/facts.h"

/* Fills in the facts. Blocks for well under a second; the MPI library and NVML are loaded and
 * unloaded again. */
void probe_machine(MachineFacts *facts);
/* Opens each GPU with the CUDA plug-in and records why one cannot be used. Takes seconds and
 * memory on the GPU, and the plug-in stays loaded: for a process that ends soon. */
void probe_try_gpus(MachineFacts *facts);

/* Writes `bytes` (or for at most `seconds`) into a new file in `path`, or in its nearest parent
 * that exists, syncs it and removes it. The directory itself is not created. */
void probe_directory(DirectoryFacts *facts, const char *path, uint64_t bytes, double seconds);

/* Seconds since 1970. TRIREME_FAULT=clock-ahead:N adds N, for tests. */
double probe_clock(void);

/* SHA-256 of a file in hexadecimal; "" if it cannot be read. */
void probe_hash_file(const char *path, char hex[65]);

/* Parts of probe_machine. `root` is put before every path that is read: "" for the running system,
 * a directory in tests. */
void probe_cpu_name(const char *root, char *name, size_t size);
double probe_core_quota(
    const char *root); /* as MachineFacts.core_quota, of v1 and v2 cgroups */
void probe_gpus(MachineFacts *facts);
void probe_addresses(MachineFacts *facts);
void probe_mpi(MachineFacts *facts);

#endif
