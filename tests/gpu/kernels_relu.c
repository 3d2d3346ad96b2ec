/* Compares linear_relu_dropout, its backward, and the drawing of its dropout with the CPU:
 * complete and incomplete tiles, few and many stages of k, one and several tiles per block.
 * Depends on check.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/dropout.h"
#include "check.h"
#include "occupy.h"

void relu_kernels(Type type);

static cudaStream_t beside; /* of the kernel that occupies SMs */
static const uint64_t key = 0x123456789abcdefu;

/* Returns a dropout for the host, and one for the device. */
static Dropout make_drop(float rate, bool on_device) {
  Dropout drop = {.key = &key, .site = 7, .rate = rate};
  if (on_device) drop.key = device_copy(&key, sizeof key);
  return drop;
}

/* Returns the bits of n elements, one bit each, followed by GUARD bytes of another value. */
#define GUARD 64
static uint8_t *make_bits(size_t n, Dropout drop) {
  uint8_t *bits = (uint8_t *)host_floats((n / 8 + GUARD) / 4 + 1);
  for (size_t i = 0; i < n; i++)
    if (dropout_factor(drop, i) != 0) bits[i / 8] |= (uint8_t)(1 << i % 8);
  memset(bits + n / 8, 0xa5, GUARD);
  return bits;
}

static uint8_t *blank_bits(size_t n) {
  uint8_t *blank = (uint8_t *)host_floats((n / 8 + GUARD) / 4 + 1);
  memset(blank, 0xa5, n / 8 + GUARD);
  return device_copy(blank, n / 8 + GUARD);
}

static void check_bits(size_t n, float rate) {
  BEGIN("draw_bits of %zu elements, rate %g", n, (double)rate);
  uint8_t *at = blank_bits(n), *want = make_bits(n, make_drop(rate, false));
  MUST(kernel_draw_bits(at, n, make_drop(rate, true), 0));
  expect_exact(at, want, n / 8 + GUARD, "bits");
  arrays_free();
}

/* Compares a layer norm that draws bits with one that does not. */
static void check_ahead(Type type, size_t rows, size_t d, size_t width, float rate) {
  BEGIN("add_norm %s that draws, %zu rows of %zu, width %zu, rate %g", type_name(type), rows, d,
        width, (double)rate);
  size_t n = rows * d, size = n * type_size(type), bits = rows * width;
  Array *x = array_draw(type, n, 1), *branch = array_draw(type, n, 1),
        *gain = array_draw(TYPE_F32, d, 1), *bias = array_draw(TYPE_F32, d, 1),
        *sum = array_blank(type, n), *y = array_blank(type, n),
        *stat = array_blank(TYPE_F32, 2 * rows);
  char *want = (char *)host_floats(2 * size / 4 + 2 * rows + 1);
  AddNorm an = {.rows = rows, .d = d, .epsilon = 1e-6f, .drop = make_drop(0.2f, true)};
  arrays_reset();
  MUST(kernel_add_norm(type, sum->at, y->at, (float *)stat->at, x->at, branch->at,
                       (float *)gain->at, (float *)bias->at, &an, 0));
  MUST(cudaMemcpy(want, sum->at, size, cudaMemcpyDeviceToHost));
  MUST(cudaMemcpy(want + size, y->at, size, cudaMemcpyDeviceToHost));
  MUST(cudaMemcpy(want + 2 * size, stat->at, rows * 8, cudaMemcpyDeviceToHost));
  arrays_reset();
  an.ahead = blank_bits(bits);
  an.ahead_width = width;
  an.ahead_drop = make_drop(rate, true);
  MUST(kernel_add_norm(type, sum->at, y->at, (float *)stat->at, x->at, branch->at,
                       (float *)gain->at, (float *)bias->at, &an, 0));
  expect_exact(sum->at, want, size, "sum");
  expect_exact(y->at, want + size, size, "y");
  expect_exact(stat->at, want + 2 * size, rows * 8, "statistics");
  expect_exact(an.ahead, make_bits(bits, make_drop(rate, false)), bits / 8 + GUARD, "bits");
  arrays_free();
}

/* Checks that the mask is set where y is above 0, and that what dropout does not keep is 0. */
static void expect_mask(const Array *y, const uint8_t *mask_at, const uint8_t *bits) {
  uint16_t *got = (uint16_t *)host_floats(y->n / 2 + 1);
  uint8_t *want = (uint8_t *)host_floats((y->n / 8 + GUARD) / 4 + 1);
  size_t wrong = 0;
  MUST(cudaMemcpy(got, y->at, y->n * 2, cudaMemcpyDeviceToHost));
  memset(want + y->n / 8, 0xa5, GUARD);
  for (size_t i = 0; i < y->n; i++) {
    bool kept = bits[i / 8] >> i % 8 & 1;
    if (got[i] > 0) want[i / 8] |= (uint8_t)(1 << i % 8);
    wrong += got[i] >= 0x8000 || (got[i] && !kept);
  }
  expect_near((double)wrong, 0, 0, "negative elements, and elements that are not dropped");
  expect_exact(mask_at, want, y->n / 8 + GUARD, "the mask");
}

