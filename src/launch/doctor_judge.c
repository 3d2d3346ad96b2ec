/* Rules that convert facts about one machine to findings. Each rule is a function that adds one
 * finding, with a remedy unless its level is OK. Depends on doctor.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "launch/doctor.h"

#define MIN_OPEN_FILES 1024
#define MIN_TMP        ((uint64_t)1 << 20) /* smallest sufficient free space of /tmp in bytes */
/* Smallest sufficient /dev/shm in bytes; the default of Docker may be too small for the
 * ranks. */
#define MIN_SHM ((uint64_t)64 << 20)
/* Time in seconds above which writing a checkpoint counts as slow. */
#define SLOW_CHECKPOINT 60.0
#define SLOW_SYNC       0.5 /* time in seconds above which an fsync counts as slow */
/* Warn if the free space is less than this multiple of what a run writes. */
#define TIGHT_DISK_FACTOR 2

static void judge_cores(Findings *f, const char *host, const MachineFacts *m) {
  const char *cpu = m->cpu[0] ? m->cpu : "unknown processor";
  const char *plural = m->cores == 1 ? "" : "s";
  if (m->core_quota > 0 && m->core_quota < (double)m->cores - 0.01) {
    findings_add(f, FINDING_WARNING, host, "cores",
                 "%" PRIu64
                 " core%s (%s), but the cgroup allows CPU time for %.1f only: threads "
                 "are paused several times a second",
                 m->cores, plural, cpu, m->core_quota);
    findings_remedy(f,
                    "raise the limit (docker --cpus, Kubernetes limits.cpu, Slurm "
                    "--cpus-per-task), or pass --threads %.0f to train",
                    m->core_quota >= 1 ? m->core_quota : 1.0);
  } else {
    findings_add(f, FINDING_OK, host, "cores", "%" PRIu64 " core%s, %s", m->cores, plural, cpu);
  }
}

static void judge_memory(Findings *f, const char *host, const MachineFacts *m,
                         const RunNeeds *n) {
  char free[32], all[32], need[32];
  str_of_bytes(free, m->memory_free);
  str_of_bytes(all, m->memory);
  str_of_bytes(need, n->memory);
  if (m->memory_free < n->memory) {
    findings_add(
        f, FINDING_PROBLEM, host, "memory",
        "%s of %s free; a rank needs %s for weights, gradient, optimizer state and the "
        "checkpoint that is being saved, of %s, before activations",
        free, all, need, n->about);
    findings_remedy(f,
                    "free memory, raise the container's memory limit, or train a smaller "
                    "--preset");
  } else {
    findings_add(f, FINDING_OK, host, "memory",
                 "%s of %s free; a rank needs %s and activations", free, all, need);
  }
}

static const GpuFacts *find_bad_gpu(const MachineFacts *m) {
  for (size_t i = 0; i < m->gpus; i++)
    if (m->gpu[i].problem[0]) return &m->gpu[i];
  return NULL;
}

/* Returns the GPU with the least free memory. */
static const GpuFacts *find_fullest_gpu(const MachineFacts *m) {
  const GpuFacts *least = &m->gpu[0];
  for (size_t i = 1; i < m->gpus; i++)
    if (m->gpu[i].memory_free < least->memory_free) least = &m->gpu[i];
  return least;
}

static void judge_gpu_memory(Findings *f, const char *host, const MachineFacts *m,
                             const RunNeeds *n) {
  const GpuFacts *g = find_fullest_gpu(m);
  char free[32], all[32], need[32];
  str_of_bytes(free, g->memory_free);
  str_of_bytes(all, g->memory);
  str_of_bytes(need, n->memory_gpu);
  int index = (int)(g - m->gpu);
  if (g->memory_free < n->memory_gpu) {
    findings_add(f, FINDING_PROBLEM, host, "GPUs",
                 "%zu, but GPU %d has only %s of %s free; %s needs %s before activations",
                 m->gpus, index, free, all, n->about, need);
    findings_remedy(f,
                    "end the programs that use it ('nvidia-smi' lists them), or train a "
                    "smaller --preset");
  } else if (g->memory_free < g->memory - g->memory / 10) {
    findings_add(f, FINDING_WARNING, host, "GPUs",
                 "%zu, but GPU %d has only %s of %s free: another program uses it", m->gpus,
                 index, free, all);
    findings_remedy(f, "'nvidia-smi' lists the programs; end them for full speed and memory");
  } else {
    findings_add(f, FINDING_OK, host, "GPUs", "%zu x %s with %s, driver %s, CUDA %s", m->gpus,
                 m->gpu[0].name, all, m->gpu_driver, m->gpu_cuda);
  }
}

