/* The ranges of a sharded optimizer over NCCL, for one rank. test_sharded_weights.c uses those of
 * three. */
#include "base/mem.h"
#include "support.h"
#include "train/pieces.h"

enum { UNIT = 64, BUCKET = 256 };

/* A matrix, a norm of two vectors, a matrix, and a table that is larger than a bucket. */
static void lay_out(Params *p) {
  Err err = ERR_OK;
  params_add(p, &err, INIT_ZERO, 0, 30, 10, "first");
  params_add_full(p, &err, INIT_ONE, 0, 20, 1, "gain");
  params_add_full(p, &err, INIT_ZERO, 0, 20, 1, "bias");
  params_add(p, &err, INIT_ZERO, 0, 10, 10, "second");
  params_add_full(p, &err, INIT_ZERO, 0, 40, 10, "table");
  OK(err);
}

static Err open_pieces(Pieces *pieces, Params *p, Reducer **reducer, Comm *comm, float *g) {
  TRY(reducer_new(reducer, comm, g, p->padded, &(ReduceSpec){.unit = UNIT, .bucket = BUCKET}));
  return pieces_open(pieces, *reducer, 0, 1, p);
}

static void test_pieces_cover_all_weights_and_cut_those_in_fp32(void **state) {
  (void)state;
  Comm *comm;
  Reducer *reducer;
  Params p = {0};
  Pieces pieces;
  float g[1024];
  lay_out(&p);
  assert_true(p.padded <= 1024);
  OK(comm_open(&comm, 5));
  OK(open_pieces(&pieces, &p, &reducer, comm, g));
  size_t at = 0;
  for (size_t i = 0; i < pieces.count; i++) {
    assert_int_equal(pieces.own[i].begin, at);
    at = pieces.own[i].end;
    assert_int_equal(pieces.all[2 * i + 1], at);
  }
  assert_int_equal(at, p.padded);
  /* The two vectors are one range, in bucket 1; the table lies in three buckets. */
  const size_t expected[] = {304, 356, 480, 512, 512, 768, 768, 880};
  assert_int_equal(pieces.full_count, 4);
  assert_memory_equal(pieces.full, expected, sizeof expected);
  assert_int_equal(pieces_gather_all(&pieces, 2).width, 2);
  assert_int_equal(pieces_gather_full(&pieces).width, 4);
  pieces_close(&pieces);
  pieces_close(&pieces);
  reducer_free(reducer);
  comm_close(comm, ERR_OK);
  params_free(&p);
}

static void test_pieces_without_memory_are_closed(void **state) {
  (void)state;
  Comm *comm;
  Params p = {0};
  float g[1024];
  bool is_complete = false;
  lay_out(&p);
  OK(comm_open(&comm, 5));
  for (uint64_t n = 1; !is_complete; n++) {
    Reducer *reducer = NULL;
    Pieces pieces = {0};
    mem_fail_after(n);
    is_complete = open_pieces(&pieces, &p, &reducer, comm, g) == ERR_OK;
    mem_fail_after(0);
    pieces_close(&pieces);
    reducer_free(reducer);
  }
  comm_close(comm, ERR_OK);
  params_free(&p);
}

/* lay_out has 440 elements that are read in fp32. */
static void test_pieces_gathered_types_depend_on_transport_and_backend(void **state) {
  (void)state;
  static const struct {
    Type type;
    bool is_nccl;
    size_t width, full_elements;
  } cases[] = {{TYPE_BF16, true, 2, 440},
               {TYPE_F16, true, 2, 440},
               {TYPE_F32, true, 4, 0},
               {TYPE_BF16, false, 4, 0},
               {TYPE_F32, false, 4, 0}};
  Params p = {0};
  lay_out(&p);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    GatheredWeights g = pieces_gathered(&p, cases[i].type, cases[i].is_nccl);
    assert_int_equal(g.width, cases[i].width);
    assert_int_equal(g.full_elements, cases[i].full_elements);
  }
  params_free(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pieces_cover_all_weights_and_cut_those_in_fp32),
      cmocka_unit_test(test_pieces_gathered_types_depend_on_transport_and_backend),
      cmocka_unit_test(test_pieces_without_memory_are_closed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
