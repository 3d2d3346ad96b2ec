/* Collectives between GPUs through NCCL, which is loaded with dlopen on first use. They run on a
 * stream of their own in parallel with the compute stream. Threads: one thread enqueues and
 * polls; any other thread may abort, so each use of the communicator holds a lease
 * (base/lease.h). Depends on memory.h, kernels.h (type conversions), base/lease. */
#include "backend/cuda/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/nccl_abi.h"
#include "base/lease.h"
#include "base/mem.h"

/* Seconds that an abort waits for a call into NCCL to return: a call that connects to a lost
 * rank blocks. Less than ENDING in comm/heartbeat.c, after which the process is killed. */
#define ABORT_WAIT 5

/* Largest number of calls in a group. */
#define GROUP_CALLS 128

struct DeviceComm {
  Cuda *cuda;
  int device;
  DeviceCommSpec spec;
  NcclComm *comm; /* Use the communicator only under the lease, because an abort frees it. */
  Lease lease;
  cudaStream_t stream;
  /* events on the compute stream: the inputs of the last collective of gradients are ready;
   * those of another collective */
  cudaEvent_t inputs_ready, others_ready;
  /* event on the collective stream: the last collective is complete */
  cudaEvent_t done;
  void *low; /* (max_elements) bf16 send and receive buffer, or NULL */
};

static Nccl nccl;

static Err load_nccl(void) {
  static void *library; /* handle of the NCCL library, which is never unloaded */
  static const struct {
    const char *name;
    size_t at;
  } list[] = {{"ncclGetVersion", offsetof(Nccl, GetVersion)},
              {"ncclGetUniqueId", offsetof(Nccl, GetUniqueId)},
              {"ncclCommInitRank", offsetof(Nccl, CommInitRank)},
              {"ncclCommAbort", offsetof(Nccl, CommAbort)},
              {"ncclCommGetAsyncError", offsetof(Nccl, CommGetAsyncError)},
              {"ncclGetErrorString", offsetof(Nccl, GetErrorString)},
              {"ncclGetLastError", offsetof(Nccl, GetLastError)},
              {"ncclAllReduce", offsetof(Nccl, AllReduce)},
              {"ncclReduce", offsetof(Nccl, Reduce)},
              {"ncclReduceScatter", offsetof(Nccl, ReduceScatter)},
              {"ncclAllGather", offsetof(Nccl, AllGather)},
              {"ncclBroadcast", offsetof(Nccl, Broadcast)},
              {"ncclGroupStart", offsetof(Nccl, GroupStart)},
              {"ncclGroupEnd", offsetof(Nccl, GroupEnd)}};
  if (library) return ERR_OK;
  void *found = dlopen(NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!found) return err_set(ERR_WORK, "cannot load NCCL: %s; install libnccl2", dlerror());
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    void *symbol = dlsym(found, list[i].name);
    if (!symbol) {
      dlclose(found);
      return err_set(ERR_WORK, "%s has no %s; install NCCL 2.13 or later", NCCL_LIBRARY,
                     list[i].name);
    }
    memcpy((char *)&nccl + list[i].at, &symbol, sizeof symbol);
  }
  void *symbol = dlsym(found, "ncclCommInitRankConfig");
  memcpy(&nccl.CommInitRankConfig, &symbol, sizeof symbol);
  library = found;
  return ERR_OK;
}

static Err probe_nccl(char about[64], int *version) {
  *version = 0;
  TRY(load_nccl());
  int v = 0;
  if (nccl.GetVersion(&v) != NCCL_SUCCESS || v < NCCL_OLDEST)
    return err_set(ERR_WORK, "%s is version %d; install NCCL 2.13 or later", NCCL_LIBRARY, v);
  *version = v;
  snprintf(about, 64, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  return ERR_OK;
}

static Err report_failure(const char *what, int result, NcclComm *comm) {
  const char *more = nccl.GetLastError(comm);
  return err_set(
      ERR_WORK,
      "NCCL failed in %s: %s (%.300s); run again with NCCL_DEBUG=WARN to see why, or "
      "with --allreduce-transport host",
      what, nccl.GetErrorString(result), more && *more ? more : "no details");
}

/* Stores an error of NCCL as the device's first error, which `poll`, `get` and `sync` return. */
static void note_result(DeviceComm *w, const char *what, int result) {
  if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS || w->cuda->failed.code) return;
  cuda_note_err(w->cuda, report_failure(what, result, w->comm));
}