static void judge_gpus(Findings *f, const char *host, const MachineFacts *m,
                       const RunNeeds *n) {
  const GpuFacts *bad = find_bad_gpu(m);
  if (m->gpu_problem[0]) {
    findings_add(f, FINDING_PROBLEM, host, "GPUs", "the driver does not work: %s",
                 m->gpu_problem);
    findings_remedy(f,
                    "reboot if the driver was updated, else install it again; in a container "
                    "start it with --gpus all");
  } else if (m->gpus == 0) {
    findings_add(f, FINDING_OK, host, "GPUs", "none: training uses the CPU");
  } else if (!m->has_cuda_plugin) {
    findings_add(f, FINDING_WARNING, host, "GPUs",
                 "%zu x %s, but libtrireme-cuda.so is not installed: training uses the CPU",
                 m->gpus, m->gpu[0].name);
    findings_remedy(f,
                    "build trireme where nvcc is installed, or set TRIREME_PLUGIN_PATH to the "
                    "directory of the plug-in");
  } else if (bad) {
    findings_add(f, FINDING_PROBLEM, host, "GPUs", "GPU %d of %zu cannot be used: %s",
                 (int)(bad - m->gpu), m->gpus, bad->problem);
    findings_remedy(f, "look at 'nvidia-smi' and the kernel log ('dmesg | grep -i nvrm')");
  } else {
    judge_gpu_memory(f, host, m, n);
  }
}

static void judge_nccl(Findings *f, const char *host, const MachineFacts *m) {
  if (m->gpus == 0 || !m->has_cuda_plugin) return;
  if (m->nccl[0]) {
    findings_add(f, FINDING_OK, host, "NCCL", "%s", m->nccl);
    return;
  }
  findings_add(
      f, FINDING_WARNING, host, "NCCL",
      "libnccl.so.2 is not installed: gradients go through host memory, which is slower");
  findings_remedy(f, "install libnccl2 (Debian, Ubuntu: NVIDIA's package repository)");
}

static void judge_limits(Findings *f, const char *host, const MachineFacts *m) {
  char size[32];
  if (m->open_files < MIN_OPEN_FILES) {
    findings_add(f, FINDING_PROBLEM, host, "open files",
                 "a process may open %" PRIu64
                 " files; MPI needs a few for each rank, and "
                 "training one for each shard in use",
                 m->open_files);
    findings_remedy(f, "'ulimit -n 4096', for good in /etc/security/limits.conf (nofile)");
  } else {
    findings_add(f, FINDING_OK, host, "open files", "limit %s",
                 m->open_files == FACTS_UNLIMITED ? "none" : str_of_count(size, m->open_files));
  }
  if (m->has_rdma && m->locked_memory != FACTS_UNLIMITED) {
    findings_add(
        f, FINDING_WARNING, host, "locked memory",
        "limit %s, but there is an RDMA card (InfiniBand, RoCE), whose buffers must be "
        "locked",
        str_of_bytes(size, m->locked_memory));
    findings_remedy(f,
                    "'ulimit -l unlimited', for good in /etc/security/limits.conf (memlock); "
                    "docker: --ulimit memlock=-1");
  } else {
    findings_add(
        f, FINDING_OK, host, "locked memory", "limit %s%s",
        m->locked_memory == FACTS_UNLIMITED ? "none" : str_of_bytes(size, m->locked_memory),
        m->has_rdma ? "" : "; no RDMA card that needs more");
  }
}

static void judge_shm(Findings *f, const char *host, const MachineFacts *m) {
  char size[32], free[32];
  str_of_bytes(size, m->shm);
  if (m->shm_free <= MIN_SHM) {
    findings_add(f, FINDING_WARNING, host, "/dev/shm",
                 "%s free of %s; MPI and NCCL exchange messages between the ranks of a machine "
                 "there",
                 str_of_bytes(free, m->shm_free), size);
    findings_remedy(f,
                    "start the container with --shm-size 1g or --ipc host; else remount it: "
                    "'mount -o remount,size=1g /dev/shm'");
  } else {
    findings_add(f, FINDING_OK, host, "/dev/shm", "%s free of %s",
                 str_of_bytes(free, m->shm_free), size);
  }
}

