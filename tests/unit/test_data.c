/* Batches contain the ids of their pairs, for any number of loaders. The manifest of a data set that
 * cannot be written. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "data/batch.h"
#include "data/manifest.h"
#include "data/prepare.h"
#include "support.h"

/* Prepares a small data set from text. */
static void make_dataset(const char *out, uint64_t lines, size_t shard_bytes) {
  Str text[2] = {{0}, {0}};
  Rng rng = {.key = 9};
  for (uint64_t i = 0; i < lines; i++) {
    uint64_t words = 1 + rng_below(&rng, 12);
    for (uint64_t w = 0; w < words; w++) {
      unsigned a = (unsigned)rng_below(&rng, 20), c = (unsigned)rng_below(&rng, 20);
      str_addf(&text[0], "%s%c%co%c", w ? " " : "", 'a' + a, 'a' + c, 'a' + a);
      str_addf(&text[1], "%s%cu%c", w ? " " : "", 'a' + c, 'a' + a);
    }
    for (int side = 0; side < 2; side++) str_addc(&text[side], '\n');
  }
  OK(file_write(at("text.a"), text[0].s, text[0].len));
  OK(file_write(at("text.b"), text[1].s, text[1].len));
  for (int side = 0; side < 2; side++) str_free(&text[side]);
  char a[FILE_PATH_MAX], b[FILE_PATH_MAX], dir[FILE_PATH_MAX];
  OK(file_join(a, scratch, "text.a"));
  OK(file_join(b, scratch, "text.b"));
  OK(file_join(dir, scratch, out));
  TextPair train = {.path = {a, b}};
  PrepareSpec spec = {.out = dir,
                      .train = &train,
                      .trains = 1,
                      .valid = train,
                      .lang = {"a", "b"},
                      .rules = {1, 80, 1000, 9},
                      .max_tokens = 255,
                      .training = {"bpe", 300, 1.0},
                      .sample = 2000,
                      .seed = 1,
                      .shard_bytes = shard_bytes,
                      .threads = 2};
  Meta meta;
  OK(prepare_run(&spec, &meta));
  assert_int_equal(meta.split[SPLIT_TRAIN].pairs, lines);
  assert_true(meta.split[SPLIT_TRAIN].shards > 1);
  meta_free(&meta);
}

static void check_batch(DataSet *d, const Batch *b) {
  DataReader reader;
  dataset_enter(d, &reader);
  const Meta *m = &d->meta;
  assert_true(b->sentences > 0);
  for (uint32_t k = 0; k < b->sentences; k++) {
    uint64_t within;
    ShardView view;
    int32_t ids[256];
    Shard *shard;
    OK(dataset_find(&reader, SPLIT_TRAIN, b->pair[k], &shard, &within));
    OK(shard_pair(shard, within, &view));
    int32_t s = b->src_off[k], t = b->tgt_off[k];
    assert_int_equal(b->src_off[k + 1] - s, view.len[0] + 1);
    assert_int_equal(b->tgt_off[k + 1] - t, view.len[1] + 1);
    OK(shard_copy(shard, &view, 0, ids));
    assert_memory_equal(b->src + s, ids, view.len[0] * sizeof *ids);
    assert_int_equal(b->src[s + (int32_t)view.len[0]], m->eos);
    OK(shard_copy(shard, &view, 1, ids));
    assert_memory_equal(b->tgt_out + t, ids, view.len[1] * sizeof *ids);
    assert_int_equal(b->tgt_out[t + (int32_t)view.len[1]], m->eos);
    assert_int_equal(b->tgt_in[t], m->bos);
    assert_memory_equal(b->tgt_in + t + 1, ids, view.len[1] * sizeof *ids);
    for (int32_t i = 0; i <= (int32_t)view.len[0]; i++) assert_int_equal(b->src_pos[s + i], i);
    for (int32_t i = 0; i <= (int32_t)view.len[1]; i++) assert_int_equal(b->tgt_pos[t + i], i);
  }
  dataset_leave(&reader);
  assert_int_equal(b->src_off[b->sentences], b->rows[0]);
  assert_int_equal(b->tgt_off[b->sentences], b->rows[1]);
  for (uint32_t i = b->rows[0]; i < b->capacity; i++) assert_int_equal(b->src[i], m->pad);
  for (uint32_t i = b->rows[1]; i < b->capacity; i++) {
    assert_int_equal(b->tgt_in[i], m->pad);
    assert_int_equal(b->tgt_out[i], -1);
    assert_int_equal(b->tgt_pos[i], 0);
  }
  for (int side = 0; side < 2; side++) {
    const int32_t *off = side ? b->tgt_off : b->src_off;
    uint32_t unit = b->capacity / 8;
    assert_true(b->padded[side] >= b->rows[side] && b->padded[side] <= b->capacity);
    assert_true(b->padded[side] % unit == 0 && b->padded[side] - b->rows[side] < unit);
    for (uint32_t k = b->sentences + 1; k < b->most_sentences + 2; k++)
      assert_int_equal(off[k], b->padded[side]);
  }
}