static Err create_id(char id[DEVICE_COMM_ID]) {
  NcclId fresh;
  _Static_assert(sizeof fresh == DEVICE_COMM_ID, "ids must have the same size");
  TRY(load_nccl());
  int result = nccl.GetUniqueId(&fresh);
  if (result != NCCL_SUCCESS) return report_failure("ncclGetUniqueId", result, NULL);
  memcpy(id, &fresh, sizeof fresh);
  return ERR_OK;
}

/* ncclCommAbort aborts the collectives in flight and frees the communicator. */
static void free_comm(DeviceComm *w) {
  cudaSetDevice(w->device);
  nccl.CommAbort(w->comm);
}

/* Ends the use that lease_take() began; frees the communicator if it was aborted in the
 * meantime. */
static void release_comm(DeviceComm *w) {
  if (lease_return(&w->lease)) free_comm(w);
}

/* Implements DeviceCommOps.abort; any thread may call it. */
static void abort_comm(DeviceComm *w) {
  if (w->comm && lease_end(&w->lease, ABORT_WAIT)) free_comm(w);
}

static void close_comm(DeviceComm *w) {
  if (!w) return;
  w->cuda->matmul.reserved_sms = 0;
  w->cuda->matmul.quiesce = NULL;
  abort_comm(w);
  if (w->stream) cudaStreamSynchronize(w->stream);
  if (w->inputs_ready) cudaEventDestroy(w->inputs_ready);
  if (w->others_ready) cudaEventDestroy(w->others_ready);
  if (w->done) cudaEventDestroy(w->done);
  if (w->stream) cudaStreamDestroy(w->stream);
  cudaFree(w->low);
  lease_close(&w->lease);
  mem_free(w);
}

/* Creates stream and events. The stream has the highest priority, so that collectives that
 * overlap the backward pass are scheduled before its kernels. */
static cudaError_t create_stream(DeviceComm *w) {
  int least = 0, greatest = 0;
  cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (!e) e = cudaStreamCreateWithPriority(&w->stream, cudaStreamNonBlocking, greatest);
  if (!e) e = cudaEventCreateWithFlags(&w->inputs_ready, cudaEventDisableTiming);
  if (!e) e = cudaEventCreateWithFlags(&w->others_ready, cudaEventDisableTiming);
  if (!e) e = cudaEventCreateWithFlags(&w->done, cudaEventDisableTiming);
  if (!e && w->spec.bf16) e = cudaMalloc(&w->low, w->spec.max_elements * 2);
  if (!e) e = cudaEventRecord(w->inputs_ready, w->cuda->stream);
  if (!e) e = cudaEventRecord(w->done, w->stream);
  return e;
}

/* Joins the ranks of the id; blocks until all have come. */
static int join_ranks(DeviceComm *w, NcclId id) {
  const DeviceCommSpec *s = &w->spec;
  NcclConfig config = {.size = sizeof config,
                       .magic = NCCL_CONFIG_MAGIC,
                       .version = NCCL_CONFIG_VERSION,
                       .blocking = NCCL_CONFIG_UNDEF,
                       .cga_cluster_size = NCCL_CONFIG_UNDEF,
                       .min_ctas = NCCL_CONFIG_UNDEF,
                       .max_ctas = s->max_ctas};
  if (!s->max_ctas) return nccl.CommInitRank(&w->comm, s->size, id, s->rank);
  return nccl.CommInitRankConfig(&w->comm, s->size, id, s->rank, &config);
}

/* A limit of CTAs needs a later NCCL than everything else. */
static Err check_ctas(const DeviceCommSpec *s) {
  int version = 0;
  if (!s->max_ctas) return ERR_OK;
  (void)nccl.GetVersion(&version);
  if (nccl.CommInitRankConfig && version >= NCCL_CONFIG_VERSION) return ERR_OK;
  return err_set(
      ERR_USAGE,
      "--nccl-ctas needs NCCL 2.17 or later, and this is %d.%d.%d; install it, or pass "
      "--nccl-ctas 0%s",
      version / 10000, version / 100 % 100, version % 100,
      s->reserves_sms ? " --reserve-sms no" : "");
}

