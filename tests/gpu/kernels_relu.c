/* Compares linear_relu_backward with the CPU: complete and incomplete tiles, few and many
 * stages of k, one and several tiles per block. Depends on check.h. */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

void relu_kernels(Type type);

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
  TWICE {
    MUST(kernel_linear_relu_backward(type, dx->at, (float *)db->at, dy->at, w->at, mask_at,
                                     rows, in, out, drop, add, work, 0));
    expect(dx, want, 2, "dx");
    expect(db, want_db, coarse, "dbias");
    expect_exact(mask_at, mask, bytes, "the mask is left alone");
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
  MUST(cudaGetDeviceProperties(&gpu, 0));
  if (gpu.major != 9 || type == TYPE_F32) {
    BEGIN("linear_relu_backward where it is not");
    expect_near(kernel_fuses_relu(type, 4096, 1024, 1024), false, 0, "taken");
    return;
  }
  Backend cpu;
  if (backend_cpu(&cpu, 0, false)) exit(1);
  for (size_t i = 0; i < COUNT(shape); i++) {
    BEGIN("linear_relu_backward of %zu, %zu, %zu", shape[i][0], shape[i][1], shape[i][2]);
    expect_near(kernel_fuses_relu(type, shape[i][0], shape[i][1], shape[i][2]), true, 0,
                "taken");
    check_one(type, &cpu, shape[i], i % 2 ? 0.1f : 0, i % 3 == 1);
    check_one(type, &cpu, shape[i], i % 2 ? 0 : 0.3f, i % 3 != 1);
  }
  for (size_t i = 0; i < COUNT(many); i++) check_one(type, &cpu, many[i], 0.1f, i == 1);
  backend_close(&cpu);
  static const size_t refused[][3] = {
      {0, 256, 512}, {9, 128, 512}, {9, 384, 512}, {9, 256, 448}, {9, 256, 520}};
  for (size_t i = 0; i < COUNT(refused); i++) {
    const size_t *no = refused[i];
    BEGIN("linear_relu_backward of %zu, %zu, %zu", no[0], no[1], no[2]);
    expect_near(kernel_fuses_relu(type, no[0], no[1], no[2]), false, 0, "taken");
  }
}
