/* Functions for the head's record of a machine. Depends on protocol. */
#include "launch/machine.h"

#include <stdio.h>
#include <string.h>

#include "launch/cores.h"
#include "launch/protocol.h"

Err machine_read_hello(Machine *m, const json_t *body) {
  const char *version = protocol_text(body, "version");
  if (strcmp(version, TRIREME_VERSION) != 0)
    return err_set(ERR_WORK,
                   "%s runs trireme %s, this machine %s; install the same version everywhere",
                   m->name, version, TRIREME_VERSION);
  snprintf(m->directory, sizeof m->directory, "%s", protocol_text(body, "directory"));
  m->cores = (int)protocol_between(body, "cores", 1, CORES_MAX, -1);
  m->gpus = (int)protocol_between(body, "gpus", 0, MACHINE_RANKS_MAX, -1);
  if (m->cores < 0 || m->gpus < 0)
    return err_set(ERR_WORK,
                   "%s reports an impossible number of cores or GPUs (at most %d and %d); "
                   "install the same version of trireme everywhere",
                   m->name, CORES_MAX, MACHINE_RANKS_MAX);
  TRY(network_from_json(&m->networks, json_object_get(body, "networks"), m->name));
  m->has_hello = true;
  return ERR_OK;
}

Err machine_count_ranks(const Machine *m, int nproc, int *ranks) {
  if (nproc == NPROC_GPU && m->gpus == 0 && !m->slots)
    return err_set(
        ERR_WORK,
        "--nproc-per-node gpu: %s has no GPU that CUDA may use; check nvidia-smi and "
        "CUDA_VISIBLE_DEVICES there, or pass a number",
        m->name);
  *ranks = m->slots             ? m->slots
           : nproc > 0          ? nproc
           : nproc == NPROC_CPU ? m->cores
           : m->gpus > 0        ? m->gpus
                                : 1;
  if (m->max_slots && *ranks > m->max_slots) *ranks = m->max_slots;
  return ERR_OK;
}

bool machine_is_ready(const Machine *m) {
  return m->has_hello && !m->is_leaving && !m->is_set_aside;
}

void machine_close(Machine *m) {
  channel_close(m->channel);
  m->channel = NULL;
}
