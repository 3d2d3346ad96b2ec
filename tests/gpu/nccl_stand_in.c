/* A stand-in for libnccl.so.2, for tests: the functions that nccl.c loads, between processes that
 * may share one GPU, which NCCL refuses. As in NCCL, a collective only enqueues work on the
 * caller's stream: a copy to the host, a host function that exchanges with the other ranks
 * (nccl_exchange.h), and a copy back. A missing rank blocks the stream until the communicator is
 * aborted. Sums are added in the order of the ranks. Environment:
 *   NCCL_STAND_IN_DIR=PATH          directory for the file that the ranks share (/dev/shm)
 *   NCCL_STAND_IN_DIE=CALL:N:R      rank R is killed in its Nth call of this collective (from 1)
 *   NCCL_STAND_IN_FAIL=CALL:N:R     the communicator of rank R fails in that call
 *   NCCL_STAND_IN_WRONG=CALL:N:R    rank R receives a wrong first element in that call
 *   NCCL_STAND_IN_OCCUPY=CTAS:US:GBS
 *                                   one rank: a collective occupies CTAS SMs for US microseconds plus
 *                                   its bytes at GBS GB/s, as if there were other ranks; a lower
 *                                   limit of CTAs lowers the rate in proportion
 *   NCCL_STAND_IN_CALLS=PATH        when a communicator ends, its rank, number of calls of each
 *                                   collective, those that occupied SMs, and limit of CTAs are appended
 *                                   to this file
 * CALL is all-reduce, reduce, reduce-scatter, all-gather or broadcast. Depends on the CUDA runtime,
 * nccl_exchange, occupy. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/nccl_abi.h"
#include "nccl_exchange.h"
#include "occupy.h"

/* Results that nccl.c does not name. */
enum { CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6 };

typedef enum { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, CALLS } CallKind;
static const char *const call_name[CALLS] = {"all-reduce", "reduce", "reduce-scatter",
                                             "all-gather", "broadcast"};

struct NcclComm {
  Exchange *exchange;
  int rank, size;
  cudaStream_t stream;   /* stream of the last collective, or NULL */
  void *send, *recv;     /* (EXCHANGE_SLOT) pinned; the order of the stream protects them */
  atomic_int state;      /* result of CommGetAsyncError */
  unsigned calls[CALLS]; /* number of calls so far */
  int max_ctas;          /* 0: not configured */
  unsigned occupied;     /* number of calls that occupied SMs */
};

typedef struct {
  CallKind kind;
  const void *from;
  void *to;
  size_t n; /* elements of the array or, in reduce-scatter and all-gather, of one piece */
  int type, root;
  NcclComm *comm;
  cudaStream_t stream;
} Call;

/* What the host function of a step does beside the exchange. */
typedef enum { NO_FAULT, DIE, FAIL, WRONG } Fault;

typedef struct {
  NcclComm *comm;
  ExchangeStep step;
  Fault fault;
} Task;

enum { GROUPED = 256 };
static _Thread_local int group_depth;
static _Thread_local Call grouped[GROUPED];
static _Thread_local size_t grouped_calls;
static char last_error[256];

int ncclGetVersion(int *version);
int ncclGetUniqueId(NcclId *id);
int ncclCommInitRank(NcclComm **comm, int size, NcclId id, int rank);
int ncclCommInitRankConfig(NcclComm **comm, int size, NcclId id, int rank, NcclConfig *config);
int ncclCommAbort(NcclComm *comm);
int ncclCommGetAsyncError(NcclComm *comm, int *state);
const char *ncclGetErrorString(int result);
const char *ncclGetLastError(NcclComm *comm);
int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, NcclComm *,
                  cudaStream_t);
int ncclReduce(const void *from, void *to, size_t n, int type, int op, int root, NcclComm *,
               cudaStream_t);
int ncclReduceScatter(const void *from, void *to, size_t each, int type, int op, NcclComm *,
                      cudaStream_t);
int ncclAllGather(const void *from, void *to, size_t each, int type, NcclComm *, cudaStream_t);
int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, NcclComm *,
                  cudaStream_t);
int ncclGroupStart(void);
int ncclGroupEnd(void);

static int fail(int result, const char *why) {
  snprintf(last_error, sizeof last_error, "stand-in: %s", why);
  return result;
}

