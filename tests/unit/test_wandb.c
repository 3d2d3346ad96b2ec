/* Logs of Weights & Biases runs: bytes equal to those of wandb's own writer
 * (tests/golden/wandb/run.wandb.gz, made by make_golden.py beside it), and the reader. */
#include <math.h>
#include <stdio.h>
#include <zlib.h>

#include "format/wandb.h"
#include "support.h"

#define GOLDEN "tests/golden/wandb/run.wandb.gz"

static void read_golden(Str *out) {
  char part[4096];
  int n;
  gzFile f = gzopen(GOLDEN, "rb");
  assert_non_null(f);
  while ((n = gzread(f, part, sizeof part)) > 0) str_addn(out, part, (size_t)n);
  assert_int_equal(gzclose(f), Z_OK);
  OK(str_check(out));
}

static void add_long_history(WandbLog *log, uint64_t step, char letter, size_t len) {
  Str json = {0};
  for (size_t i = 0; i < len; i++) str_addc(&json, letter);
  OK(str_check(&json));
  wandb_begin_history(log, step);
  wandb_add_item(log, "long", json.s);
  wandb_end(log);
  str_free(&json);
}

static void add_short_records(WandbLog *log) {
  WandbRun run = {"0123abcd", "trireme", "run 1", "h1", NULL, 1763300000.5};
  run.options = "lr = .5\nsteps = 2000\npreset = tiny\ndata = a \"b\" \\ \t\xff\n";
  WandbEnvironment e = {"0123abcd", "Linux 6.1",      "h1", "trireme", 1763300000,
                        4,          (uint64_t)1 << 34};
  wandb_add_header(log, "trireme 1.0");
  wandb_add_run(log, &run);
  wandb_add_environment(log, &e);
  wandb_begin_history(log, 300);
  wandb_add_number(log, "train/loss", 2.5);
  wandb_add_item(log, "bad", "NaN");
  wandb_add_number(log, "_step", 300);
  wandb_end(log);
  wandb_begin_summary(log, 12.75);
  wandb_add_number(log, "train/loss", 2.5);
  wandb_end(log);
  wandb_begin_stats(log, 1763300001.25);
  wandb_add_number(log, "cpu", 12.5);
  wandb_add_number(log, "gpu.0.powerWatts", 612);
  wandb_end(log);
  wandb_add_config(log, "lr = 0.25\n");
}

static void add_golden_records(WandbLog *log) {
  add_short_records(log);
  add_long_history(log, 301, 'x', 32290);
  add_long_history(log, (uint64_t)1 << 40, 'y', 66000);
  wandb_add_exit(log, 0, 12.75);
  wandb_add_exit(log, 1, 0);
  OK(wandb_check(log));
}

static void assert_equal(const Str *got, const Str *want) {
  assert_int_equal(got->len, want->len);
  assert_memory_equal(got->s, want->s, want->len);
}

static void test_wandb_bytes_equal_those_of_wandb(void **state) {
  (void)state;
  Str want = {0};
  WandbLog log = {0};
  read_golden(&want);
  add_golden_records(&log);
  assert_equal(&log.out, &want);
  str_free(&want);
  wandb_free(&log);
}

/* Blocks are counted from the beginning of the file, not of what is appended. */
static void test_wandb_records_appended_one_by_one_give_the_same_bytes(void **state) {
  (void)state;
  Str want = {0}, got = {0};
  WandbLog log = {0};
  read_golden(&want);
  add_short_records(&log);
  for (int i = 0; i < 4; i++) {
    str_addn(&got, log.out.s, log.out.len);
    log.offset += log.out.len;
    str_clear(&log.out);
    if (i == 0) add_long_history(&log, 301, 'x', 32290);
    if (i == 1) add_long_history(&log, (uint64_t)1 << 40, 'y', 66000);
    if (i == 2) wandb_add_exit(&log, 0, 12.75);
    if (i == 2) wandb_add_exit(&log, 1, 0);
  }
  OK(wandb_check(&log));
  assert_equal(&got, &want);
  str_free(&want);
  str_free(&got);
  wandb_free(&log);
}

static void assert_number(double value, const char *want) {
  char text[WANDB_NUMBER];
  wandb_print_number(text, value);
  assert_string_equal(text, want);
}

static void test_wandb_numbers_are_json_that_wandb_reads(void **state) {
  (void)state;
  assert_number(0.1, "0.1");
  assert_number(-1e-300, "-1e-300");
  assert_number(1763300000, "1763300000");
  assert_number((double)NAN, "NaN");
  assert_number((double)INFINITY, "Infinity");
  assert_number(-(double)INFINITY, "-Infinity");
}

/* Reader. */

static void write_file(const Str *bytes, size_t len) {
  FILE *f = fopen(at("log"), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes->s, 1, len, f), len);
  assert_int_equal(fclose(f), 0);
}

