/* Checks this machine: reads its facts, measures the directory of the run, and runs a real
 * all-reduce with two ranks. Depends on doctor.h, probe. */
#include "launch/doctor.h"

#include "base/log.h"
#include "launch/probe.h"

/* Largest number of bytes written to measure a directory. */
#define WRITE_BYTES       ((uint64_t)256 << 20)
#define WRITE_SECONDS     3.0
#define ALLREDUCE_SECONDS 120.0 /* time limit for an all-reduce of two local ranks */
/* Number of arrays of the gradient's size that the two ranks allocate together. */
#define ALLREDUCE_COPIES 4

static void check_allreduce(Doctor *d) {
  const MachineFacts *m = &d->machine;
  const char *const launcher[] = {"mpirun",    "-n",   "2",        "--oversubscribe",
                                  "--bind-to", "none", m->program, NULL};
  static const char *const needed[] = {"open files", "/tmp", NULL};
  if (m->mpi_problem[0] || !m->mpirun[0]) return; /* no usable MPI: judge_mpi reports it */
  if (doctor_refuse_allreduce(&d->findings, needed)) return;
  if (ALLREDUCE_COPIES * d->needs.gradient > m->memory_free) {
    findings_add(&d->findings, FINDING_WARNING, "", "all-reduce",
                 "not tried: two gradients of the model do not fit into the free memory");
    findings_remedy(&d->findings, "free memory, or pass a smaller --preset");
    return;
  }
  log_info("running an all-reduce of two ranks");
  doctor_run_allreduce(&d->allreduce, launcher, d->needs.gradient, ALLREDUCE_SECONDS);
  d->allreduce.hosts = 1;
  doctor_judge_allreduce(&d->findings, &d->allreduce, &d->needs);
}

Err doctor_check_machine(Doctor *d, const DoctorSpec *spec) {
  *d = (Doctor){0};
  TRY(doctor_plan(spec, &d->needs));
  probe_machine(&d->machine);
  probe_try_gpus(&d->machine);
  doctor_judge_machine(&d->findings, "", &d->machine, &d->needs);
  log_info("measuring the directory");
  uint64_t bytes = d->needs.checkpoint < WRITE_BYTES ? d->needs.checkpoint : WRITE_BYTES;
  probe_directory(&d->directory, spec->run ? spec->run : ".", bytes, WRITE_SECONDS);
  doctor_judge_directory(&d->findings, "", &d->directory, &d->needs);
  check_allreduce(d);
  return d->findings.err;
}

void doctor_free(Doctor *d) {
  findings_free(&d->findings);
}
