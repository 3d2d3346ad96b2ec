/* Reads the facts of this machine (facts.h) and measures directories. Works without GPU, MPI or
 * network: missing components are recorded and are not an error. Depends on facts.h, base. */
#ifndef LAUNCH_PROBE_H
#define LAUNCH_PROBE_H

#include "launch/facts.h"

/* Fills in the facts. Blocks for well under a second. Loads and unloads the MPI library and
 * NVML. */
void probe_machine(MachineFacts *facts);
/* Opens each GPU with the CUDA plug-in and records why one cannot be used. Takes seconds and
 * GPU memory, and the plug-in stays loaded, so call it only in a process that ends soon. */
void probe_try_gpus(MachineFacts *facts);

/* Measures a directory: writes `bytes` bytes, or for at most `seconds`, to a new file in `path`
 * or its nearest existing parent, syncs it and removes it. Does not create the directory. */
void probe_directory(DirectoryFacts *facts, const char *path, uint64_t bytes, double seconds);

/* Returns seconds since 1970. TRIREME_FAULT=clock-ahead:N adds N, for tests. */
double probe_clock(void);

/* Computes the SHA-256 of a file in hexadecimal; "" if it cannot be read. */
void probe_hash_file(const char *path, char hex[65]);

/* Parts of probe_machine. `root` is prepended to every path: "" for the running system, a
 * directory in tests. */
void probe_cpu_name(const char *root, char *name, size_t size);
double probe_core_quota(
    const char *root); /* returns MachineFacts.core_quota; supports cgroups v1 and v2 */
void probe_gpus(MachineFacts *facts);
void probe_addresses(MachineFacts *facts);
void probe_mpi(MachineFacts *facts);

#endif
