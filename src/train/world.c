/* Ranks, devices and the division of work. Depends on backend, comm, data, allreduce,
 * pieces. */
#include "train/world.h"

#include <inttypes.h>

#include "backend/peak.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/str.h"
#include "train/pieces.h"

/* The timeout is this multiple of the longest time between two reports. */
#define TIMEOUT_GAPS 5
/* Largest number of ranks in the log line with the device of each rank. */
#define LISTED_RANKS 16u

void world_init(World *w, Comm *comm) {
  *w = (World){.comm = comm, .rank = comm_rank(comm), .ranks = comm_size(comm)};
}

bool world_is_writer(const World *w) {
  return w->rank == 0;
}

bool world_has_others(const World *w) {
  return w->ranks > 1;
}

bool world_has_fault(const World *w, const char *what, uint64_t step) {
  return fault_now(what, step, w->rank);
}

/* All-gathers `list`, which has one element of `size` bytes per rank; the caller has filled in
 * its own. */
static Err gather_from_ranks(World *w, const char *name, void *list, size_t size) {
  size_t ranks = (size_t)w->ranks, *off;
  TRY(mem_alloc(&off, ranks + 1, sizeof *off));
  for (size_t r = 0; r <= ranks; r++) off[r] = r * size;
  comm_allgather(w->comm, name, list, off);
  mem_free(off);
  return ERR_OK;
}

typedef struct {
  uint64_t id; /* identifies the GPU; 0: CPU */
  int32_t device, pad;
} RankDevice;

static void print_devices(const World *w, const RankDevice *list) {
  Str line = {0};
  for (int r = 0; r < w->ranks && r < (int)LISTED_RANKS; r++) {
    str_addf(&line, "%srank %d on ", r ? ", " : "", r);
    if (list[r].id)
      str_addf(&line, "cuda:%d", (int)list[r].device);
    else
      str_add(&line, "cpu");
  }
  if (w->ranks > (int)LISTED_RANKS) str_addf(&line, " and so on");
  log_info("devices  %s", str_text(&line));
  str_free(&line);
}

/* Counts the ranks that share this rank's device. If there is a GPU, rank 0 prints the devices
 * of all ranks. */
static Err compare_devices(World *w) {
  RankDevice *list;
  bool has_gpu = false;
  TRY(mem_alloc(&list, (size_t)w->ranks, sizeof *list));
  list[w->rank] = (RankDevice){w->backend.device_id, w->backend.device, 0};
  Err err = gather_from_ranks(w, "devices", list, sizeof *list);
  w->device_sharers = 0;
  for (int r = 0; r < w->ranks && !err; r++) {
    has_gpu = has_gpu || list[r].id;
    if (comm_is_shared_host(w->comm, r, w->rank) && list[r].id == list[w->rank].id)
      w->device_sharers++;
  }
  if (!err && has_gpu && world_is_writer(w)) print_devices(w, list);
  mem_free(list);
  return err;
}

Err world_open_device(World *w, const BackendSpec *asked) {
  BackendSpec spec = *asked;
  if (!spec.threads) spec.threads = comm_threads(w->comm);
  TRY(backend_open_for_rank(&w->backend, &spec, comm_local_rank(w->comm)));
  w->device_sharers = 1;
  return w->ranks == 1 ? ERR_OK : compare_devices(w);
}

bool world_sums_on_device(const TrainSpec *s) {
  return s->optim.kind != OPTIM_NOVOGRAD;
}

AllreduceSpec world_allreduce_spec(const TrainSpec *s) {
  return (AllreduceSpec){.transport = s->transport,
                         .is_ordered = s->reproducible,
                         .bf16 = s->allreduce_bf16,
                         .is_sharded = s->shard,
                         .sums_numbers = world_sums_on_device(s),
                         .max_ctas = s->nccl_ctas,
                         .reserves_sms = s->reserves_sms,
                         .max_elements = s->bucket / sizeof(float)};
}

