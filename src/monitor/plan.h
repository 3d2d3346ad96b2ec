/* Predicts time and cost of a training run on machines that need not be here: the step time as a
 * sum of parts, each from a formula and from numbers that are measured, given or assumed.
 *
 *   step = rounds * (forward + backward) + straggler + copies + exposed all-reduce + update
 *          + gather
 *
 * The exposed all-reduce is what remains of it when backward has ended. It is found by simulating
 * the schedule of the reducer: bucket i starts when its gradients are complete and bucket i - 1 is
 * reduced. Nothing here opens a device or a connection. Depends on comm/cut, model. */
#ifndef MONITOR_PLAN_H
#define MONITOR_PLAN_H

#include "base/str.h"
#include "model/model.h"

/* Seconds of one micro-batch on one GPU (or on one CPU rank), and of the update. */
typedef struct {
  double forward; /* until the first gradient of a layer; includes the loss and its GEMMs */
  double backward;
  double update;
  bool is_measured; /* false: at least the efficiency is assumed */
  char source[200]; /* where the numbers come from, for the user */
} PlanCompute;

typedef struct {
  double bandwidth; /* bytes per second in each direction that an all-reduce reaches */
  double latency;   /* seconds of one message */
} PlanLink;

/* How the all-reduce is done. Traffic is per step and direction.
 *   RING    NCCL. 2 (R - 1) messages one after another, 2 (R - 1) / R of the bytes.
 *   TREE    NCCL's double binary tree over the machines: fewer messages, more bytes.
 *   DIRECT  host transport: every rank sends to every other (comm/reduce_message.c). Two messages;
 *           the ranks of a machine share its link.
 *   SHARED  ranks of one machine, in shared memory. */
typedef enum { PLAN_RING, PLAN_TREE, PLAN_DIRECT, PLAN_SHARED } PlanAlgorithm;
/* NCCL selects the faster one for each size, unless NCCL_ALGO names one. */
typedef enum { PLAN_NCCL_AUTO, PLAN_NCCL_RING, PLAN_NCCL_TREE } PlanNcclAlgo;
const char *plan_algorithm_name(PlanAlgorithm algorithm);

typedef struct {
  int nodes, gpus; /* machines, and ranks on each */
  bool is_nccl;
  PlanNcclAlgo nccl_algo;
  PlanLink link;  /* of a machine to the others, shared by its ranks */
  PlanLink local; /* of a rank to the others of its machine */
} PlanNetwork;

/* Seconds of an all-reduce of `bytes` by this algorithm; 0 with one rank. */
double plan_allreduce(const PlanNetwork *net, PlanAlgorithm algorithm, double bytes);
/* The fastest algorithm that the transport has for this size. */
PlanAlgorithm plan_choose_algorithm(const PlanNetwork *net, double bytes);
/* Bytes that a machine sends, and receives, over its link in an all-reduce of `bytes`. */
double plan_node_traffic(const PlanNetwork *net, PlanAlgorithm algorithm, double bytes);

/* The buckets of the gradient in the order in which all ranks send them. */
typedef struct {
  size_t elements; /* of all buckets */
  size_t buckets;
  /* (buckets) fraction of backward after which the bucket and all before it are complete */
  double *ready;
  size_t *size; /* (buckets) elements */
} PlanSchedule;
/* Takes the order from model_announce and the cut from comm/cut.h, as `train` does. Ready times
 * are proportional to the weights whose gradients are complete: their GEMMs are most of the time
 * of backward. The range that is announced last (embeddings and output) counts as no time: its
 * GEMMs belong to the loss, and adding up embeddings is fast. */
NODISCARD Err plan_schedule_make(PlanSchedule *s, const Model *planned, size_t bucket_bytes);
void plan_schedule_free(PlanSchedule *s);

