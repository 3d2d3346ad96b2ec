/* GEMMs of the CUDA plug-in and the timing of their algorithms. The sources are included. A fake cuBLASLt
 * has a few algorithms with given times, and only work on the fake GPU advances the clock. Depends on
 * ../device/cuda.
 * run-tests: own program */
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
#define COLUMNS_MS 0.02   /* a kernel that sums columns */

static double clock_ms;
static double pause_ms;      /* The next memset of a tile counter takes longer by this. */
static int cache_bytes;      /* of the L2 cache */
static bool is_cold;         /* The cache was flushed after the last GEMM. */
static size_t largest_alloc; /* A larger allocation fails. */
static int allocations, events;
static cudaError_t last_error;

static cudaError_t set_last_error(cudaError_t e) {
  last_error = e;
  return e;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}

cudaError_t cudaMalloc(void *pointer, size_t bytes) {
  if (bytes > largest_alloc) return set_last_error(cudaErrorMemoryAllocation);
  void *block = malloc(bytes);
  assert_non_null(block);
  memcpy(pointer, &block, sizeof block);
  allocations++;
  return cudaSuccess;
}

cudaError_t cudaFree(void *block) {
  allocations -= block != NULL;
  free(block);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *block, int value, size_t bytes, cudaStream_t stream) {
  (void)stream;
  bool is_flush = bytes >= (size_t)cache_bytes;
  /* One byte is enough for AddressSanitizer to detect a freed buffer. */
  memset(block, value, is_flush ? 1 : bytes);
  if (is_flush) is_cold = true;
  clock_ms += is_flush ? FLUSH_MS : COUNTER_MS + pause_ms;
  if (!is_flush) pause_ms = 0;
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

const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorMemoryAllocation ? "out of memory" : "fake CUDA error";
}

cudaError_t kernel_column_sums(Type type, float *sums, const void *x, size_t rows, size_t n,
                               bool accumulate, void *work, cudaStream_t stream) {
  (void)type;
  (void)work;
  (void)stream;
  clock_ms += COLUMNS_MS;
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
  double later_ms; /* added from the tenth run on */
  double odd_ms;   /* added to every fifth run */
  size_t workspace;
  bool fails;
} FakeAlgorithm;

#define SWIZZLE_MS 0.01 /* Swizzling makes each algorithm slower. */

static FakeAlgorithm algorithm[6];
static int algorithms, run_count[6], last_algorithm;
static bool last_fused;
static size_t result_offset; /* of the result's address from a multiple of 16 */

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
  assert_int_equal((uintptr_t)d % 16, result_offset);
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
  last_algorithm = (int)x->data[0];
  last_fused = how->epilogue == CUBLASLT_EPILOGUE_BGRADB;
  int run = run_count[last_algorithm]++;
  clock_ms += is_cold ? own->cold_ms : own->warm_ms;
  clock_ms += (run >= 9 ? own->later_ms : 0) + (run % 5 == 4 ? own->odd_ms : 0);
  clock_ms += x->data[1] ? SWIZZLE_MS : 0;
  if (own->workspace == 4) clock_ms += COUNTER_MS;
  is_cold = false;
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- tests ---- */

enum { ROWS = 6, IN = 5, OUT = 4 };

static float x[ROWS * IN], w[OUT * IN], dy[ROWS * OUT];
static void *work;
static int quiesced; /* calls of quiesce() */

static Err quiesce(void *context) {
  (void)context;
  /* The events exist; no GEMM has run. */
  assert_int_equal(events, 2 * MAX_RUNS);
  for (int i = 0; i < algorithms; i++) assert_int_equal(run_count[i], 0);
  quiesced++;
  return ERR_OK;
}

/* Starts a case with a cache of this size and an empty algorithm cache. */
static void begin(int l2_cache, const FakeAlgorithm *list, int n) {
  for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i * 7 % 11 - 5);
  for (int i = 0; i < OUT * IN; i++) w[i] = (float)(i * 5 % 7 - 3);
  for (int i = 0; i < ROWS * OUT; i++) dy[i] = (float)(i * 3 % 5 - 2);
  cache_bytes = l2_cache;
  largest_alloc = (size_t)1 << 30;
  algorithms = n;
  memcpy(algorithm, list, (size_t)n * sizeof *list);
  memset(run_count, 0, sizeof run_count);
  pause_ms = 0;
  result_offset = 0;
  setenv("XDG_CACHE_HOME", at("cache"), 1);
  OK(file_remove_all(at("cache")));
}

static void open_matmul(MatmulContext *p) {
  OK(matmul_open(p, NULL, TYPE_F32, false, work, "fake GPU"));
  p->quiesce = quiesce;
  quiesced = 0;
}

static void close_matmul(MatmulContext *p) {
  matmul_close(p);
  assert_int_equal(allocations, 0);
  assert_int_equal(events, 0);
  assert_int_equal(last_error, cudaSuccess);
}

/* Returns the sum of `inner` products of elements of a, `a_step` apart, and of b, `b_step`
 * apart. */