static void judge_tmp(Findings *f, const char *host, const MachineFacts *m) {
  char free[32];
  if (m->tmp_free >= MIN_TMP) {
    findings_add(f, FINDING_OK, host, "/tmp", "%s free in %s", str_of_bytes(free, m->tmp_free),
                 m->tmp);
    return;
  }
  findings_add(f, FINDING_PROBLEM, host, "/tmp",
               "%s free in %s, or it is not writable; Open MPI and launch keep files there",
               str_of_bytes(free, m->tmp_free), m->tmp);
  findings_remedy(f, "free space there, or set TMPDIR to another directory");
}

/* Appends a list such as "eth0 10.0.0.5/24 1000 Mbit/s, wlan0 (down)". */
static void list_addresses(const MachineFacts *m, Str *out) {
  for (size_t i = 0; i < m->addresses; i++) {
    const AddressFacts *a = &m->address[i];
    if (a->is_loopback) continue;
    str_addf(out, "%s%s", out->len ? ", " : "", a->card);
    if (a->address[0]) str_addf(out, " %s/%" PRIu64, a->address, a->prefix);
    if (a->speed) str_addf(out, " %" PRIu64 " Mbit/s", a->speed);
    if (!a->is_up) str_add(out, " (down)");
  }
}

static void judge_network(Findings *f, const char *host, const MachineFacts *m) {
  Str list = {0};
  list_addresses(m, &list);
  findings_add(f, FINDING_OK, host, "network", "%s", list.len ? str_text(&list) : "no card");
  str_free(&list);
}

static void judge_clock(Findings *f, const char *host, const MachineFacts *m) {
  findings_add(f, FINDING_OK, host, "clock", "%s",
               m->is_clock_synced ? "synchronized (NTP or PTP)"
                                  : "not synchronized, as far as the kernel knows (NTP, PTP)");
}

/* Returns true if texts such as "Open MPI v4.1.4" and "mpirun (Open MPI) 4.1.4" contain the
 * same version. */
static bool is_same_version(const char *library, const char *launcher) {
  const char *a = strpbrk(library, "0123456789"), *b = strpbrk(launcher, "0123456789");
  if (!a || !b) return true; /* a version that is unknown is not reported */
  size_t n = strspn(a, "0123456789."), k = strspn(b, "0123456789.");
  return n == k && memcmp(a, b, n) == 0;
}

static void judge_mpi(Findings *f, const char *host, const MachineFacts *m) {
  if (m->mpi_problem[0]) {
    findings_add(f, FINDING_PROBLEM, host, "MPI", "%s", m->mpi_problem);
    findings_remedy(f,
                    "install openmpi-bin and libopenmpi-dev and build trireme again, or set "
                    "TRIREME_PLUGIN_PATH to the directory of libtrireme-mpi.so; one process "
                    "trains without it");
  } else if (!m->mpirun[0]) {
    findings_add(f, FINDING_PROBLEM, host, "MPI", "%s, but mpirun is not in PATH", m->mpi);
    findings_remedy(f, "install openmpi-bin, or add its directory to PATH");
  } else if (strstr(m->mpi, "Open MPI") && !is_same_version(m->mpi, m->mpirun)) {
    findings_add(f, FINDING_PROBLEM, host, "MPI",
                 "the plug-in uses %s, but mpirun is '%s': its ranks would not find each other",
                 m->mpi, m->mpirun);
    findings_remedy(
        f, "put the mpirun of %s first in PATH, or build trireme with the other MPI", m->mpi);
  } else {
    findings_add(f, FINDING_OK, host, "MPI", "%s", m->mpi);
  }
}

void doctor_judge_machine(Findings *f, const char *host, const MachineFacts *m,
                          const RunNeeds *n) {
  findings_add(f, FINDING_OK, host, "program", "trireme %s, SHA-256 %.16s", m->version,
               m->sha256);
  findings_add(f, FINDING_OK, host, "system", "%s, %s", m->system, m->libc);
  judge_cores(f, host, m);
  judge_memory(f, host, m, n);
  judge_gpus(f, host, m, n);
  judge_nccl(f, host, m);
  judge_limits(f, host, m);
  judge_shm(f, host, m);
  judge_tmp(f, host, m);
  judge_network(f, host, m);
  judge_clock(f, host, m);
  judge_mpi(f, host, m);
}