Err world_open_transport(World *w, const TrainSpec *s, bool is_resumed) {
  AllreduceSpec spec = world_allreduce_spec(s);
  spec.needs_ctas = s->nccl_ctas && world_is_writer(w) && !is_resumed;
  TRY(allreduce_select(&w->allreduce, w->comm, &w->backend, &spec));
  return allreduce_open(&w->allreduce, &spec);
}

void world_close_transport(World *w) {
  allreduce_close(&w->allreduce);
}

void world_close(World *w) {
  gradients_close(&w->grads);
  backend_close(&w->backend);
}

/* Sets the error for fewer micro-batches than ranks. A resumed run keeps its number of
 * micro-batches, because another number would change its batch size. */
static Err refuse_ranks(uint32_t count, int ranks, bool is_resumed) {
  if (!is_resumed)
    return err_set(ERR_USAGE,
                   "%u micro-batches per step are too few for %d ranks: each rank needs one; "
                   "start at most %u ranks, or pass --micro-batches %d or more",
                   count, ranks, count, ranks);
  return err_set(ERR_USAGE,
                 "the run has %u micro-batches per step, too few for %d ranks: each rank needs "
                 "one; start at most %u ranks. A new run can grow to N ranks if it begins with "
                 "--micro-batches N, or under launch with --nnodes MIN:MAX",
                 count, ranks, count);
}

Err world_settle_micro_batches(World *w, uint32_t asked, uint64_t saved, uint32_t max_ranks,
                               uint32_t *count) {
  uint32_t ranks = (uint32_t)w->ranks;
  comm_broadcast(w->comm, "micro-batches", &saved, sizeof saved);
  comm_broadcast(w->comm, "ranks that the run may grow to", &max_ranks, sizeof max_ranks);
  *count = asked ? asked : saved ? (uint32_t)saved : ranks > max_ranks ? ranks : max_ranks;
  if (!asked && !saved && max_ranks > ranks && w->rank == 0)
    log_info(
        "batches  %u micro-batches per step, because the run may grow to %u ranks; "
        "--micro-batches N chooses another number",
        max_ranks, max_ranks);
  if (saved && *count != saved)
    return err_set(ERR_USAGE,
                   "the run has %" PRIu64
                   " micro-batches per step and cannot be resumed with %u; "
                   "leave --micro-batches out",
                   saved, *count);
  if (*count >= ranks) return ERR_OK;
  return refuse_ranks(*count, w->ranks, saved > 0);
}

uint32_t world_first_micro_batch(const World *w) {
  return (uint32_t)w->rank;
}

uint32_t world_rounds(const World *w, uint32_t micro_batches) {
  uint32_t ranks = (uint32_t)w->ranks;
  return (micro_batches + ranks - 1) / ranks;
}

LoaderSpec world_loader_spec(const World *w, uint64_t seed, uint64_t step,
                             uint32_t micro_batches) {
  return (LoaderSpec){.seed = seed,
                      .step = step,
                      .group = micro_batches,
                      .begin = (uint32_t)w->rank,
                      .end = micro_batches,
                      .stride = (uint32_t)w->ranks};
}

bool world_next_round(const World *w, uint32_t micro_batches, RoundIterator *it, Round *r) {
  uint32_t ranks = (uint32_t)w->ranks, begin = it->next * ranks;
  if (it->is_over) return false;
  *r = (Round){.micro_batch = begin + (uint32_t)w->rank};
  r->has_micro_batch = r->micro_batch < micro_batches;
  if (w->grads.each_round) { /* --reproducible: all ranks reduce after every round */
    uint32_t left = micro_batches - begin;
    r->is_fresh = it->next > 0;
    r->grads.contributors = left < ranks ? (int)left : w->ranks;
    r->grads.is_first = it->next == 0;
    r->grads.is_last = it->next + 1 == world_rounds(w, micro_batches);
    r->is_reduced = true;
    it->is_over = r->grads.is_last;
    /* Reduce once, after this rank's last micro-batch; some ranks have one micro-batch more than
   * others. */
  } else {
    r->grads = (GradRound){.contributors = w->ranks, .is_first = true, .is_last = true};
    r->is_reduced = r->micro_batch + ranks >= micro_batches;
    it->is_over = r->is_reduced;
  }
  if (w->grads.path == GRADS_STAY) r->is_reduced = false;
  it->next++;
  return true;
}