static float multiply(const float *a, const float *b, int inner, int a_step, int b_step) {
  float sum = 0;
  for (int k = 0; k < inner; k++) sum += a[k * a_step] * b[k * b_step];
  return sum;
}

/* Returns what element i of the result should be. */
static float expect(MatmulKind kind, int i) {
  if (kind == MATMUL_FPROP) return multiply(x + i / OUT * IN, w + i % OUT * IN, IN, 1, 1);
  if (kind == MATMUL_DGRAD) return multiply(dy + i / IN * OUT, w + i % IN, OUT, 1, IN);
  return multiply(dy + i / IN, x + i % IN, ROWS, OUT, IN);
}

static Err run_gemm(MatmulContext *p, MatmulKind kind, bool accumulate, float *result,
                    float *dbias) {
  return matmul_run(p, &(Matmul){.kind = kind,
                                 .rows = ROWS,
                                 .in = IN,
                                 .out = OUT,
                                 .result = result,
                                 .x = x,
                                 .w = w,
                                 .dy = dy,
                                 .dbias = kind == MATMUL_WGRAD ? dbias : NULL,
                                 .accumulate = accumulate});
}

/* Runs a GEMM with a new context, checks the result, and returns the number of the algorithm. */
static int select_algorithm(MatmulKind kind, bool accumulate) {
  _Alignas(16) float memory[ROWS * IN + 1], dbias[OUT];
  float *result = memory + result_offset / sizeof(float);
  MatmulContext p;
  int n = kind == MATMUL_FPROP ? ROWS * OUT : kind == MATMUL_DGRAD ? ROWS * IN : OUT * IN;
  for (int i = 0; i < n; i++) result[i] = (float)i;
  for (int o = 0; o < OUT; o++) dbias[o] = (float)(10 * o);
  open_matmul(&p);
  OK(run_gemm(&p, kind, accumulate, result, dbias));
  close_matmul(&p);
  for (int i = 0; i < n; i++)
    assert_true(result[i] == expect(kind, i) + (accumulate ? (float)i : 0));
  for (int o = 0; o < OUT && kind == MATMUL_WGRAD; o++) {
    float sum = accumulate ? (float)(10 * o) : 0;
    for (int r = 0; r < ROWS; r++) sum += dy[r * OUT + o];
    assert_true(dbias[o] == sum);
  }
  return last_algorithm;
}

static const FakeAlgorithm two[] = {{.warm_ms = 0.03, .cold_ms = 0.06},
                                    {.warm_ms = 0.04, .cold_ms = 0.05}};

static void test_matmul_selects_fastest_algorithm_after_cache_flush(void **state) {
  (void)state;
  for (int kind = MATMUL_FPROP; kind <= MATMUL_WGRAD; kind++) {
    begin(1000, two, 2);
    assert_int_equal(select_algorithm((MatmulKind)kind, false), 1);
    assert_int_equal(quiesced, 1);
  }
}

/* The operands of all GEMMs of a step fit into the cache. */
static void test_matmul_small_selects_fastest_algorithm_without_flush(void **state) {
  (void)state;
  begin(1 << 20, two, 2);
  assert_int_equal(select_algorithm(MATMUL_FPROP, false), 0);
}

static const Matmul large = {.kind = MATMUL_FPROP, .rows = 1 << 16, .in = 4, .out = 1};

/* Returns the algorithm of a GEMM that is not small beside a cache larger than the workspace. */
static int select_for_large_cache(size_t memory) {
  static float operand[1 << 18], result[1 << 16];
  MatmulContext p;
  Matmul gemm = large;
  gemm.x = operand;
  gemm.w = w;
  gemm.result = result;
  begin(65 << 20, two, 2);
  open_matmul(&p);
  largest_alloc = memory;
  OK(matmul_run(&p, &gemm));
  close_matmul(&p);
  return last_algorithm;
}

static void test_matmul_allocates_flush_buffer_for_large_cache(void **state) {
  (void)state;
  assert_int_equal(select_for_large_cache((size_t)1 << 30), 1);
}

/* A memset of the workspace is shorter than the fake cache and does not flush it. */
static void test_matmul_without_memory_for_flush_buffer_still_selects(void **state) {
  (void)state;
  assert_int_equal(select_for_large_cache(MATMUL_WORK), 0);
}

/* In a graph, one memset zeroes the tile counters of all GEMMs. */
static void test_matmul_does_not_count_memset_of_tile_counter(void **state) {
  (void)state;
  static const FakeAlgorithm faster[] = {
      {.warm_ms = 0.04, .cold_ms = 0.05},
      {.warm_ms = 0.04, .cold_ms = 0.049, .workspace = 4},
      {.warm_ms = 0.04, .cold_ms = 0.0495, .workspace = 5000}};
  static const FakeAlgorithm slower[] = {{.warm_ms = 0.04, .cold_ms = 0.05},
                                         {.warm_ms = 0.04, .cold_ms = 0.052, .workspace = 4}};
  begin(1000, faster, 3);
  assert_int_equal(select_algorithm(MATMUL_FPROP, false), 1);
  begin(1000, slower, 2);
  assert_int_equal(select_algorithm(MATMUL_FPROP, false), 0);
  begin(1000, slower, 2);
  pause_ms = 10; /* another process used the GPU during one of the memsets */
  assert_int_equal(select_algorithm(MATMUL_FPROP, false), 0);
}