static void judge_space(Findings *f, const char *host, const DirectoryFacts *d,
                        const RunNeeds *n) {
  char free[32], need[32], each[32];
  uint64_t more = n->disk - n->disk_used;
  str_of_bytes(free, d->free);
  str_of_bytes(need, more);
  str_of_bytes(each, n->checkpoint);
  if (d->free < more) {
    findings_add(f, FINDING_PROBLEM, host, "free space",
                 "%s free in %s; the run writes up to %s (checkpoints of %s)", free,
                 d->measured, need, each);
    findings_remedy(f,
                    "free space, use another directory, or keep fewer checkpoints "
                    "(--keep-checkpoints)");
  } else if (d->free < TIGHT_DISK_FACTOR * more) {
    findings_add(f, FINDING_WARNING, host, "free space",
                 "%s free in %s; the run writes up to %s: little is left for anything else",
                 free, d->measured, need);
    findings_remedy(f, "free space, or keep fewer checkpoints (--keep-checkpoints)");
  } else {
    findings_add(f, FINDING_OK, host, "free space",
                 "%s free in %s (%s); the run writes up to %s, checkpoints of %s", free,
                 d->measured, d->file_system, need, each);
  }
}

static void judge_write_speed(Findings *f, const char *host, const DirectoryFacts *d,
                              const RunNeeds *n) {
  char rate[32], time[32];
  double seconds = d->write_rate > 0 ? (double)n->checkpoint / d->write_rate : 0;
  str_of_bytes(rate, (uint64_t)d->write_rate);
  str_of_seconds(time, seconds);
  if (seconds > SLOW_CHECKPOINT || d->sync_seconds > SLOW_SYNC) {
    findings_add(f, FINDING_WARNING, host, "write speed",
                 "%s/s, so a checkpoint takes %s; %.0f ms to write and sync a small file", rate,
                 time, 1e3 * d->sync_seconds);
    findings_remedy(f,
                    "use a faster disk or network drive for --run, or save less often "
                    "(--save-every); training continues while a checkpoint is written");
  } else {
    findings_add(f, FINDING_OK, host, "write speed",
                 "%s/s, so a checkpoint takes %s; %.1f ms to write and sync a small file", rate,
                 time, 1e3 * d->sync_seconds);
  }
}

void doctor_judge_directory(Findings *f, const char *host, const DirectoryFacts *d,
                            const RunNeeds *n) {
  if (d->problem[0]) {
    findings_add(f, FINDING_PROBLEM, host, "directory", "%s: %s",
                 d->measured[0] ? d->measured : d->path, d->problem);
    findings_remedy(f,
                    "check that it is mounted and that this user may write there ('ls -ld', "
                    "'df -h', 'df -i'), or pass another --run");
    return;
  }
  judge_space(f, host, d, n);
  judge_write_speed(f, host, d, n);
  if (d->has_locks) return;
  findings_add(f, FINDING_PROBLEM, host, "file locks",
               "%s (%s) does not support flock, which keeps a second run out of a directory",
               d->measured, d->file_system);
  findings_remedy(f,
                  "mount it with locks (NFS: without nolock; CIFS: without nobrl), or pass "
                  "another --run");
}

bool doctor_refuse_allreduce(Findings *f, const char *const *needed) {
  for (; *needed; needed++) {
    for (size_t i = 0; i < f->count; i++) {
      if (f->list[i].level != FINDING_PROBLEM || strcmp(f->list[i].check, *needed) != 0)
        continue;
      findings_add(f, FINDING_WARNING, "", "all-reduce",
                   "not tried, because of the problem with '%s'", *needed);
      findings_remedy(f, "apply the remedy above first");
      return true;
    }
  }
  return false;
}

void doctor_judge_allreduce(Findings *f, const AllreduceFacts *a, const RunNeeds *n) {
  char bytes[32], rate[32];
  if (!a->was_run) return;
  str_of_bytes(bytes, a->bytes);
  if (a->problem[0]) {
    findings_add(f, FINDING_PROBLEM, "", "all-reduce", "ranks cannot sum a gradient of %s: %s",
                 bytes, a->problem);
    findings_remedy(
        f, a->hosts > 1 ? "'trireme launch' with the same hosts and '-- bench allreduce' shows "
                          "all messages"
                        : "'mpirun -n 2 trireme bench allreduce' shows all messages");
    return;
  }
  str_of_bytes(rate, (uint64_t)((double)a->bytes / a->seconds));
  findings_add(
      f, FINDING_OK, "", "all-reduce",
      "%s: the gradient of %s (%s) takes %.3f s (%s/s). A step takes at least this, less "
      "what is hidden behind the backward pass",
      a->about, n->about, bytes, a->seconds, rate);
}
