/* The wire between GPUs: NCCL, loaded where it is wanted. Everything runs on a stream
 * of its own beside the compute stream. Threads: one queues and tests; any other may abort, so
 * each use of the communicator holds a lease. Depends on memory, kernels (casts), lease. */
#include "backend/cuda/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/nccl_abi.h"
#include "base/lease.h"
#include "base/mem.h"

/* Seconds an abort waits for a call into NCCL to return: one blocks that connects to a lost rank.
 * Less than the time the communication thread gives a rank to end. */
#define ABORT_WAIT 5

struct DeviceComm {
  Cuda *cuda;
  int device;
  DeviceCommSpec spec;
  NcclComm *comm; /* used under the lease alone: an abort frees it */
  Lease lease;
  cudaStream_t stream;
  cudaEvent_t made; /* on the compute stream: what the operations so far wait for */
  cudaEvent_t done; /* on the wire's: the operations so far */
  void *low;        /* (most) bf16: the array at hand, or NULL */
};

static Nccl nccl;

static Err load(void) {
  static void *library; /* stays loaded, as CUDA does */
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
  if (!found)
    return err_set(ERR_WORK, "NCCL cannot be loaded: %s; install libnccl2", dlerror());
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    void *symbol = dlsym(found, list[i].name);
    if (!symbol) {
      dlclose(found);
      return err_set(ERR_WORK, "%s has no %s; install NCCL 2.13 or later", NCCL_LIBRARY,
                     list[i].name);
    }
    memcpy((char *)&nccl + list[i].at, &symbol, sizeof symbol);
  }
  library = found;
  return ERR_OK;
}

static Err look(char about[64], int *version) {
  *version = 0;
  TRY(load());
  int v = 0;
  if (nccl.GetVersion(&v) != NCCL_SUCCESS || v < NCCL_OLDEST)
    return err_set(ERR_WORK, "%s is version %d; install NCCL 2.13 or later", NCCL_LIBRARY, v);
  *version = v;
  snprintf(about, 64, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  return ERR_OK;
}

static Err told(const char *what, int result, NcclComm *comm) {
  const char *more = nccl.GetLastError(comm);
  return err_set(
      ERR_WORK,
      "NCCL failed in %s: %s (%.300s); run again with NCCL_DEBUG=WARN to see why, or "
      "with --allreduce-transport host",
      what, nccl.GetErrorString(result), more && *more ? more : "no more is known");
}

/* What fails is noted with the device's other failures; `test` and `get` tell. */
static void note(DeviceComm *w, const char *what, int result) {
  if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS || w->cuda->failed.code) return;
  cuda_note_err(w->cuda, told(what, result, w->comm));
}

static Err name(char id[DEVICE_COMM_ID]) {
  NcclId fresh;
  _Static_assert(sizeof fresh == DEVICE_COMM_ID, "an id is what travels");
  TRY(load());
  int result = nccl.GetUniqueId(&fresh);
  if (result != NCCL_SUCCESS) return told("its beginning", result, NULL);
  memcpy(id, &fresh, sizeof fresh);
  return ERR_OK;
}

/* ncclCommAbort ends what is under way, and frees the communicator. */
static void abort_comm(DeviceComm *w) {
  cudaSetDevice(w->device);
  nccl.CommAbort(w->comm);
}

static void return_comm(DeviceComm *w) {
  if (lease_return(&w->lease)) abort_comm(w);
}

/* From any thread. */
static void give_up(DeviceComm *w) {
  if (w->comm && lease_end(&w->lease, ABORT_WAIT)) abort_comm(w);
}

static void close_wire(DeviceComm *w) {
  if (!w) return;
  w->cuda->products.quiesce = NULL;
  give_up(w);
  if (w->stream) cudaStreamSynchronize(w->stream);
  if (w->made) cudaEventDestroy(w->made);
  if (w->done) cudaEventDestroy(w->done);
  if (w->stream) cudaStreamDestroy(w->stream);
  cudaFree(w->low);
  lease_close(&w->lease);
  mem_free(w);
}

/* What overlaps the backward pass must get its turn: the highest priority there is. */
static cudaError_t prepare(DeviceComm *w) {
  int least = 0, greatest = 0;
  cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (!e) e = cudaStreamCreateWithPriority(&w->stream, cudaStreamNonBlocking, greatest);
  if (!e) e = cudaEventCreateWithFlags(&w->made, cudaEventDisableTiming);
  if (!e) e = cudaEventCreateWithFlags(&w->done, cudaEventDisableTiming);
  if (!e && w->spec.bf16) e = cudaMalloc(&w->low, w->spec.max_elements * 2);
  if (!e) e = cudaEventRecord(w->made, w->cuda->stream);
  if (!e) e = cudaEventRecord(w->done, w->stream);
  return e;
}

static Err open_wire(DeviceComm **out, const Backend *b, const char id[DEVICE_COMM_ID],
                     const DeviceCommSpec *spec) {
  DeviceComm *w;
  NcclId key;
  *out = NULL;
  TRY(load());
  TRY(mem_alloc(&w, 1, sizeof *w));
  w->cuda = cuda_of(b), w->device = b->device, w->spec = *spec;
  lease_open(&w->lease);
  cudaError_t e = prepare(w);
  Err err = ERR_OK;
  if (e) {
    cuda_note(w->cuda, "preparing the exchange", e);
    err = err_give(&w->cuda->failed);
  }
  memcpy(&key, id, sizeof key);
  int result = err ? NCCL_SUCCESS : nccl.CommInitRank(&w->comm, spec->size, key, spec->rank);
  if (result != NCCL_SUCCESS) {
    w->comm = NULL; /* there is nothing to give up */
    err = told("joining the GPUs", result, NULL);
  }
  if (err) {
    ErrRecord kept = err_take(err);
    close_wire(w);
    return err_give(&kept);
  }
  w->cuda->products.quiesce = spec->quiesce;
  w->cuda->products.quiesce_context = spec->context;
  *out = w;
  return ERR_OK;
}