/* Single runs that are much slower or faster than the others do not decide. */
static void test_matmul_compares_medians(void **state) {
  (void)state;
  static const FakeAlgorithm list[] = {{.warm_ms = 0.04, .cold_ms = 0.052, .odd_ms = -0.04},
                                       {.warm_ms = 0.04, .cold_ms = 0.05, .odd_ms = 1},
                                       {.warm_ms = 0.04, .cold_ms = 0.051}};
  begin(1000, list, 3);
  assert_int_equal(select_algorithm(MATMUL_FPROP, false), 1);
}

/* Algorithm 0 is the fastest of 12 candidates at first and slow when it is timed for longer.
 * Algorithm 5, the last of the list, is the fastest finalist. */
static void test_matmul_finalists_are_timed_again(void **state) {
  (void)state;
  static const FakeAlgorithm list[] = {{.warm_ms = 0.04, .cold_ms = 0.04, .later_ms = 0.1},
                                       {.warm_ms = 0.04, .cold_ms = 0.07},
                                       {.warm_ms = 0.04, .cold_ms = 0.07},
                                       {.warm_ms = 0.04, .cold_ms = 0.07},
                                       {.warm_ms = 0.04, .cold_ms = 0.06},
                                       {.warm_ms = 0.04, .cold_ms = 0.05}};
  begin(1000, list, 6);
  assert_int_equal(select_algorithm(MATMUL_FPROP, false), 5);
}

/* The epilogue of a GEMM computes the bias gradient if that is faster than a kernel of its own. */
static void test_matmul_fuses_bias_gradient_if_faster(void **state) {
  (void)state;
  begin(1000, two, 2);
  assert_int_equal(select_algorithm(MATMUL_WGRAD, false), 1);
  assert_true(last_fused);
}

static void test_matmul_never_selects_failing_algorithm(void **state) {
  (void)state;
  FakeAlgorithm list[] = {{.warm_ms = 0.01, .cold_ms = 0.01, .fails = true},
                          {.warm_ms = 0.04, .cold_ms = 0.05}};
  _Alignas(16) float result[ROWS * OUT];
  MatmulContext p;
  begin(1000, list, 2);
  assert_int_equal(select_algorithm(MATMUL_FPROP, false), 1);
  list[1].fails = true;
  begin(1000, list, 2);
  open_matmul(&p);
  assert_int_equal(run_gemm(&p, MATMUL_FPROP, false, result, NULL), ERR_WORK);
  assert_says("cuBLASLt cannot find an algorithm for a forward GEMM with 6 tokens");
  close_matmul(&p);
}

/* Every timed run of a GEMM that accumulates would add to its result. */
static void test_matmul_timing_leaves_accumulated_result_alone(void **state) {
  (void)state;
  for (size_t offset = 0; offset <= 4; offset += 4) {
    begin(1000, two, 2);
    result_offset = offset;
    assert_int_equal(select_algorithm(MATMUL_DGRAD, true), 1);
    begin(1000, two, 2);
    result_offset = offset;
    assert_int_equal(select_algorithm(MATMUL_WGRAD, true), 1);
  }
}

static void test_matmul_without_memory_for_temporary_result_fails(void **state) {
  (void)state;
  _Alignas(16) float result[ROWS * IN];
  MatmulContext p;
  begin(1000, two, 2);
  open_matmul(&p);
  largest_alloc = 100;
  assert_int_equal(run_gemm(&p, MATMUL_DGRAD, true, result, NULL), ERR_WORK);
  assert_says("to time GEMM algorithms: out of memory; lower --batch-tokens");
  close_matmul(&p);
}

static void test_matmul_reads_algorithm_of_last_run_from_cache(void **state) {
  (void)state;
  begin(1000, two, 2);
  assert_int_equal(select_algorithm(MATMUL_FPROP, false), 1);
  memset(run_count, 0, sizeof run_count);
  assert_int_equal(select_algorithm(MATMUL_FPROP, false), 1);
  assert_int_equal(run_count[0] + run_count[1], 1); /* nothing was timed */
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
      cmocka_unit_test(test_matmul_allocates_flush_buffer_for_large_cache),
      cmocka_unit_test(test_matmul_without_memory_for_flush_buffer_still_selects),
      cmocka_unit_test(test_matmul_does_not_count_memset_of_tile_counter),
      cmocka_unit_test(test_matmul_compares_medians),
      cmocka_unit_test(test_matmul_finalists_are_timed_again),
      cmocka_unit_test(test_matmul_fuses_bias_gradient_if_faster),
      cmocka_unit_test(test_matmul_never_selects_failing_algorithm),
      cmocka_unit_test(test_matmul_timing_leaves_accumulated_result_alone),
      cmocka_unit_test(test_matmul_without_memory_for_temporary_result_fails),
      cmocka_unit_test(test_matmul_reads_algorithm_of_last_run_from_cache),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
