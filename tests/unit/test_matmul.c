/* GEMMs of the CUDA plug-in and the timing of their algorithms, whose sources are included, with a fake
 * cuBLASLt: a few algorithms with given times, on a clock that only work on the GPU advances. Depends
 * on ../device/cuda. */
#include "backend/backend.h"
#include "backend/cuda/algo_cache.c"
#include "backend/cuda/algo_shared.c"
#include "backend/cuda/matmul.c"
#include "backend/cuda/matmul_call.c"
#include "backend/cuda/matmul_time.c"
#include "support.h"

/* ---- a fake GPU ---- */

#define FLUSH_MS   0.03   /* a memset of the flush buffer */
#define COUNTER_MS 0.0025 /* a memset of a tile counter */

static double clock_ms;
static int cache_bytes;      /* of the L2 cache */
static bool is_cold;         /* The cache was flushed after the last GEMM. */
static size_t largest_alloc; /* A larger allocation fails. */
static int allocations, events;

cudaError_t cudaMalloc(void *pointer, size_t bytes) {
  void *at = bytes > largest_alloc ? NULL : malloc(bytes);
  memcpy(pointer, &at, sizeof at);
  allocations += at != NULL;
  return at ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *at) {
  allocations -= at != NULL;
  free(at);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
  (void)stream;
  bool is_flush = bytes >= (size_t)cache_bytes;
  /* The first bytes of a flush buffer are enough to find one that is too short or freed. */
  memset(at, value, is_flush ? 1 : bytes);
  if (is_flush) is_cold = true;
  clock_ms += is_flush ? FLUSH_MS : COUNTER_MS;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                            cudaStream_t stream) {
  (void)kind;
  (void)stream;
  memcpy(to, from, bytes);
  return cudaSuccess;
}

struct FakeEvent {
  double ms;
};

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  *event = calloc(1, sizeof **event);
  events++;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  events--;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  (void)stream;
  event->ms = clock_ms;
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  *ms = (float)(to->ms - from->ms);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  (void)event;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  (void)stream;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == cudaDevAttrL2CacheSize ? cache_bytes : 132;
  return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorMemoryAllocation ? "out of memory" : "fake CUDA error";
}

cudaError_t kernel_column_sums(Type type, float *sums, const void *x, size_t rows, size_t n,
                               bool accumulate, void *work, cudaStream_t stream) {
  (void)type;
  (void)work;
  (void)stream;
  for (size_t c = 0; c < n; c++) {
    float sum = accumulate ? sums[c] : 0;
    for (size_t r = 0; r < rows; r++) sum += ((const float *)x)[r * n + c];
    sums[c] = sum;
  }
  return cudaSuccess;
}

cudaError_t kernel_add(float *x, const float *y, float scale, size_t n, cudaStream_t stream) {
  (void)stream;
  for (size_t i = 0; i < n; i++) x[i] += scale * y[i];
  return cudaSuccess;
}

/* ---- a fake cuBLASLt ---- */

typedef struct {
  double warm_ms, cold_ms;
  size_t workspace;
  bool fails;
} FakeAlgorithm;

#define SWIZZLE_MS 0.01 /* Swizzling makes each algorithm slower. */

static FakeAlgorithm algorithm[4];
static int algorithms, runs, last_algorithm;