/* shape: rows, out, in */
static void check_forward(Type type, const Backend *cpu, const size_t shape[3], float rate) {
  size_t rows = shape[0], out = shape[1], in = shape[2], n = rows * out;
  BEGIN("linear_relu_dropout %s, %zu rows, %zu in, %zu out, rate %g", type_name(type), rows, in,
        out, (double)rate);
  Array *x = array_draw(type, rows * in, 1), *w = array_draw(type, in * out, 0.05f),
        *bias = array_draw(type, out, 0.3f), *y = array_blank(type, n);
  Dropout drop = make_drop(rate, false);
  float *want = host_floats(n);
  uint8_t *bits = make_bits(n, drop), *mask = (uint8_t *)host_floats(n / 32 + 1),
          *mask_at = device_copy(bits, n / 8 + GUARD);
  cpu->linear(cpu, want, x->host, w->host, NULL, rows, in, out);
  for (size_t i = 0; i < n; i++) want[i] = type_round(type, want[i]);
  cpu->activate(cpu, want, mask, want, bias->host, rows, out, ACT_RELU, drop);
  arrays_reset();
  TWICE {
    MUST(cudaMemcpy(mask_at, bits, n / 8, cudaMemcpyHostToDevice));
    MUST(kernel_linear_relu_dropout(type, y->at, mask_at, x->at, w->at, bias->at, rows, in, out,
                                    drop, 0));
    MUST(cudaDeviceSynchronize());
    expect(y, want, 2, "y");
    expect_mask(y, mask_at, bits);
  }
  arrays_free();
}

/* The bias of a column decides the sign: the products are 0, and the mask is that of the two
 * separate kernels to the last bit. */
static void check_signs(Type type) {
  enum { ROWS = 131, OUT = 512, IN = 512, N = ROWS * OUT };
  BEGIN("linear_relu_dropout %s with products of 0", type_name(type));
  Array *x = array_zero(type, ROWS * IN), *w = array_draw(type, IN * OUT, 1),
        *bias = array_draw(type, OUT, 1), *y = array_blank(type, N), *z = array_zero(type, N);
  for (size_t i = 0; i < OUT; i += 7) bias->host[i] = 0;
  Dropout drop = make_drop(0.3f, true);
  uint8_t *mask_at = blank_bits(N), *want_at = blank_bits(N),
          *want = (uint8_t *)host_floats(N / 32);
  arrays_reset();
  MUST(kernel_draw_bits(mask_at, N, drop, 0));
  MUST(kernel_linear_relu_dropout(type, y->at, mask_at, x->at, w->at, bias->at, ROWS, IN, OUT,
                                  drop, 0));
  MUST(kernel_activate(type, z->at, want_at, z->at, bias->at, ROWS, OUT, ACT_RELU, drop, 0));
  MUST(cudaMemcpy(want, want_at, N / 8, cudaMemcpyDeviceToHost));
  expect_exact(mask_at, want, N / 8, "the mask");
  arrays_free();
}