/* 2.99.0 is no version of NCCL, so that a log shows which library was used. */
int ncclGetVersion(int *version) {
  *version = 29900;
  return NCCL_SUCCESS;
}

int ncclGetUniqueId(NcclId *id) {
  static atomic_uint count;
  const char *directory = getenv("NCCL_STAND_IN_DIR");
  memset(id, 0, sizeof *id);
  int length =
      snprintf(id->bytes, sizeof id->bytes, "%s/trireme-nccl-%ld-%u",
               directory ? directory : "/dev/shm", (long)getpid(), atomic_fetch_add(&count, 1));
  if (length >= (int)sizeof id->bytes)
    return fail(INVALID_USAGE, "NCCL_STAND_IN_DIR is too long");
  return NCCL_SUCCESS;
}

static void free_comm(NcclComm *c) {
  if (c->exchange) exchange_close(c->exchange);
  cudaFreeHost(c->send);
  cudaFreeHost(c->recv);
  free(c);
}

int ncclCommInitRank(NcclComm **comm, int size, NcclId id, int rank) {
  *comm = NULL;
  if (size < 1 || size > EXCHANGE_RANKS || rank < 0 || rank >= size)
    return fail(INVALID_ARGUMENT, "rank or number of ranks");
  NcclComm *c = calloc(1, sizeof *c);
  if (!c) return fail(SYSTEM_ERROR, "no memory");
  c->rank = rank;
  c->size = size;
  if (cudaMallocHost(&c->send, EXCHANGE_SLOT) || cudaMallocHost(&c->recv, EXCHANGE_SLOT)) {
    free_comm(c);
    return fail(CUDA_ERROR, "no pinned memory");
  }
  c->exchange = exchange_open(id.bytes, rank, size);
  if (!c->exchange) {
    free_comm(c);
    return fail(SYSTEM_ERROR, strerror(errno));
  }
  *comm = c;
  return NCCL_SUCCESS;
}

int ncclCommInitRankConfig(NcclComm **comm, int size, NcclId id, int rank, NcclConfig *config) {
  bool is_valid = config->size == sizeof *config && config->magic == NCCL_CONFIG_MAGIC &&
                  config->version == NCCL_CONFIG_VERSION && config->max_ctas > 0;
  if (!is_valid) return fail(INVALID_ARGUMENT, "configuration");
  int result = ncclCommInitRank(comm, size, id, rank);
  if (result == NCCL_SUCCESS) (*comm)->max_ctas = config->max_ctas;
  return result;
}

static void write_calls(const NcclComm *c) {
  const char *path = getenv("NCCL_STAND_IN_CALLS");
  char line[256];
  FILE *f = path ? fopen(path, "a") : NULL;
  if (!f) return;
  int at = snprintf(line, sizeof line, "rank %d", c->rank);
  for (int k = 0; k < CALLS; k++)
    at += snprintf(line + at, sizeof line - (size_t)at, " %s %u", call_name[k], c->calls[k]);
  if (c->occupied)
    at += snprintf(line + at, sizeof line - (size_t)at, " occupied %u", c->occupied);
  if (c->max_ctas) snprintf(line + at, sizeof line - (size_t)at, " ctas %d", c->max_ctas);
  fprintf(f, "%s\n", line);
  fclose(f);
}

/* Waits for the host functions in the stream, which return immediately after the abort. */
int ncclCommAbort(NcclComm *c) {
  exchange_abort(c->exchange);
  if (c->stream) cudaStreamSynchronize(c->stream);
  write_calls(c);
  free_comm(c);
  return NCCL_SUCCESS;
}

int ncclCommGetAsyncError(NcclComm *c, int *state) {
  *state = atomic_load(&c->state);
  return NCCL_SUCCESS;
}

const char *ncclGetErrorString(int result) {
  static const char *const text[] = {"no error",
                                     "unhandled cuda error",
                                     "unhandled system error",
                                     "internal error",
                                     "invalid argument",
                                     "invalid usage",
                                     "remote process exited or there was a network error"};
  return result >= 0 && result < (int)(sizeof text / sizeof *text) ? text[result] : "unknown";
}

const char *ncclGetLastError(NcclComm *comm) {
  (void)comm;
  return last_error;
}

