/* Machines that `plan` knows: GPUs by name, with figures of their data sheets, and measurements in
 * the form of `bench train --json`. Depends on model, plan.h. */
#ifndef MONITOR_PLAN_MACHINE_H
#define MONITOR_PLAN_MACHINE_H

#include "monitor/plan.h"

typedef enum {
  PLAN_FP32,
  PLAN_TF32,
  PLAN_BF16,
  PLAN_FP16,
  PLAN_FP8,
  PLAN_PRECISIONS
} PlanPrecision;
extern const char *const plan_precision_names[PLAN_PRECISIONS];
/* Finds the precision of that name, which must be one of plan_precision_names. */
PlanPrecision plan_precision_find(const char *name);

typedef struct {
  const char *name; /* value of --machine */
  const char *about;
  double peak[PLAN_PRECISIONS]; /* FLOP/s of dense GEMMs; 0: the GPU does not have it */
  double memory_bandwidth;      /* bytes per second */
  uint64_t memory_bytes;        /* of one GPU; 0: not known */
  PlanLink local;               /* of a GPU to the others of its machine, by the data sheet */
  const char *local_about;      /* what `local` is, for the user */
  /* Bytes per second of large copies in the memory of the machine, reads and writes counted. All
   * ranks of the machine share it. */
  double host_memory;
  bool is_host_memory_measured;
  /* Clock under continuous load divided by the clock of `peak`. Below 1 if the power limit lowers
   * the clock far more than on the measured GPUs; otherwise 1: the measured ratio includes it. */
  double sustained_clock;
  double snapshot_bandwidth; /* bytes per second of the copy to host memory for a checkpoint */
  bool is_snapshot_measured;
} PlanMachine;

/* Returns NULL if there is no machine of that name. */
const PlanMachine *plan_machine_find(const char *name);
/* Finds the GPU in the description of a backend, "cuda:0: NVIDIA H200, 143 GB, …"; NULL: not known. */
const PlanMachine *plan_machine_of_device(const char *device);
/* Bytes per second of copies in the memory of a GPU server, reads and writes counted: an
 * assumption. Data sheets of two sockets are 256 GB/s (DDR4-2666) to 614 GB/s (DDR5-4800). */
#define PLAN_SERVER_MEMORY 200e9
/* Lists the names: "h200, a100, v100, t4". */
const char *plan_machine_names(char out[128]);
/* The precision that a run on this machine would use: bf16, or fp16 without it. */
PlanPrecision plan_machine_precision(const PlanMachine *m);
/* Fails, with the precisions that the machine has, if it lacks this one. */
NODISCARD Err plan_machine_check(const PlanMachine *m, PlanPrecision precision);

/* A micro-batch: mean numbers of tokens on both sides, without padding. */
typedef struct {
  double tokens[2];
} PlanBatch;

/* Number of weights of the output layer, whose GEMMs are computed with the loss. 0 for a model of texts:
 * its head has few rows, and its shape does not count them. */
double plan_output_weights(const ModelShape *s);

/* Lower bounds in seconds of the parts of a step, from peak FLOP/s and memory bandwidth. */
typedef struct {
  double output; /* GEMMs of the output layer and the loss, forward and backward */
  double layers; /* everything between embeddings and output, forward and backward */
  double update;
} PlanRoofline;
PlanRoofline plan_roofline(const PlanMachine *m, PlanPrecision precision, const Model *model,
                           const PlanBatch *batch);
/* Multiplies the roofline by the ratio that was measured for this preset and precision or, without
 * a measurement, for the most similar one. */
NODISCARD Err plan_machine_compute(const PlanMachine *m, PlanPrecision precision,
                                   const char *preset, const Model *model,
                                   const PlanBatch *batch, PlanCompute *compute);

/* A measured step, from the JSON of `bench train`. */
typedef struct {
  char preset[64], precision[16], device[160];
  bool is_host;          /* the device is the CPU */
  uint64_t parameters;   /* 0: the file does not have it */
  uint32_t batch_tokens; /* tokens per side that fit into a batch */
  bool has_texts;        /* of a BERT preset: tokens of texts instead of target tokens */
  double tokens;         /* mean target tokens of a step */
  double step;           /* seconds */
  bool has_parts;        /* the file has the time of each kind of operation */
  /* Seconds of a timed step: all of it, GEMMs of the gradients, other operations of backward,
   * optimizer. */
  double timed, gradients, other_backward, optimizer;
  double
      copy; /* bytes per second of a large copy, reads and writes counted; 0: not in the file */
} PlanMeasurement;
/* Parses untrusted JSON text; `where` is its name for errors. */
NODISCARD Err plan_measurement_parse(const char *text, size_t len, const char *where,
                                     PlanMeasurement *m);
/* Scales the measured step to this batch. `where`: name of the file. */
void plan_measurement_compute(const PlanMeasurement *m, const char *where, const Model *model,
                              const PlanBatch *batch, PlanCompute *compute);
/* Describes a measurement as a machine. A GPU that is known by name has the links of its data sheet;
 * others are assumed to have PCIe alone. */
PlanMachine plan_measurement_machine(const PlanMeasurement *m);

#endif
