/* Compares the column sums of add_norm_backward and of ReLU's backward with the reference, for
 * row counts that do not divide, and requires the same bits for every number of SMs. Depends on
 * check.h. */
#include <stdio.h>
#include <string.h>

#include "check.h"

/* widest: largest d of the layer norms. */
void sums_kernels(Type type, const Backend *ref, size_t widest);

/* This GPU's; one block for each share; fewer blocks than shares; more; one block for each
 * section; hardly any. */
static const int sms[] = {0, 132, 108, 82, 170, 1000, 1};

static void test_norm_sums(Type type, const Backend *ref, size_t rows, size_t d) {
  BEGIN("sums of add_norm_backward %s, %zu rows, d %zu", type_name(type), rows, d);
  size_t n = rows * d, bytes = kernel_add_norm_backward_work(rows, d);
  AddNorm an = {.rows = rows, .d = d, .epsilon = 1e-6f};
  Array *x = array_draw(type, n, 1), *gain = array_draw(TYPE_F32, d, 1),
        *dy = array_draw(type, n, 1), *through = array_draw(type, n, 1),
        *stat = array_zero(TYPE_F32, 2 * rows), *dx = array_blank(type, n),
        *dbranch = array_blank(type, n), *dgain = array_draw(TYPE_F32, d, 1),
        *dbias = array_draw(TYPE_F32, d, 1), *dshift = array_draw(TYPE_F32, d, 1),
        *dx_alone = array_blank(type, n), *dgain_alone = array_blank(TYPE_F32, d),
        *dbias_alone = array_blank(TYPE_F32, d);
  float *y = host_floats(n), *want_dx = host_floats(n), *want_branch = host_floats(n),
        *want_gain = host_copy(dgain), *want_bias = host_copy(dbias),
        *want_shift = host_copy(dshift), *alone_dx = host_floats(n),
        *alone_gain = host_floats(d), *alone_bias = host_floats(d);
  ref->add_norm(ref, NULL, y, stat->host, x->host, NULL, gain->host, gain->host, &an);
  ref->add_norm_backward(ref, want_dx, want_branch, want_gain, want_bias, want_shift, dy->host,
                         through->host, x->host, stat->host, gain->host, &an, true);
  ref->add_norm_backward(ref, alone_dx, NULL, alone_gain, alone_bias, NULL, dy->host, NULL,
                         x->host, stat->host, gain->host, &an, false);
  void *work = device_scratch(bytes);
  double coarse = type_epsilon(type) / type_epsilon(TYPE_F32);
  arrays_reset();
  for (size_t i = 0; i < COUNT(sms); i++, arrays_reset()) {
    kernel_assume_sms(sms[i]);
    /* Sums that are read without having been written are NaN. */
    MUST(cudaMemset(work, 0xff, bytes));
    MUST(kernel_add_norm_backward(type, dx->at, dbranch->at, dgain->at, dbias->at, dshift->at,
                                  dy->at, through->at, x->at, stat->at, gain->at, &an, true,
                                  work, 0));
    expect(dx, want_dx, 8, "dx");
    expect(dbranch, want_branch, 8, "dbranch");
    expect(dgain, want_gain, 64, "dgain");
    expect(dbias, want_bias, 64, "dbias");
    expect(dshift, want_shift, type == TYPE_F32 ? 64 : 2 * coarse, "dshift");
    MUST(cudaMemset(work, 0xff, bytes));
    MUST(kernel_add_norm_backward(type, dx_alone->at, NULL, dgain_alone->at, dbias_alone->at,
                                  NULL, dy->at, NULL, x->at, stat->at, gain->at, &an, false,
                                  work, 0));
    expect(dx_alone, alone_dx, 8, "dx alone");
    expect(dgain_alone, alone_gain, 64, "dgain alone");
    expect(dbias_alone, alone_bias, 64, "dbias alone");
  }
  kernel_assume_sms(0);
  arrays_free();
}

static void test_relu_sums(Type type, const Backend *ref, size_t rows, size_t width) {
  BEGIN("sums of ReLU's backward %s, %zu rows of %zu", type_name(type), rows, width);
  size_t n = rows * width, bytes = kernel_column_sums_work(rows, width);
  Dropout drop = {.rate = 0.1f}; /* only a rate: the mask contains which elements are dropped */
  Array *dy = array_draw(type, n, 1), *dx = array_blank(type, n),
        *db = array_draw(TYPE_F32, width, 1);
  float *want = host_floats(n), *want_db = host_copy(db);
  uint8_t *mask = (uint8_t *)host_floats(n / 32 + 1);
  for (size_t i = 0; i < n / 8; i++) mask[i] = (uint8_t)draw_below(256);
  ref->activate_backward(ref, want, want_db, dy->host, mask, rows, width, ACT_RELU, drop, true);
  const uint8_t *mask_at = device_copy(mask, n / 8);
  void *work = device_scratch(bytes);
  double coarse = type == TYPE_F32 ? 64 : 2 * type_epsilon(type) / type_epsilon(TYPE_F32);
  arrays_reset();
  for (size_t i = 0; i < COUNT(sms); i++, arrays_reset()) {
    kernel_assume_sms(sms[i]);
    MUST(cudaMemset(work, 0xff, bytes));
    MUST(kernel_activate_backward(type, dx->at, db->at, dy->at, mask_at, rows, width, ACT_RELU,
                                  drop, true, work, 0));
    expect(dx, want, type == TYPE_F32 ? 16 : 1, "dx");
    expect(db, want_db, coarse, "dbias");
  }
  kernel_assume_sms(0);
  arrays_free();
}

void sums_kernels(Type type, const Backend *ref, size_t widest) {
  /* one turn, the last turn incomplete, as many turns as sections, more */
  static const size_t norm[][2] = {{1057, 256}, {2113, 512},  {4223, 512}, {6401, 512},
                                   {9007, 504}, {3171, 1024}, {700, 2040}};
  static const size_t relu[][2] = {{2113, 2048}, {6400, 2048}, {4301, 2056},
                                   {9001, 1000}, {40003, 136}, {5, 512}};
  for (size_t i = 0; i < COUNT(norm); i++) {
    if (norm[i][1] <= widest) test_norm_sums(type, ref, norm[i][0], norm[i][1]);
  }
  for (size_t i = 0; i < COUNT(relu); i++) test_relu_sums(type, ref, relu[i][0], relu[i][1]);
}