/* Returns true if the variable names this call. */
static bool is_named(const char *variable, const Call *call) {
  const char *text = getenv(variable), *name = call_name[call->kind];
  size_t length = strlen(name);
  unsigned n;
  int rank;
  if (!text || strncmp(text, name, length) != 0) return false;
  if (sscanf(text + length, ":%u:%d", &n, &rank) != 2) return false;
  return n == call->comm->calls[call->kind] && rank == call->comm->rank;
}

static Fault choose_fault(const Call *call) {
  if (is_named("NCCL_STAND_IN_DIE", call)) return DIE;
  if (is_named("NCCL_STAND_IN_FAIL", call)) return FAIL;
  if (is_named("NCCL_STAND_IN_WRONG", call)) return WRONG;
  return NO_FAULT;
}

static void stop_comm(NcclComm *c, int result, const char *why) {
  atomic_store(&c->state, fail(result, why));
}

/* Host function in the stream: must not call CUDA. */
static void CUDART_CB run_task(void *context) {
  Task *t = context;
  NcclComm *c = t->comm;
  if (atomic_load(&c->state) == NCCL_SUCCESS) {
    if (t->fault == DIE) kill(getpid(), SIGKILL);
    if (t->fault == FAIL) stop_comm(c, REMOTE, "failed by NCCL_STAND_IN_FAIL");
  }
  if (atomic_load(&c->state) == NCCL_SUCCESS) {
    ExchangeResult result = exchange_run(c->exchange, &t->step, c->send, c->recv);
    if (result == EXCHANGE_DIFFERS)
      stop_comm(c, INVALID_USAGE, "the ranks run different collectives");
    if (t->fault == WRONG) memset(c->recv, 0x40, exchange_width(t->step.type));
  }
  free(t);
}

static int enqueue_step(const Call *call, const ExchangeStep *step, Fault fault,
                        const char *from, char *to) {
  NcclComm *c = call->comm;
  size_t bytes = step->n * exchange_width(step->type);
  bool sends = step->kind == EXCHANGE_ADD || step->root == c->rank;
  bool receives =
      step->kind == EXCHANGE_COPY || step->root == EXCHANGE_ALL || step->root == c->rank;
  Task *t = malloc(sizeof *t);
  if (!t) return fail(SYSTEM_ERROR, "no memory");
  *t = (Task){c, *step, fault};
  cudaError_t e = cudaSuccess;
  if (sends) e = cudaMemcpyAsync(c->send, from, bytes, cudaMemcpyDeviceToHost, call->stream);
  if (!e) e = cudaLaunchHostFunc(call->stream, run_task, t);
  if (e) free(t);
  if (!e && receives)
    e = cudaMemcpyAsync(to, c->recv, bytes, cudaMemcpyHostToDevice, call->stream);
  return e ? fail(CUDA_ERROR, cudaGetErrorString(e)) : NCCL_SUCCESS;
}

static int find_type(int nccl_type) {
  if (nccl_type == NCCL_DOUBLE) return EXCHANGE_FP64;
  return nccl_type == NCCL_BF16 ? EXCHANGE_BF16 : EXCHANGE_FP32;
}

/* Cuts an array into steps. */
static int enqueue_array(const Call *call, ExchangeKind kind, int root, Fault fault,
                         const char *from, char *to) {
  int type = find_type(call->type);
  size_t width = exchange_width(type), most = EXCHANGE_SLOT / width;
  for (size_t at = 0; at < call->n; at += most) {
    size_t n = call->n - at < most ? call->n - at : most;
    ExchangeStep step = {(int32_t)kind, type, root, (int32_t)call->kind, n};
    int result = enqueue_step(call, &step, fault, from + at * width, to + at * width);
    if (result != NCCL_SUCCESS) return result;
  }
  return NCCL_SUCCESS;
}

/* Reduce-scatter is a reduce to each rank in turn, all-gather a broadcast from each. */
static int enqueue_pieces(const Call *call, Fault fault) {
  bool gathers = call->kind == ALL_GATHER;
  size_t bytes = call->n * exchange_width(find_type(call->type));
  for (int r = 0; r < call->comm->size; r++) {
    const char *from = call->from;
    char *to = call->to;
    int result =
        gathers ? enqueue_array(call, EXCHANGE_COPY, r, fault, from, to + (size_t)r * bytes)
                : enqueue_array(call, EXCHANGE_ADD, r, fault, from + (size_t)r * bytes, to);
    if (result != NCCL_SUCCESS) return result;
  }
  return NCCL_SUCCESS;
}