static Err open_comm(DeviceComm **out, const Backend *b, const char id[DEVICE_COMM_ID],
                     const DeviceCommSpec *spec) {
  DeviceComm *w;
  NcclId key;
  *out = NULL;
  TRY(load_nccl());
  TRY(check_ctas(spec));
  TRY(mem_alloc(&w, 1, sizeof *w));
  w->cuda = cuda_of(b);
  w->device = b->device;
  w->spec = *spec;
  lease_open(&w->lease);
  cudaError_t e = create_stream(w);
  Err err = ERR_OK;
  if (e) {
    cuda_note(w->cuda, "preparing NCCL", e);
    err = err_give(&w->cuda->failed);
  }
  memcpy(&key, id, sizeof key);
  int result = err ? NCCL_SUCCESS : join_ranks(w, key);
  if (result != NCCL_SUCCESS) {
    w->comm = NULL; /* Opening failed, so there is no communicator to abort. */
    err = report_failure("ncclCommInitRank", result, NULL);
  }
  if (err) {
    ErrRecord kept = err_take(err);
    close_comm(w);
    return err_give(&kept);
  }
  w->cuda->matmul.reserved_sms = spec->reserves_sms ? spec->max_ctas : 0;
  w->cuda->matmul.quiesce = spec->quiesce;
  w->cuda->matmul.quiesce_context = spec->context;
  *out = w;
  return ERR_OK;
}

/* Makes the next collective wait for the work enqueued on the compute stream so far, and
 * records the event there. */
static void begin_collective(DeviceComm *w, cudaEvent_t event) {
  Cuda *c = w->cuda;
  cuda_note(c, "a collective", cudaEventRecord(event, c->stream));
  cuda_note(c, "a collective", cudaStreamWaitEvent(w->stream, event, 0));
}

static void end_collective(DeviceComm *w) {
  cuda_note(w->cuda, "a collective", cudaEventRecord(w->done, w->stream));
}

/* Returns the array to send: x itself, or a bf16 copy of it. */
static void *cast_to_low(DeviceComm *w, float *x, size_t n) {
  if (!w->low) return x;
  cuda_note(w->cuda, "a collective", kernel_cast_to(TYPE_BF16, w->low, x, n, w->stream));
  return w->low;
}

/* Converts elements [at, at + n) of the bf16 buffer back to x. */
static void cast_from_low(DeviceComm *w, float *x, size_t at, size_t n) {
  if (!w->low || n == 0) return;
  cuda_note(w->cuda, "a collective",
            kernel_cast_from(TYPE_BF16, x + at, (char *)w->low + 2 * at, n, w->stream));
}

static void all_reduce(DeviceComm *w, float *x, size_t n) {
  int type = w->low ? NCCL_BF16 : NCCL_FLOAT;
  if (!lease_take(&w->lease)) return; /* The communicator was aborted. */
  begin_collective(w, w->inputs_ready);
  void *y = cast_to_low(w, x, n);
  note_result(w, "a gradient all-reduce",
              nccl.AllReduce(y, y, n, type, NCCL_ADD, w->comm, w->stream));
  cast_from_low(w, x, 0, n);
  end_collective(w);
  release_comm(w);
}

static void all_reduce_doubles(DeviceComm *w, double *x, size_t n) {
  if (!lease_take(&w->lease)) return;
  begin_collective(w, w->others_ready);
  note_result(w, "an all-reduce of losses or norms",
              nccl.AllReduce(x, x, n, NCCL_DOUBLE, NCCL_ADD, w->comm, w->stream));
  end_collective(w);
  release_comm(w);
}

/* Returns the size of a piece if all are equal, otherwise 0. ncclReduceScatter and ncclAllGather
 * need equal pieces; unequal ones are grouped ncclReduce or ncclBroadcast calls. */
static size_t equal_piece_size(const DeviceComm *w, const size_t *off) {
  size_t each = off[1] - off[0];
  for (int r = 1; r < w->spec.size; r++)
    if (off[r + 1] - off[r] != each) return 0;
  return each;
}