/* GROUP micro-batches per step are divided among 1 to 4 loaders. Each pair must occur once per
 * epoch, in the same micro-batch as with one loader. */
static void test_loaders_of_1_to_4_ranks_share_an_epoch(void **state) {
  (void)state;
  DataSet d;
  OrderPlan plan;
  make_dataset("set", 3000, 4096);
  OK(dataset_open(&d, at("set")));
  OK(dataset_verify(&d));
  OK(order_plan(&plan, &d.order, 256));
  enum { GROUP = 6 };
  uint64_t steps = plan.batches / GROUP + 2; /* two steps more than the epoch has */
  for (uint32_t ranks = 1; ranks <= 4; ranks++) {
    uint32_t *count;
    OK(mem_alloc(&count, (size_t)d.order.pairs, sizeof *count));
    for (uint32_t rank = 0; rank < ranks; rank++) {
      LoaderSpec spec = {.seed = 5,
                         .step = 0,
                         .group = GROUP,
                         .begin = rank * GROUP / ranks,
                         .end = (rank + 1) * GROUP / ranks};
      Loader *loader;
      Batch alone;
      OK(batch_new(&alone, plan.capacity, plan.most_sentences));
      OK(loader_open(&loader, &d, &plan, &spec));
      for (uint64_t n = 0; n < steps * (spec.end - spec.begin); n++) {
        const Batch *b;
        OK(loader_next(loader, &b));
        uint64_t number =
            n / (spec.end - spec.begin) * GROUP + spec.begin + n % (spec.end - spec.begin);
        assert_int_equal(b->epoch * plan.batches + b->index, number);
        check_batch(&d, b);
        OK(batch_fill(&alone, &d, &plan, 5, number / plan.batches, number % plan.batches));
        assert_memory_equal(alone.memory_, b->memory_,
                            batch_ints(plan.capacity, plan.most_sentences) * sizeof(int32_t));
        if (b->epoch == 0) {
          for (uint32_t k = 0; k < b->sentences; k++) count[b->pair[k]]++;
        }
      }
      loader_close(loader);
      batch_free(&alone);
    }
    for (uint64_t i = 0; i < d.order.pairs; i++) assert_int_equal(count[i], 1);
    mem_free(count);
  }
  order_plan_free(&plan);
  dataset_close(&d);
}

/* The number of tokens is rounded up to a multiple that depends on the capacity, and never
 * exceeds the capacity, so that few shapes occur. */