/* Occupies SMs as NCCL_STAND_IN_OCCUPY specifies, and copies nothing: with one rank every collective
 * of nccl.c is in place. */
static int occupy_for_call(const Call *call, const char *text) {
  int ctas, limit = call->comm->max_ctas;
  double us, rate;
  if (sscanf(text, "%d:%lf:%lf", &ctas, &us, &rate) != 3 || ctas < 1 || us < 0 || !(rate > 0))
    return fail(INVALID_ARGUMENT, "NCCL_STAND_IN_OCCUPY is not CTAS:US:GBS");
  double bytes = (double)(call->n * exchange_width(find_type(call->type)));
  if (limit > 0 && limit < ctas) {
    rate *= (double)limit / ctas;
    ctas = limit;
  }
  cudaError_t e = occupy_sms(ctas, us + bytes / rate / 1000, call->stream);
  if (e) return fail(CUDA_ERROR, cudaGetErrorString(e));
  call->comm->occupied++;
  return NCCL_SUCCESS;
}

static int enqueue_call(const Call *call) {
  const char *occupies = call->comm->size == 1 ? getenv("NCCL_STAND_IN_OCCUPY") : NULL;
  call->comm->stream = call->stream;
  call->comm->calls[call->kind]++;
  if (occupies) return occupy_for_call(call, occupies);
  Fault fault = choose_fault(call);
  switch (call->kind) {
    case ALL_REDUCE:
      return enqueue_array(call, EXCHANGE_ADD, EXCHANGE_ALL, fault, call->from, call->to);
    case REDUCE:
      return enqueue_array(call, EXCHANGE_ADD, call->root, fault, call->from, call->to);
    case BROADCAST:
      return enqueue_array(call, EXCHANGE_COPY, call->root, fault, call->from, call->to);
    default:
      return enqueue_pieces(call, fault);
  }
}

/* Enqueues the call, or keeps it until the group ends. */
static int begin_call(Call call, int op) {
  if (call.type != NCCL_FLOAT && call.type != NCCL_BF16 && call.type != NCCL_DOUBLE)
    return fail(INVALID_ARGUMENT, "only fp32, bf16 and fp64");
  if (op != NCCL_ADD) return fail(INVALID_ARGUMENT, "only sums");
  if (call.root < 0 || call.root >= call.comm->size) return fail(INVALID_ARGUMENT, "root");
  if (!group_depth) return enqueue_call(&call);
  if (grouped_calls == GROUPED) return fail(INVALID_USAGE, "too many calls in a group");
  grouped[grouped_calls++] = call;
  return NCCL_SUCCESS;
}

int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, NcclComm *comm,
                  cudaStream_t stream) {
  return begin_call((Call){ALL_REDUCE, from, to, n, type, 0, comm, stream}, op);
}

int ncclReduce(const void *from, void *to, size_t n, int type, int op, int root, NcclComm *comm,
               cudaStream_t stream) {
  return begin_call((Call){REDUCE, from, to, n, type, root, comm, stream}, op);
}

int ncclReduceScatter(const void *from, void *to, size_t each, int type, int op, NcclComm *comm,
                      cudaStream_t stream) {
  return begin_call((Call){REDUCE_SCATTER, from, to, each, type, 0, comm, stream}, op);
}

int ncclAllGather(const void *from, void *to, size_t each, int type, NcclComm *comm,
                  cudaStream_t stream) {
  return begin_call((Call){ALL_GATHER, from, to, each, type, 0, comm, stream}, NCCL_ADD);
}

int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, NcclComm *comm,
                  cudaStream_t stream) {
  return begin_call((Call){BROADCAST, from, to, n, type, root, comm, stream}, NCCL_ADD);
}

int ncclGroupStart(void) {
  group_depth++;
  return NCCL_SUCCESS;
}

int ncclGroupEnd(void) {
  int result = NCCL_SUCCESS;
  if (group_depth == 0) return fail(INVALID_USAGE, "no group was started");
  if (--group_depth > 0) return NCCL_SUCCESS;
  for (size_t i = 0; i < grouped_calls && result == NCCL_SUCCESS; i++)
    result = enqueue_call(&grouped[i]);
  grouped_calls = 0;
  return result;
}
