/* Time of the gradient all-reduce: formulas for one bucket, and the schedule of all buckets.
 * Depends on comm/cut, model. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "comm/cut.h"
#include "monitor/plan.h"

static const char *const algorithm_name[] = {"ring", "tree", "direct", "shared memory"};

const char *plan_algorithm_name(PlanAlgorithm a) {
  return algorithm_name[a];
}

static double smaller(double a, double b) {
  return a < b ? a : b;
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

/* A chunk makes 2 (R - 1) hops around the ring, of which nodes / R cross a link. */
static double ring_seconds(const PlanNetwork *n, double ranks, double bytes) {
  double hops = 2 * (ranks - 1), fraction = hops / ranks;
  double links = n->nodes > 1 ? fraction * n->nodes : 0;
  double narrowest = n->nodes == 1  ? n->local.bandwidth
                     : n->gpus == 1 ? n->link.bandwidth
                                    : smaller(n->link.bandwidth, n->local.bandwidth);
  return links * n->link.latency + (hops - links) * n->local.latency +
         fraction * bytes / narrowest;
}

/* Up and down a binary tree of the machines, and a chain inside each. With two trees of half the
 * bytes a machine is an inner node of one and a leaf of the other, and sends 2 * bytes in all; two
 * machines exchange their bytes once. */
static double tree_traffic(int nodes, double bytes) {
  return nodes == 2 ? bytes : 2 * bytes;
}

static double tree_seconds(const PlanNetwork *n, double bytes) {
  double levels = ceil(log2(n->nodes));
  double inside = n->gpus > 1 ? 2 * bytes / n->local.bandwidth : 0;
  return 2 * (levels * n->link.latency + (n->gpus - 1) * n->local.latency) +
         larger(tree_traffic(n->nodes, bytes) / n->link.bandwidth, inside);
}

/* Every rank sends 1 / R of the bytes to every other, twice; those of a machine that go to other
 * machines share its link. */
static double direct_traffic(const PlanNetwork *n, double ranks, double bytes) {
  return 2 * n->gpus * (ranks - n->gpus) / ranks * bytes;
}

static double direct_seconds(const PlanNetwork *n, double ranks, double bytes) {
  double inside = n->gpus > 1 ? 2 * (n->gpus - 1) / ranks * bytes / n->local.bandwidth : 0;
  return 2 * n->link.latency +
         larger(direct_traffic(n, ranks, bytes) / n->link.bandwidth, inside);
}

double plan_allreduce(const PlanNetwork *n, PlanAlgorithm algorithm, double bytes) {
  double ranks = (double)n->nodes * n->gpus;
  if (ranks == 1) return 0;
  switch (algorithm) {
    case PLAN_TREE:
      return tree_seconds(n, bytes);
    case PLAN_DIRECT:
      return direct_seconds(n, ranks, bytes);
    case PLAN_SHARED:
      return 2 * n->local.latency + 2 * (ranks - 1) / ranks * bytes / n->local.bandwidth;
    case PLAN_RING:
      break;
  }
  return ring_seconds(n, ranks, bytes);
}

PlanAlgorithm plan_choose_algorithm(const PlanNetwork *n, double bytes) {
  if (!n->is_nccl) return n->nodes == 1 ? PLAN_SHARED : PLAN_DIRECT;
  if (n->nodes == 1 || n->nccl_algo == PLAN_NCCL_RING) return PLAN_RING;
  if (n->nccl_algo == PLAN_NCCL_TREE) return PLAN_TREE;
  return tree_seconds(n, bytes) < plan_allreduce(n, PLAN_RING, bytes) ? PLAN_TREE : PLAN_RING;
}

double plan_node_traffic(const PlanNetwork *n, PlanAlgorithm algorithm, double bytes) {
  double ranks = (double)n->nodes * n->gpus;
  if (n->nodes == 1) return 0;
  if (algorithm == PLAN_DIRECT) return direct_traffic(n, ranks, bytes);
  if (algorithm == PLAN_TREE) return tree_traffic(n->nodes, bytes);
  return 2 * (ranks - 1) / ranks * bytes;
}

typedef struct {
  BucketCut cut;
  size_t *order;   /* (buckets) buckets in the order of their completion */
  size_t *after;   /* (buckets) elements that were complete when bucket order[i] was */
  size_t complete; /* number of complete buckets */
  size_t elements; /* elements announced so far */
  size_t last;     /* elements of the range that was announced last */
} Announced;

static void note_complete(void *context, size_t bucket) {
  Announced *a = context;
  a->order[a->complete] = bucket;
  a->after[a->complete++] = a->elements;
}

static void note_range(void *context, size_t begin, size_t end) {
  Announced *a = context;
  a->last = end - begin;
  a->elements += a->last;
  cut_mark(&a->cut, begin, end, note_complete, a);
}

/* Converts element counts to fractions of backward, which ends when all but the last range are
 * computed. */
static void fill_schedule(PlanSchedule *s, const Announced *a) {
  double work = (double)(a->elements - a->last);
  for (size_t i = 0; i < a->complete; i++) {
    double done = work > 0 ? (double)a->after[i] / work : 1;
    s->ready[i] = smaller(done, 1);
    s->size[i] = cut_end(&a->cut, a->order[i]) - cut_begin(&a->cut, a->order[i]);
  }
}

Err plan_schedule_make(PlanSchedule *s, const Model *model, size_t bucket_bytes) {
  Announced a = {0};
  Err err;
  *s = (PlanSchedule){.elements = model->params.padded};
  TRY_DONE(cut_open(&a.cut, s->elements, NORM_UNIT, bucket_bytes / sizeof(float)));
  TRY_DONE(mem_alloc(&a.order, a.cut.buckets, sizeof *a.order));
  TRY_DONE(mem_alloc(&a.after, a.cut.buckets, sizeof *a.after));
  TRY_DONE(mem_alloc(&s->ready, a.cut.buckets, sizeof *s->ready));
  TRY_DONE(mem_alloc(&s->size, a.cut.buckets, sizeof *s->size));
  model_announce(model, note_range, &a);
  s->buckets = a.complete;
  fill_schedule(s, &a);
done:
  cut_close(&a.cut);
  mem_free(a.order);
  mem_free(a.after);
  if (err) plan_schedule_free(s);
  return err;
}

void plan_schedule_free(PlanSchedule *s) {
  mem_free(s->ready);
  mem_free(s->size);
  *s = (PlanSchedule){0};
}

PlanReduce plan_reduce(const PlanSchedule *s, const PlanNetwork *n, int bytes_per_element,
                       double backward, bool overlaps, double scale) {
  PlanReduce r = {0};
  double end = 0; /* seconds since backward began */
  if (n->nodes * n->gpus == 1) return r;
  for (size_t i = 0; i < s->buckets; i++) {
    double bytes = (double)s->size[i] * bytes_per_element;
    double seconds = scale * plan_allreduce(n, plan_choose_algorithm(n, bytes), bytes);
    double ready = overlaps ? s->ready[i] * backward : backward;
    end = larger(end, ready) + seconds;
    r.total += seconds;
  }
  r.exposed = larger(end - backward, 0);
  return r;
}