static const FakeAlgorithm *find_algorithm(const cublasLtMatmulAlgo_t *x) {
  return &algorithm[x->data[0]];
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *lt) {
  *lt = NULL;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lt) {
  (void)lt;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) {
  return 130100;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "fake cuBLASLt error";
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t how, cublasComputeType_t compute,
                                      cudaDataType_t scale) {
  (void)compute;
  (void)scale;
  *how = (cublasLtMatmulDescOpaque_t){0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t how,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t size) {
  if (what == CUBLASLT_MATMUL_DESC_TRANSA) memcpy(&how->transpose_a, value, size);
  if (what == CUBLASLT_MATMUL_DESC_TRANSB) memcpy(&how->transpose_b, value, size);
  if (what == CUBLASLT_MATMUL_DESC_EPILOGUE) memcpy(&how->epilogue, value, size);
  if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER) memcpy(&how->bias, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type,
                                        uint64_t rows, uint64_t columns, int64_t step) {
  (void)type;
  *layout = (cublasLtMatrixLayoutOpaque_t){rows, columns, step};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t want) {
  (void)want;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t want,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t size) {
  (void)want;
  (void)what;
  (void)value;
  (void)size;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t lt, cublasLtMatmulDesc_t how,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *x,
                                       cublasLtMatmulHeuristicResult_t *result) {
  (void)lt, (void)how, (void)a, (void)b, (void)c, (void)d;
  *result = (cublasLtMatmulHeuristicResult_t){.algo = *x,
                                              .workspaceSize = find_algorithm(x)->workspace};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lt, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t want, int max, cublasLtMatmulHeuristicResult_t *found, int *n) {
  (void)want;
  *n = max < algorithms ? max : algorithms;
  for (int i = 0; i < *n; i++) {
    cublasLtMatmulAlgo_t x = {.data = {(uint64_t)i}};
    cublasLtMatmulAlgoCheck(lt, how, a, b, c, d, &x, &found[i]);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *x,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void *value, size_t size, size_t *written) {
  (void)what;
  uint32_t swizzle = (uint32_t)x->data[1];
  memcpy(value, &swizzle, size);
  *written = size;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *x,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    const void *value, size_t size) {
  (void)what;
  uint32_t swizzle;
  memcpy(&swizzle, value, size);
  x->data[1] = swizzle;
  return CUBLAS_STATUS_SUCCESS;
}

/* Computes column c of the result, column-major as in cuBLASLt. */
static void multiply_column(const cublasLtMatmulDescOpaque_t *how, const float *a,
                            const cublasLtMatrixLayoutOpaque_t *la, const float *b,
                            const cublasLtMatrixLayoutOpaque_t *lb, float beta, float *to,
                            size_t rows, size_t c) {
  size_t inner = how->transpose_a ? la->rows : la->columns;
  for (size_t r = 0; r < rows; r++) {
    float sum = beta != 0 ? beta * to[r] : 0;
    for (size_t k = 0; k < inner; k++)
      sum += a[how->transpose_a ? r * (size_t)la->step + k : k * (size_t)la->step + r] *
             b[how->transpose_b ? k * (size_t)lb->step + c : c * (size_t)lb->step + k];
    to[r] = sum;
  }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lt, cublasLtMatmulDesc_t how, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *x, void *work, size_t work_bytes,
                              cudaStream_t stream) {
  const FakeAlgorithm *own = find_algorithm(x);
  (void)lt, (void)alpha, (void)c, (void)ld, (void)stream;
  assert_true(own->workspace <= work_bytes);
  memset(work, 1, own->workspace);
  if (own->fails) return CUBLAS_STATUS_EXECUTION_FAILED;
  for (size_t column = 0; column < lc->columns; column++)
    multiply_column(how, a, la, b, lb, *(const float *)beta,
                    (float *)d + column * (size_t)lc->step, lc->rows, column);
  if (how->epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    /* b is dy: the sums over the tokens */
    for (size_t column = 0; column < lc->columns; column++) {
      float sum = 0;
      for (size_t k = 0; k < lb->columns; k++)
        sum += ((const float *)b)[k * (size_t)lb->step + column];
      ((float *)how->bias)[column] = sum;
    }
  }
  clock_ms += is_cold ? own->cold_ms : own->warm_ms;
  clock_ms += x->data[1] ? SWIZZLE_MS : 0;
  if (own->workspace == 4) clock_ms += COUNTER_MS;
  is_cold = false;
  last_algorithm = (int)x->data[0];
  runs++;
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- tests ---- */

enum { ROWS = 6, IN = 5, OUT = 4 };

static float x[ROWS * IN], w[OUT * IN], dy[ROWS * OUT];
static void *work;

/* Starts a test with a cache of this size and an empty algorithm cache. */
static void begin(int l2_cache, const FakeAlgorithm *list, int n) {
  for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i * 7 % 11 - 5);
  for (int i = 0; i < OUT * IN; i++) w[i] = (float)(i * 5 % 7 - 3);
  for (int i = 0; i < ROWS * OUT; i++) dy[i] = (float)(i * 3 % 5 - 2);
  cache_bytes = l2_cache;
  largest_alloc = (size_t)1 << 30;
  algorithms = n;
  memcpy(algorithm, list, (size_t)n * sizeof *list);
  setenv("XDG_CACHE_HOME", at("cache"), 1);
  OK(file_remove_all(at("cache")));
}

static void open_matmul(MatmulContext *p) {
  OK(matmul_open(p, NULL, TYPE_F32, false, work, "fake GPU"));
}

static void close_matmul(MatmulContext *p) {
  matmul_close(p);
  assert_int_equal(allocations, 0);
  assert_int_equal(events, 0);
}

/* Runs y = x · wᵀ with a new context, checks it, and returns the number of the algorithm. */
static int select_algorithm(void) {
  MatmulContext p;
  float y[ROWS * OUT];
  open_matmul(&p);
  OK(matmul_run(&p, &(Matmul){.kind = MATMUL_FPROP,
                              .rows = ROWS,
                              .in = IN,
                              .out = OUT,
                              .result = y,
                              .x = x,
                              .w = w}));
  close_matmul(&p);
  for (int r = 0; r < ROWS; r++) {
    for (int o = 0; o < OUT; o++) {
      float want = 0;
      for (int i = 0; i < IN; i++) want += x[r * IN + i] * w[o * IN + i];
      assert_true(y[r * OUT + o] == want);
    }
  }
  return last_algorithm;
}

static const FakeAlgorithm two[] = {{.warm_ms = 0.03, .cold_ms = 0.06},
                                    {.warm_ms = 0.04, .cold_ms = 0.05}};

static void test_matmul_selects_fastest_algorithm_after_cache_flush(void **state) {
  (void)state;
  begin(1000, two, 2);
  assert_int_equal(select_algorithm(), 1);
}

/* The operands of all GEMMs of a step fit into the cache. */
static void test_matmul_small_selects_fastest_algorithm_without_flush(void **state) {
  (void)state;
  begin(1 << 20, two, 2);
  assert_int_equal(select_algorithm(), 0);
}

/* The cache is larger than the workspace, so the flush buffer is allocated, if there is memory. */
static void test_matmul_without_memory_for_flush_buffer_selects_algorithm(void **state) {
  (void)state;
  static float wide[1 << 18];
  const Matmul large = {.kind = MATMUL_FPROP,
                        .rows = 1 << 16,
                        .in = 4,
                        .out = 1,
                        .result = wide,
                        .x = wide,
                        .w = w};
  for (int has_memory = 0; has_memory < 2; has_memory++) {
    MatmulContext p;
    begin(64 << 20, two, 2);
    if (!has_memory) largest_alloc = MATMUL_WORK;
    cache_bytes = 65 << 20;
    open_matmul(&p);
    OK(matmul_run(&p, &large));
    close_matmul(&p);
    /* A memset of the workspace is shorter than the fake cache and does not count as a flush. */
    assert_int_equal(last_algorithm, has_memory);
  }
}

/* In a graph, one memset zeroes the tile counters of all GEMMs. */
static void test_matmul_does_not_count_memset_of_tile_counter(void **state) {
  (void)state;
  static const FakeAlgorithm list[] = {{.warm_ms = 0.04, .cold_ms = 0.05},
                                       {.warm_ms = 0.04, .cold_ms = 0.049, .workspace = 4},
                                       {.warm_ms = 0.04, .cold_ms = 0.0495, .workspace = 5000}};
  begin(1000, list, 3);
  assert_int_equal(select_algorithm(), 1);
}

static void test_matmul_never_selects_failing_algorithm(void **state) {
  (void)state;
  FakeAlgorithm list[] = {{.warm_ms = 0.01, .cold_ms = 0.01, .fails = true},
                          {.warm_ms = 0.04, .cold_ms = 0.05}};
  MatmulContext p;
  float y[ROWS * OUT];
  begin(1000, list, 2);
  assert_int_equal(select_algorithm(), 1);
  list[1].fails = true;
  begin(1000, list, 2);
  open_matmul(&p);
  assert_int_equal(matmul_run(&p, &(Matmul){.kind = MATMUL_FPROP,
                                            .rows = ROWS,
                                            .in = IN,
                                            .out = OUT,
                                            .result = y,
                                            .x = x,
                                            .w = w}),
                   ERR_WORK);
  assert_says("cuBLASLt cannot find an algorithm for a forward GEMM with 6 tokens");
  close_matmul(&p);
}

/* Every timed run of a GEMM that accumulates would add to its result. */
static void test_matmul_timing_leaves_accumulated_result_alone(void **state) {
  (void)state;
  float dx[ROWS * IN] = {0}, dw[OUT * IN] = {0}, dbias[OUT] = {0};
  MatmulContext p;
  begin(1000, two, 2);
  open_matmul(&p);
  OK(matmul_run(&p, &(Matmul){.kind = MATMUL_DGRAD,
                              .rows = ROWS,
                              .in = IN,
                              .out = OUT,
                              .result = dx,
                              .dy = dy,
                              .w = w,
                              .accumulate = true}));
  OK(matmul_run(&p, &(Matmul){.kind = MATMUL_WGRAD,
                              .rows = ROWS,
                              .in = IN,
                              .out = OUT,
                              .result = dw,
                              .dbias = dbias,
                              .dy = dy,
                              .x = x,
                              .accumulate = true}));
  close_matmul(&p);
  for (int i = 0; i < IN; i++) {
    for (int r = 0; r < ROWS; r++) {
      float want = 0;
      for (int o = 0; o < OUT; o++) want += dy[r * OUT + o] * w[o * IN + i];
      assert_true(dx[r * IN + i] == want);
    }
    for (int o = 0; o < OUT; o++) {
      float want = 0, bias = 0;
      for (int r = 0; r < ROWS; r++) want += dy[r * OUT + o] * x[r * IN + i];
      for (int r = 0; r < ROWS; r++) bias += dy[r * OUT + o];
      assert_true(dw[o * IN + i] == want);
      assert_true(dbias[o] == bias);
    }
  }
}

static void test_matmul_reads_algorithm_of_last_run_from_cache(void **state) {
  (void)state;
  begin(1000, two, 2);
  assert_int_equal(select_algorithm(), 1);
  runs = 0;
  assert_int_equal(select_algorithm(), 1);
  assert_int_equal(runs, 1); /* nothing was timed */
}

static int set_up(void **state) {
  work = malloc(MATMUL_WORK);
  return work ? make_scratch(state) : -1;
}

static int tear_down(void **state) {
  free(work);
  return remove_scratch(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_matmul_selects_fastest_algorithm_after_cache_flush),
      cmocka_unit_test(test_matmul_small_selects_fastest_algorithm_without_flush),
      cmocka_unit_test(test_matmul_without_memory_for_flush_buffer_selects_algorithm),
      cmocka_unit_test(test_matmul_does_not_count_memset_of_tile_counter),
      cmocka_unit_test(test_matmul_never_selects_failing_algorithm),
      cmocka_unit_test(test_matmul_timing_leaves_accumulated_result_alone),
      cmocka_unit_test(test_matmul_reads_algorithm_of_last_run_from_cache),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