static void check_one(Type type, const Backend *cpu, const size_t shape[3], float rate,
                      bool add) {
  size_t rows = shape[0], in = shape[1], out = shape[2], bytes = rows * in / 8;
  BEGIN("linear_relu_backward %s, %zu rows, %zu in, %zu out, rate %g%s", type_name(type), rows,
        in, out, (double)rate, add ? ", added" : "");
  Array *dy = array_draw(type, rows * out, 1), *w = array_draw(type, in * out, 0.05f),
        *dx = array_blank(type, rows * in), *db = array_draw(TYPE_F32, in, 3);
  float *want = host_floats(rows * in), *want_db = host_copy(db);
  uint8_t *mask = (uint8_t *)host_floats(bytes / 4 + 1);
  for (size_t i = 0; i < bytes; i++) mask[i] = (uint8_t)draw_below(256);
  /* fills the mask with random bits; in half of its bytes all bits are equal */
  for (size_t i = 0; i < bytes; i += 2) mask[i] = draw_below(2) ? 0xff : 0;
  const uint8_t *mask_at = device_copy(mask, bytes);
  void *work = device_scratch(kernel_linear_relu_backward_work(rows, in));
  const unsigned none = 0;
  unsigned *counter = device_copy(&none, sizeof none);
  Dropout drop = {.rate = rate}; /* only a rate: the mask contains which elements are dropped */
  cpu->linear_dx(cpu, want, dy->host, w->host, rows, in, out, false);
  for (size_t i = 0; i < rows * in; i++) want[i] = type_round(type, want[i]);
  cpu->activate_backward(cpu, want, NULL, want, mask, rows, in, ACT_RELU, drop, false);
  for (size_t c = 0; c < in; c++) {
    double sum = add ? want_db[c] : 0;
    for (size_t r = 0; r < rows; r++) sum += want[r * in + c];
    want_db[c] = (float)sum;
  }
  arrays_reset();
  /* With another order of additions a sum may be rounded to the neighbouring number of the
   * type. */
  double coarse = type_epsilon(type) / type_epsilon(TYPE_F32);
  /* In the last runs some clusters of a full grid find no SM until the others have ended. With 112 of
   * 132 SMs occupied the others compute eight tiles each. */
  static const int occupied[] = {0, 0, 16, 112};
  for (size_t run = 0; run < COUNT(occupied); run++, arrays_reset()) {
    if (occupied[run]) MUST(occupy_sms(occupied[run], 1000, beside));
    MUST(kernel_linear_relu_backward(type, dx->at, (float *)db->at, dy->at, w->at, mask_at,
                                     rows, in, out, drop, add, work, counter, 0));
    expect(dx, want, 2, "dx");
    expect(db, want_db, coarse, "dbias");
    expect_exact(mask_at, mask, bytes, "the mask is left alone");
    expect_exact(counter, &none, sizeof none, "the tile counter is 0 again");
  }
  arrays_free();
}

void relu_kernels(Type type) {
  static const size_t shape[][3] = {{1, 256, 512},    {127, 256, 576}, {128, 512, 1024},
                                    {129, 768, 1088}, {300, 256, 960}, {700, 512, 512},
                                    {256, 1024, 640}};
  /* Shapes with several tiles per block. */
  static const size_t many[][3] = {{2300, 2304, 512}, {2300, 2304, 1024}};
  struct cudaDeviceProp gpu;
  static const float rates[] = {0, 0.1f, 0.3f, 0.5f, 0.9f, 1e-6f};
  for (size_t i = 0; i < COUNT(rates); i++) {
    check_bits(32 * (1 + 777 * i), rates[i]);
    check_ahead(type, 37 + i, 512, 2048, rates[i]);
    check_ahead(type, 3 + i, 1024, 4096, rates[i]);
  }
  check_ahead(type, 9, 504, 256, 0.1f);
  check_ahead(type, 5, 256, 512, 0.1f);
  check_ahead(type, 5, 2048, 8192, 0.1f);
  MUST(cudaGetDeviceProperties(&gpu, 0));
#ifdef CUDA_AS /* The kernels are compiled as for another GPU, without the instructions of Hopper. */
  gpu.major = CUDA_AS / 10;
#endif
  if (gpu.major != 9 || type == TYPE_F32) {
    BEGIN("linear_relu_backward where it is not");
    expect_near(kernel_fuses_relu(type, 4096, 1024, 1024), false, 0, "taken");
    return;
  }
  Backend cpu;
  if (backend_cpu(&cpu, 0, false)) exit(1);
  MUST(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
  for (size_t i = 0; i < COUNT(shape); i++) {
    BEGIN("linear_relu_backward of %zu, %zu, %zu", shape[i][0], shape[i][1], shape[i][2]);
    expect_near(kernel_fuses_relu(type, shape[i][0], shape[i][1], shape[i][2]), true, 0,
                "taken");
    check_one(type, &cpu, shape[i], i % 2 ? 0.1f : 0, i % 3 == 1);
    check_one(type, &cpu, shape[i], i % 2 ? 0 : 0.3f, i % 3 != 1);
    check_forward(type, &cpu, shape[i], i % 2 ? 0 : 0.1f);
    check_forward(type, &cpu, shape[i], i % 2 ? 0.3f : 0);
  }
  for (size_t i = 0; i < COUNT(many); i++) {
    check_one(type, &cpu, many[i], 0.1f, i == 1);
    check_forward(type, &cpu, many[i], 0.1f);
  }
  check_signs(type);
  MUST(cudaStreamDestroy(beside));
  backend_close(&cpu);
  static const size_t refused[][3] = {
      {0, 256, 512}, {9, 128, 512}, {9, 384, 512}, {9, 256, 448}, {9, 256, 520}};
  for (size_t i = 0; i < COUNT(refused); i++) {
    const size_t *no = refused[i];
    BEGIN("linear_relu_backward of %zu, %zu, %zu", no[0], no[1], no[2]);
    expect_near(kernel_fuses_relu(type, no[0], no[1], no[2]), false, 0, "taken");
  }
}