static void test_batch_is_padded_to_few_shapes(void **state) {
  (void)state;
  static const struct {
    uint32_t capacity, rows[2], padded[2];
  } cases[] = {{8192, {1, 8192}, {256, 8192}},
               {4096, {128, 129}, {128, 256}},
               {25000, {24833, 24832}, {25000, 24832}},
               {512, {490, 64}, {512, 64}},
               {512, {65, 447}, {96, 448}},
               {20, {1, 17}, {8, 20}},
               {5, {2, 5}, {5, 5}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Batch b;
    OK(batch_new(&b, cases[i].capacity, 3));
    assert_true((const int32_t *)b.key == b.memory_);
    b.sentences = 1;
    for (int side = 0; side < 2; side++) b.rows[side] = cases[i].rows[side];
    b.src_off[1] = (int32_t)b.rows[0], b.tgt_off[1] = (int32_t)b.rows[1];
    batch_pad(&b, 7);
    for (int side = 0; side < 2; side++) {
      const int32_t *off = side ? b.tgt_off : b.src_off;
      assert_int_equal(b.padded[side], cases[i].padded[side]);
      assert_int_equal(off[1], b.rows[side]);
      for (int k = 2; k < 5; k++) assert_int_equal(off[k], b.padded[side]);
    }
    for (uint32_t r = b.rows[0]; r < b.capacity; r++) assert_int_equal(b.src[r], 7);
    batch_free(&b);
  }
}

static void test_loader_reports_a_damaged_shard(void **state) {
  (void)state;
  DataSet d;
  OrderPlan plan;
  Loader *loader;
  const Batch *b;
  Str whole = {0};
  make_dataset("damaged", 12000, 150000);
  OK(place_read_all(at("damaged/train-00001.tok"), 1 << 20, &whole));
  whole.s[CHECKED_BLOCK + 300] = (char)(whole.s[CHECKED_BLOCK + 300] ^ 1);
  OK(file_write(at("damaged/train-00001.tok"), whole.s, whole.len));
  str_free(&whole);
  OK(dataset_open(&d, at("damaged")));
  OK(order_plan(&plan, &d.order, 256));
  OK(loader_open(&loader, &d, &plan, &(LoaderSpec){.seed = 1, .group = 1, .end = 1}));
  Err err = ERR_OK;
  for (uint64_t i = 0; i < plan.batches && !err; i++) err = loader_next(loader, &b);
  assert_int_equal(err, ERR_WORK);
  assert_non_null(strstr(err_message(), "train-00001.tok"));
  /* Every later call returns the error again. */
  assert_int_equal(loader_next(loader, &b), ERR_WORK);
  loader_close(loader);
  order_plan_free(&plan);
  dataset_close(&d);
}

/* ---- the manifest ---- */

static const ManifestEntry entry = {
    .split = SPLIT_TRAIN,
    .file = {.name = "train-00000.tok",
             .pairs = 3,
             .sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
    .lines = 4,
    .dropped = {[CLEAN_KEEP + 1] = 1}};

static void test_manifest_full_disk_is_an_error_and_leaves_whole_lines(void **state) {
  (void)state;
  struct rlimit old, few;
  uint64_t whole, after;
  OK(manifest_append(at("manifest"), &entry));
  OK(file_size(at("manifest"), &whole));
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, SIG_IGN);
  few = (struct rlimit){.rlim_cur = (rlim_t)whole + 10, .rlim_max = old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
  Err err = manifest_append(at("manifest"), &entry);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, SIG_DFL);
  assert_int_equal(err, ERR_WORK);
  assert_says("cannot write");
  assert_says(at("manifest"));
  OK(file_size(at("manifest"), &after));
  assert_int_equal(after, whole);
}

/* A line without its end is removed; if that fails, it is an error. */
static void test_manifest_torn_line_that_cannot_be_removed_is_an_error(void **state) {
  (void)state;
  Str text = {0};
  Meta meta = {0};
  char path[64];
  manifest_print(&entry, &text);
  size_t whole = text.len;
  str_addn(&text, text.s, 10);
  OK(str_check(&text));
  int fd = memfd_create("manifest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text.s, text.len), text.len);
  assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  assert_int_equal(manifest_recover(path, &meta), ERR_WORK);
  assert_says("cannot write");
  assert_says(path);
  meta_free(&meta);
  close(fd);
  /* The same file on a disk is truncated. */
  uint64_t bytes;
  OK(file_write(at("torn"), text.s, text.len));
  OK(manifest_recover(at("torn"), &meta));
  assert_int_equal(meta.split[SPLIT_TRAIN].shards, 1);
  assert_int_equal(meta.split[SPLIT_TRAIN].lines, 4);
  OK(file_size(at("torn"), &bytes));
  assert_int_equal(bytes, whole);
  meta_free(&meta);
  str_free(&text);
}

/* Root may write any file, so the test gives up its rights if it has them. */
static void test_manifest_torn_line_in_a_read_only_file_is_an_error(void **state) {
  (void)state;
  Meta meta = {0};
  bool is_root = geteuid() == 0;
  OK(file_write(at("locked"), "{", 1));
  assert_int_equal(chmod(at("locked"), 0444), 0);
  assert_int_equal(chmod(scratch, 0755), 0);
  if (is_root && seteuid(65534) != 0) skip();
  Err err = manifest_recover(at("locked"), &meta);
  if (is_root) assert_int_equal(seteuid(0), 0);
  assert_int_equal(err, ERR_WORK);
  assert_says("cannot write");
  assert_says(at("locked"));
  meta_free(&meta);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_loaders_of_1_to_4_ranks_share_an_epoch),
      cmocka_unit_test(test_batch_is_padded_to_few_shapes),
      cmocka_unit_test(test_loader_reports_a_damaged_shard),
      cmocka_unit_test(test_manifest_full_disk_is_an_error_and_leaves_whole_lines),
      cmocka_unit_test(test_manifest_torn_line_that_cannot_be_removed_is_an_error),
      cmocka_unit_test(test_manifest_torn_line_in_a_read_only_file_is_an_error),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
