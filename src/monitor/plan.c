/* Adds up the parts of a step, and the time and cost of a run. Depends on plan.h. */
#include "monitor/plan.h"

#include <math.h>

#define DAY 86400.0

double plan_expected_max(int n) {
  /* E = integral of x n phi(x) Phi(x)^(n-1), by Simpson's rule from -LIMIT to LIMIT. */
  enum { INTERVALS = 2000 };
  const double limit = 9, width = 2 * limit / INTERVALS, root = sqrt(2 * acos(-1));
  double sum = 0;
  if (n < 2) return 0;
  for (int i = 0; i <= INTERVALS; i++) {
    double x = -limit + i * width;
    double density = exp(-x * x / 2) / root, below = 0.5 * erfc(-x / sqrt(2));
    double weight = i == 0 || i == INTERVALS ? 1 : i % 2 ? 4 : 2;
    sum += weight * x * n * density * pow(below, n - 1);
  }
  return sum * width / 3;
}

double plan_best_interval(double checkpoint, double mtbf) {
  if (isinf(mtbf)) return INFINITY;
  if (checkpoint >= 2 * mtbf) return mtbf;
  double ratio = checkpoint / (2 * mtbf);
  return sqrt(2 * checkpoint * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - checkpoint;
}

double plan_fault_factor(const PlanFaults *f, double mtbf, double interval) {
  if (isinf(interval)) return 1;
  if (isinf(mtbf)) return 1 + f->checkpoint / interval;
  return mtbf * exp(f->restart / mtbf) * expm1((interval + f->checkpoint) / mtbf) / interval;
}

/* Seconds of a step of one GPU, which needs no other: the reference for the speed-up. */
static double single_step(const PlanInput *in, uint32_t micro_batches) {
  return micro_batches * (in->compute.forward + in->compute.backward) + in->compute.update;
}

/* Bytes that a machine sends in all-reduces of all buckets. */
static double sum_traffic(const PlanSchedule *s, const PlanNetwork *net,
                          int bytes_per_element) {
  double sum = 0;
  for (size_t i = 0; i < s->buckets; i++) {
    double bytes = (double)s->size[i] * bytes_per_element;
    sum += plan_node_traffic(net, plan_choose_algorithm(net, bytes), bytes);
  }
  return sum;
}

/* Adds the all-gather of new weights after the update: half of an all-reduce. The weights in
 * fp32 are one more collective. */
static void add_gather(const PlanInput *in, PlanPoint *p) {
  const PlanSchedule *s = in->schedule;
  double full = (double)in->full_elements * sizeof(float);
  PlanReduce all = plan_reduce(s, &p->net, in->weight_bytes, 0, /*overlaps=*/false, 0.5);
  p->gather = all.total;
  p->traffic += 0.5 * sum_traffic(s, &p->net, in->weight_bytes);
  if (full == 0) return;
  PlanAlgorithm algorithm = plan_choose_algorithm(&p->net, full);
  p->gather += 0.5 * plan_allreduce(&p->net, algorithm, full);
  p->traffic += 0.5 * plan_node_traffic(&p->net, algorithm, full);
}

static void add_communication(const PlanInput *in, PlanPoint *p) {
  const PlanSchedule *s = in->schedule;
  double largest = s->buckets ? (double)s->size[0] * in->bytes_per_element : 0;
  int ranks = p->net.nodes * p->net.gpus;
  if (ranks == 1) return;
  /* A reduce-scatter is half of an all-reduce. */
  double scale = in->is_sharded ? 0.5 : 1;
  PlanReduce r = plan_reduce(s, &p->net, in->bytes_per_element, in->compute.backward,
                             in->overlaps && in->copies == 0, scale);
  p->algorithm = plan_choose_algorithm(&p->net, largest);
  p->allreduce = r.total;
  p->exposed = r.exposed;
  p->hidden = r.exposed < r.total ? r.total - r.exposed : 0;
  p->copies = in->copies;
  p->traffic = scale * sum_traffic(s, &p->net, in->bytes_per_element);
  if (in->is_sharded) add_gather(in, p);
}

/* An interval is at least a step, and at most the run, which ends with a checkpoint. */
static double limit_interval(const PlanPoint *p, double interval) {
  if (isinf(interval)) return interval;
  return fmin(fmax(interval, p->step), p->steps * p->step);
}

static void add_faults(const PlanInput *in, PlanPoint *p) {
  const PlanFaults *f = &in->faults;
  double rate = f->failures_per_node_day * p->net.nodes / DAY;
  p->mtbf = rate > 0 ? 1 / rate : INFINITY;
  p->best_interval = limit_interval(p, plan_best_interval(f->checkpoint, p->mtbf));
  p->interval =
      f->save_every ? limit_interval(p, (double)f->save_every * p->step) : p->best_interval;
  double factor = plan_fault_factor(f, p->mtbf, p->interval);
  p->lost = 1 - 1 / factor;
  p->hours = p->steps * p->step * factor / 3600;
  p->cost = p->hours * p->net.nodes * in->price;
}

void plan_predict(const PlanInput *in, int nodes, int gpus, PlanPoint *p) {
  uint32_t ranks = (uint32_t)nodes * (uint32_t)gpus;
  /* NCCL has no tree for reduce-scatter and all-gather. */
  PlanNcclAlgo nccl_algo = in->is_sharded ? PLAN_NCCL_RING : in->nccl_algo;
  *p = (PlanPoint){.net = {.nodes = nodes,
                           .gpus = gpus,
                           .is_nccl = in->is_nccl,
                           .nccl_algo = nccl_algo,
                           .link = in->link,
                           .local = in->local}};
  if (in->is_local_shared) p->net.local.bandwidth /= gpus;
  p->micro_batches = in->micro_batches ? in->micro_batches : ranks;
  p->rounds = (p->micro_batches + ranks - 1) / ranks;
  p->forward = p->rounds * in->compute.forward;
  p->backward = p->rounds * in->compute.backward;
  p->update = in->is_sharded ? in->compute.update / ranks : in->compute.update;
  p->straggler = in->jitter * (p->forward + p->backward) * plan_expected_max((int)ranks);
  add_communication(in, p);
  p->step =
      p->forward + p->backward + p->straggler + p->copies + p->exposed + p->update + p->gather;
  double tokens = p->micro_batches * in->tokens;
  uint32_t alone = in->micro_batches ? in->micro_batches : 1;
  p->rate = tokens / p->step;
  p->speedup = p->rate / (alone * in->tokens / single_step(in, alone));
  p->efficiency = p->speedup / ranks;
  p->steps = ceil(in->total_tokens / tokens);
  add_faults(in, p);
}