static void reduce_scatter(DeviceComm *w, float *x, const size_t *off) {
  int type = w->low ? NCCL_BF16 : NCCL_FLOAT, rank = w->spec.rank;
  size_t wide = w->low ? 2 : 4, first = off[0], each = equal_piece_size(w, off);
  if (!lease_take(&w->lease)) return;
  begin_collective(w, w->inputs_ready);
  float *from = x + first;
  char *y = cast_to_low(w, from, off[w->spec.size] - first);
  if (each) {
    note_result(w, "a gradient all-reduce",
                nccl.ReduceScatter(y, y + (off[rank] - first) * wide, each, type, NCCL_ADD,
                                   w->comm, w->stream));
  } else {
    note_result(w, "a gradient all-reduce", nccl.GroupStart());
    for (int r = 0; r < w->spec.size; r++) {
      char *at = y + (off[r] - first) * wide;
      if (off[r + 1] > off[r])
        note_result(
            w, "a gradient all-reduce",
            nccl.Reduce(at, at, off[r + 1] - off[r], type, NCCL_ADD, r, w->comm, w->stream));
    }
    note_result(w, "a gradient all-reduce", nccl.GroupEnd());
  }
  cast_from_low(w, from, off[rank] - first, off[rank + 1] - off[rank]);
  end_collective(w);
  release_comm(w);
}

/* Gathers one range, inside a group. Returns the number of calls. */
static size_t gather_range(DeviceComm *w, char *x, size_t width, const size_t *off) {
  static const char what[] = "a weight all-gather";
  size_t each = equal_piece_size(w, off), calls = 0;
  int type = width == 2 ? NCCL_BF16 : NCCL_FLOAT;
  if (each) {
    note_result(w, what,
                nccl.AllGather(x + off[w->spec.rank] * width, x + off[0] * width, each, type,
                               w->comm, w->stream));
    return 1;
  }
  for (int r = 0; r < w->spec.size; r++) {
    char *at = x + off[r] * width;
    if (off[r + 1] == off[r]) continue;
    note_result(w, what,
                nccl.Broadcast(at, at, off[r + 1] - off[r], type, r, w->comm, w->stream));
    calls++;
  }
  return calls;
}

/* NCCL runs the calls of a group in few kernels; each call alone would cost its latency. */
static void all_gather(DeviceComm *w, void *x, const DeviceGather *g) {
  size_t size = (size_t)w->spec.size, calls = 0;
  if (!lease_take(&w->lease)) return;
  begin_collective(w, w->others_ready);
  note_result(w, "a weight all-gather", nccl.GroupStart());
  for (size_t i = 0; i < g->ranges; i++) {
    if (calls > 0 && calls + size > GROUP_CALLS) {
      note_result(w, "a weight all-gather", nccl.GroupEnd());
      note_result(w, "a weight all-gather", nccl.GroupStart());
      calls = 0;
    }
    calls += gather_range(w, x, g->width, g->off + i * (size + 1));
  }
  note_result(w, "a weight all-gather", nccl.GroupEnd());
  end_collective(w);
  release_comm(w);
}

static void join_streams(DeviceComm *w) {
  w->cuda->converted.of = NULL; /* A collective may have written the array. */
  cuda_note(w->cuda, "a collective", cudaStreamWaitEvent(w->cuda->stream, w->done, 0));
}

static bool is_done(DeviceComm *w, cudaEvent_t event) {
  cudaError_t e = cudaEventQuery(event);
  if (e == cudaErrorNotReady)
    (void)cudaGetLastError(); /* Clears "not ready", which is not an error. */
  else
    cuda_note(w->cuda, "a collective", e);
  return e == cudaSuccess;
}

static Err poll_comm(DeviceComm *w, bool *inputs_ready, bool *done) {
  int state = NCCL_SUCCESS;
  *inputs_ready = false;
  *done = false;
  /* The communicator was aborted; the thread that did so reports the reason. */
  if (!lease_take(&w->lease)) return ERR_OK;
  *inputs_ready = is_done(w, w->inputs_ready);
  *done = *inputs_ready && is_done(w, w->done);
  note_result(w, "ncclCommGetAsyncError", nccl.CommGetAsyncError(w->comm, &state));
  note_result(w, "a collective", state);
  release_comm(w);
  return w->cuda->failed.code ? err_give(&w->cuda->failed) : ERR_OK;
}

const DeviceCommOps nccl_comm = {.probe = probe_nccl,
                                 .create_id = create_id,
                                 .open = open_comm,
                                 .close = close_comm,
                                 .abort = abort_comm,
                                 .all_reduce = all_reduce,
                                 .all_reduce_doubles = all_reduce_doubles,
                                 .reduce_scatter = reduce_scatter,
                                 .all_gather = all_gather,
                                 .join = join_streams,
                                 .poll = poll_comm};