typedef struct {
  double total;   /* seconds of all buckets */
  double exposed; /* seconds from the end of backward until the last bucket is reduced */
} PlanReduce;
/* Simulates the schedule. `scale` multiplies the time of each bucket: 0.5 for a reduce-scatter. */
PlanReduce plan_reduce(const PlanSchedule *s, const PlanNetwork *net, int bytes_per_element,
                       double backward, bool overlaps, double scale);

/* Expected maximum of n independent standard normal variables. */
double plan_expected_max(int n);

typedef struct {
  double failures_per_node_day;
  double checkpoint;   /* seconds that a checkpoint delays training */
  double restart;      /* seconds from a failure until training continues */
  uint64_t save_every; /* steps between checkpoints; 0: the best interval */
} PlanFaults;
/* Best interval in seconds between checkpoints, for a mean time `mtbf` between failures: J. T. Daly,
 * "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006). Its first
 * term is Young's sqrt(2 * checkpoint * mtbf). Infinite if nothing fails. */
double plan_best_interval(double checkpoint, double mtbf);
/* Expected time divided by the time without checkpoints and failures, by the cost function of the
 * same paper: failures are a Poisson process, and may also hit a restart. */
double plan_fault_factor(const PlanFaults *f, double mtbf, double interval);

typedef struct {
  PlanCompute compute;
  double tokens;          /* mean number of target tokens of a micro-batch */
  uint32_t micro_batches; /* per step, over all ranks; 0: one for each rank */
  const PlanSchedule *schedule;
  PlanLink link, local;
  bool is_local_shared; /* the ranks of a machine share the bandwidth of `local` */
  bool is_nccl;
  PlanNcclAlgo nccl_algo;
  int bytes_per_element; /* of gradients in messages: 4, or 2 for bf16 */
  bool overlaps;
  /* Each rank updates its share of the weights: reduce-scatter, and an all-gather of the new weights. */
  bool is_sharded;
  int weight_bytes;     /* of an element of the weights in this all-gather: 4, or 2 */
  size_t full_elements; /* weights that are gathered a second time, in fp32 */
  /* Seconds to copy gradients, and weights if sharded, to host memory and back; 0: not needed. */
  double copies;
  double jitter; /* standard deviation of a rank's compute time over its mean */
  PlanFaults faults;
  double total_tokens;
  double price; /* of an hour of one machine; 0: not known */
} PlanInput;

/* The prediction for one number of machines. Times in seconds. */
typedef struct {
  PlanNetwork net;
  uint32_t micro_batches, rounds;   /* per step; rounds: micro-batches of rank 0 */
  double forward, backward, update; /* of a step */
  double straggler;                 /* expected wait for the slowest rank */
  double copies, gather;
  double allreduce, exposed, hidden; /* allreduce = exposed + hidden */
  double step;
  PlanAlgorithm algorithm;          /* of a full bucket */
  double traffic;                   /* bytes that a machine sends in a step over its link */
  double rate, speedup, efficiency; /* target tokens per second; relative to one GPU */
  double mtbf;                      /* mean seconds between failures; infinite: none */
  double best_interval, interval;   /* seconds between checkpoints */
  double lost; /* share of the time spent on checkpoints, restarts and repeated steps */
  double steps, hours, cost;
} PlanPoint;
#define PLAN_RANKS (1 << 20) /* most ranks of a prediction */
/* nodes * gpus must not exceed PLAN_RANKS. */
void plan_predict(const PlanInput *in, int nodes, int gpus, PlanPoint *point);

/* Parses "400Gbit,5us": bits or bytes per second ("50GB"), and a latency, which may be missing
 * (then 0 is stored). Errors name the option. */
NODISCARD Err plan_parse_link(const char *text, PlanLink *link);
/* Parses a list of sizes: "8", "1,2,6" or "1..64", which doubles from the first to the last. */
#define PLAN_SIZES 64
typedef struct {
  int size[PLAN_SIZES];
  size_t count;
} PlanSizes;
NODISCARD Err plan_parse_sizes(const char *option, const char *text, PlanSizes *sizes);

#endif