Err world_free_memory(const World *w, uint64_t *bytes) {
  uint64_t left, all;
  TRY(w->backend.memory(&w->backend, &left, &all));
  *bytes = left / (uint64_t)w->device_sharers;
  return ERR_OK;
}

ReduceBytes world_reduce_bytes(const World *w, const TrainSpec *s, uint32_t micro_batches,
                               uint64_t bytes) {
  return gradients_bytes(
      &(GradientsMemory){.ranks = w->ranks,
                         .is_host = w->backend.host,
                         .has_nccl = w->allreduce.nccl,
                         .has_rounds = s->reproducible && world_rounds(w, micro_batches) > 1,
                         .bucket = s->bucket,
                         .gradients = bytes});
}

uint64_t world_optimizer_shards(const World *w, const TrainSpec *s) {
  return s->shard ? (uint64_t)w->ranks : 1;
}

/* Returns the bytes that a sharded optimizer gathers. */
static double gathered_bytes(const World *w, const Params *p) {
  GatheredWeights g = pieces_gathered(p, w->backend.type, /*is_nccl=*/w->allreduce.ops != NULL);
  return (double)p->padded * (double)g.width + (double)g.full_elements * sizeof(float);
}

/* Counts one reduce-scatter of the gradients per reduced round, and per step one all-gather of
 * the sums or, with a sharded optimizer, of the new weights. In each collective a rank
 * sends (ranks - 1) / ranks of the array. */
double world_traffic(const World *w, const TrainSpec *s, uint32_t micro_batches,
                     const Params *p) {
  double ranks = (double)w->ranks;
  double grad_bytes = (double)p->padded * (s->allreduce_bf16 ? 2 : 4);
  double result_bytes = s->shard ? gathered_bytes(w, p) : grad_bytes;
  double sums = s->reproducible ? world_rounds(w, micro_batches) : 1;
  return (ranks - 1) / ranks * (grad_bytes * sums + result_bytes);
}

/* Ranks that share a GPU, or have more threads than cores, have a part of its peak each. */
double world_peak(World *w, const char *precision) {
  enum { PEAK, UNKNOWN, VALUES };
  double peak = backend_peak(&w->backend, precision), sum[VALUES];
  double cores = comm_cores(w->comm), threads = w->backend.threads;
  if (!w->backend.host)
    peak /= w->device_sharers;
  else if (threads > cores)
    peak *= cores / threads;
  sum[PEAK] = peak;
  sum[UNKNOWN] = peak > 0 ? 0 : 1;
  comm_sum(w->comm, "peak FLOP/s", sum, VALUES);
  return sum[UNKNOWN] > 0 ? 0 : sum[PEAK];
}

Err world_least(World *w, const char *name, uint32_t *value) {
  uint32_t *list;
  TRY(mem_alloc(&list, (size_t)w->ranks, sizeof *list));
  list[w->rank] = *value;
  Err err = gather_from_ranks(w, name, list, sizeof *list);
  for (int r = 0; r < w->ranks && !err; r++)
    if (list[r] < *value) *value = list[r];
  mem_free(list);
  return err;
}

double world_timeout(const World *w) {
  return w->is_warm ? TIMEOUT_GAPS * w->longest_gap : w->first_timeout;
}

void world_note_progress(World *w, double *since) {
  double now = progress_clock(), gap = now - *since;
  if (gap > w->longest_gap) w->longest_gap = gap;
  *since = now;
}