/* Behind what the compute stream has been given so far. */
static void begin(DeviceComm *w) {
  Cuda *c = w->cuda;
  cuda_note(c, "the exchange", cudaEventRecord(w->made, c->stream));
  cuda_note(c, "the exchange", cudaStreamWaitEvent(w->stream, w->made, 0));
}

static void end(DeviceComm *w) {
  cuda_note(w->cuda, "the exchange", cudaEventRecord(w->done, w->stream));
}

/* The array as it travels: itself, or rounded. */
static void *narrow(DeviceComm *w, float *x, size_t n) {
  if (!w->low) return x;
  cuda_note(w->cuda, "the exchange", kernel_cast_to(TYPE_BF16, w->low, x, n, w->stream));
  return w->low;
}

static void widen(DeviceComm *w, float *x, size_t at, size_t n) {
  if (!w->low || n == 0) return;
  cuda_note(w->cuda, "the exchange",
            kernel_cast_from(TYPE_BF16, x + at, (char *)w->low + 2 * at, n, w->stream));
}

static void sum(DeviceComm *w, float *x, size_t n) {
  int type = w->low ? NCCL_BF16 : NCCL_FLOAT;
  if (!lease_take(&w->lease)) return; /* there is nobody to ask any more */
  begin(w);
  void *y = narrow(w, x, n);
  note(w, "adding gradients", nccl.AllReduce(y, y, n, type, NCCL_ADD, w->comm, w->stream));
  widen(w, x, 0, n);
  end(w);
  return_comm(w);
}

/* Elements of a piece, if all are of one size; else 0. */
static size_t even(const DeviceComm *w, const size_t *off) {
  size_t each = off[1] - off[0];
  for (int r = 1; r < w->spec.size; r++)
    if (off[r + 1] - off[r] != each) return 0;
  return each;
}

static void scatter(DeviceComm *w, float *x, const size_t *off) {
  int type = w->low ? NCCL_BF16 : NCCL_FLOAT, rank = w->spec.rank;
  size_t wide = w->low ? 2 : 4, first = off[0], each = even(w, off);
  if (!lease_take(&w->lease)) return;
  begin(w);
  float *from = x + first;
  char *y = narrow(w, from, off[w->spec.size] - first);
  if (each) {
    note(w, "adding gradients",
         nccl.ReduceScatter(y, y + (off[rank] - first) * wide, each, type, NCCL_ADD, w->comm,
                            w->stream));
  } else {
    note(w, "adding gradients", nccl.GroupStart());
    for (int r = 0; r < w->spec.size; r++) {
      char *at = y + (off[r] - first) * wide;
      if (off[r + 1] > off[r])
        note(w, "adding gradients",
             nccl.Reduce(at, at, off[r + 1] - off[r], type, NCCL_ADD, r, w->comm, w->stream));
    }
    note(w, "adding gradients", nccl.GroupEnd());
  }
  widen(w, from, off[rank] - first, off[rank + 1] - off[rank]);
  end(w);
  return_comm(w);
}

static void gather(DeviceComm *w, float *x, const size_t *off) {
  size_t each = even(w, off);
  if (!lease_take(&w->lease)) return;
  begin(w);
  if (each) {
    note(w, "gathering weights",
         nccl.AllGather(x + off[w->spec.rank], x + off[0], each, NCCL_FLOAT, w->comm,
                        w->stream));
  } else {
    note(w, "gathering weights", nccl.GroupStart());
    for (int r = 0; r < w->spec.size; r++)
      if (off[r + 1] > off[r])
        note(w, "gathering weights",
             nccl.Broadcast(x + off[r], x + off[r], off[r + 1] - off[r], NCCL_FLOAT, r, w->comm,
                            w->stream));
    note(w, "gathering weights", nccl.GroupEnd());
  }
  end(w);
  return_comm(w);
}

static void join(DeviceComm *w) {
  cuda_note(w->cuda, "the exchange", cudaStreamWaitEvent(w->cuda->stream, w->done, 0));
}

static bool is_over(DeviceComm *w, cudaEvent_t event) {
  cudaError_t e = cudaEventQuery(event);
  if (e == cudaErrorNotReady)
    (void)cudaGetLastError(); /* no error of whoever asks next */
  else
    cuda_note(w->cuda, "the exchange", e);
  return e == cudaSuccess;
}

static Err test(DeviceComm *w, bool *made, bool *done) {
  int state = NCCL_SUCCESS;
  *made = *done = false;
  if (!lease_take(&w->lease)) return ERR_OK; /* whoever did it says why */
  *made = is_over(w, w->made);
  *done = *made && is_over(w, w->done);
  note(w, "the exchange", nccl.CommGetAsyncError(w->comm, &state));
  note(w, "the exchange between GPUs", state);
  return_comm(w);
  return w->cuda->failed.code ? err_give(&w->cuda->failed) : ERR_OK;
}

const DeviceCommOps nccl_wire = {look, name,    open_wire, close_wire, give_up,
                                 sum,  scatter, gather,    join,       test};