static Err note_record(void *context, const WandbRecord *r) {
  Str *out = context;
  ProtoBytes at = r->body;
  WandbItem item;
  str_addf(out, "%d", (int)r->type);
  if (r->type == WANDB_HISTORY) str_addf(out, " step %llu", (unsigned long long)r->step);
  if (r->type == WANDB_STATS) str_addf(out, " time %.2f", r->time);
  while (wandb_next_item(r, &at, &item)) {
    str_addf(out, " %.*s=", (int)item.key_len, item.key);
    if (item.json_len < 100)
      str_addn(out, item.json, item.json_len);
    else
      str_addf(out, "%zu bytes", item.json_len);
  }
  str_addc(out, '\n');
  return str_check(out);
}

static void test_wandb_reader_returns_all_records_of_wandb(void **state) {
  (void)state;
  Str golden = {0}, text = {0};
  uint64_t end;
  read_golden(&golden);
  write_file(&golden, golden.len);
  OK(wandb_read(at("log"), note_record, &text, &end));
  assert_int_equal(end, golden.len);
  assert_string_equal(str_text(&text),
                      "21\n"
                      "17\n"
                      "26\n"
                      "2 step 300 train/loss=2.5 bad=NaN _step=300\n"
                      "3 runtime=12 train/loss=2.5\n"
                      "7 time 1763300001.25 cpu=12.5 gpu.0.powerWatts=612\n"
                      "5 lr=0.25\n"
                      "2 step 301 long=32290 bytes\n"
                      "2 step 1099511627776 long=66000 bytes\n"
                      "18\n"
                      "18\n");
  str_free(&golden);
  str_free(&text);
}

/* Ends of the records in the file, and the number of records read. */
typedef struct {
  size_t count;
  uint64_t end[16];
} Ends;

static Err note_end(void *context, const WandbRecord *r) {
  Ends *e = context;
  assert_between(e->count, 0, 15);
  assert_int_equal(r->offset, e->count ? e->end[e->count - 1] : 7);
  e->end[e->count++] = r->end;
  return ERR_OK;
}

/* A process that is killed while it writes leaves any part of its last record. Every length within the
 * short records is tried, and some within the long ones. */
static void test_wandb_reader_ends_before_half_a_record(void **state) {
  (void)state;
  Str golden = {0};
  Ends all = {0};
  uint64_t end;
  read_golden(&golden);
  write_file(&golden, golden.len);
  OK(wandb_read(at("log"), note_end, &all, &end));
  for (size_t len = 0; len < golden.len; len += len < 700 || len > 98600 ? 1 : 331) {
    Ends some = {0};
    write_file(&golden, len);
    OK(wandb_read(at("log"), note_end, &some, &end));
    size_t whole = 0;
    while (whole < all.count && all.end[whole] <= len) whole++;
    assert_int_equal(some.count, whole);
    assert_int_equal(end, whole ? all.end[whole - 1] : len < 7 ? 0 : 7);
  }
  str_free(&golden);
}

static void test_wandb_reader_reports_damage_with_file_and_offset(void **state) {
  (void)state;
  Str golden = {0};
  Ends some = {0};
  uint64_t end;
  read_golden(&golden);
  golden.s[250] ^= 1; /* in the record at 245 */
  write_file(&golden, golden.len);
  assert_int_equal(wandb_read(at("log"), note_end, &some, &end), ERR_WORK);
  assert_says("log is damaged: the record at byte 245 ");
  assert_int_equal(some.count, 3);
  assert_int_equal(end, 245);
  str_free(&golden);
}

static void test_wandb_reader_refuses_another_file(void **state) {
  (void)state;
  Str text = {0};
  uint64_t end;
  str_add(&text, "PK\003\004");
  write_file(&text, text.len);
  assert_int_equal(wandb_read(at("log"), note_end, &(Ends){0}, &end), ERR_WORK);
  assert_says("is not the log of a Weights & Biases run");
  str_free(&text);
}

static Err refuse_record(void *context, const WandbRecord *r) {
  (void)context;
  (void)r;
  return err_set(ERR_USAGE, "enough");
}

static void test_wandb_reader_returns_the_error_of_the_visitor(void **state) {
  (void)state;
  Str golden = {0};
  uint64_t end;
  read_golden(&golden);
  write_file(&golden, golden.len);
  assert_int_equal(wandb_read(at("log"), refuse_record, NULL, &end), ERR_USAGE);
  str_free(&golden);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wandb_bytes_equal_those_of_wandb),
      cmocka_unit_test(test_wandb_records_appended_one_by_one_give_the_same_bytes),
      cmocka_unit_test(test_wandb_numbers_are_json_that_wandb_reads),
      cmocka_unit_test(test_wandb_reader_returns_all_records_of_wandb),
      cmocka_unit_test(test_wandb_reader_ends_before_half_a_record),
      cmocka_unit_test(test_wandb_reader_reports_damage_with_file_and_offset),
      cmocka_unit_test(test_wandb_reader_refuses_another_file),
      cmocka_unit_test(test_wandb_reader_returns_the_error_of_the_visitor),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
