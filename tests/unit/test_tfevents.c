/* TensorBoard's event files: checksums, bytes equal to those of TensorBoard's own writer
 * (tests/golden/tfevents/events.bin, made by make_golden.py beside it), and the reader. */
#include <stdio.h>

#include "format/hparams.h"
#include "format/tfevents.h"
#include "support.h"

#define GOLDEN  "tests/golden/tfevents/events.bin"
#define RECORDS 8

/* The test vectors of RFC 3720, B.4, and the check value of the polynomial. */
static void test_tfevents_crc32c_equals_published_values(void **state) {
  (void)state;
  uint8_t bytes[32] = {0};
  assert_int_equal(tfevents_crc32c(0, bytes, 32), 0x8a9136aau);
  memset(bytes, 0xff, sizeof bytes);
  assert_int_equal(tfevents_crc32c(0, bytes, 32), 0x62a8ab43u);
  for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
  assert_int_equal(tfevents_crc32c(0, bytes, 32), 0x46dd794eu);
  for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)(31 - i);
  assert_int_equal(tfevents_crc32c(0, bytes, 32), 0x113fdb5cu);
  assert_int_equal(tfevents_crc32c(0, "123456789", 9), 0xe3069283u);
  assert_int_equal(tfevents_crc32c(0, "", 0), 0);
}

static void test_tfevents_crc32c_of_parts_continues(void **state) {
  (void)state;
  uint32_t first = tfevents_crc32c(0, "1234", 4);
  assert_int_equal(tfevents_crc32c(first, "56789", 5), 0xe3069283u);
}

static void add_golden_records(Str *out) {
  const double limit[] = {-0.5, 0.5, 2}, bucket[] = {1, 2, 1};
  TfHistogram h = {.min = -1, .max = 2, .count = 4, .square_sum = 6.5, .buckets = 3};
  h.limit = limit;
  h.bucket = bucket;
  tfevents_add_version(out, 1.5);
  tfevents_add_start(out, 2.5, 1);
  TfSummary s = tfevents_begin(out, 3.0, 0);
  tfevents_add_hparams(&s, "lr = 0.5\n", 3.0);
  tfevents_end(&s);
  s = tfevents_begin(out, 3.0, 0);
  tfevents_add_hparams(&s, "preset = tiny\n", 3.0);
  tfevents_end(&s);
  s = tfevents_begin(out, 4.25, 300);
  tfevents_add_scalar(&s, "train/loss", 2.5f);
  tfevents_add_scalar(&s, "epoch", 0);
  tfevents_end(&s);
  s = tfevents_begin(out, 5.0, (uint64_t)1 << 40);
  tfevents_add_histogram(&s, "weights/a", &h);
  tfevents_end(&s);
  s = tfevents_begin(out, 6.0, 7);
  tfevents_add_table(&s, "valid/samples",
                     "source\0output\0Gr\xc3\xbc\xc3\x9f"
                     "e\0",
                     2, 2);
  tfevents_end(&s);
}

static void add_long_record(Str *out) {
  Str cells = {0};
  for (int i = 0; i < 200; i++) str_addc(&cells, 'x');
  str_addc(&cells, '\0');
  for (int i = 0; i < 20000; i++) str_addc(&cells, 'y');
  str_addc(&cells, '\0');
  OK(str_check(&cells));
  TfSummary s = tfevents_begin(out, 7.0, 8);
  tfevents_add_table(&s, "long", cells.s, 2, 1);
  tfevents_end(&s);
  str_free(&cells);
}

static void test_tfevents_bytes_equal_those_of_tensorboard(void **state) {
  (void)state;
  Str want = {0}, got = {0};
  OK(file_read(GOLDEN, 1 << 20, &want));
  add_golden_records(&got);
  add_long_record(&got);
  OK(str_check(&got));
  assert_int_equal(got.len, want.len);
  assert_memory_equal(got.s, want.s, want.len);
  str_free(&want);
  str_free(&got);
}

/* Not file_write, which would sync more than a thousand times. */
static void write_records(const Str *records, size_t len) {
  FILE *f = fopen(at("events"), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(records->s, 1, len, f), len);
  assert_int_equal(fclose(f), 0);
}

static Err note_event(void *context, const TfEvent *e) {
  Str *out = context;
  TfValue v;
  str_addf(out, "%lld%s", (long long)e->step, e->is_start ? " start" : "");
  for (size_t at = 0; tfevents_next_value(e, &at, &v);) {
    str_addf(out, " %.*s", (int)v.tag_len, v.tag);
    if (v.kind == TF_SCALAR) str_addf(out, "=%g", (double)v.scalar);
    if (v.kind == TF_HISTOGRAM) str_add(out, " histogram");
    if (v.kind == TF_TENSOR) str_add(out, " tensor");
  }
  str_addc(out, '\n');
  return str_check(out);
}

static void test_tfevents_reader_returns_steps_tags_and_values(void **state) {
  (void)state;
  Str text = {0};
  OK(tfevents_read(GOLDEN, note_event, &text));
  assert_string_equal(str_text(&text),
                      "0\n"
                      "1 start\n"
                      "0 _hparams_/session_start_info tensor\n"
                      "0 _hparams_/session_start_info tensor\n"
                      "300 train/loss=2.5 epoch=0\n"
                      "1099511627776 weights/a histogram\n"
                      "7 valid/samples tensor\n"
                      "8 long tensor\n");
  str_free(&text);
}

static Err count_event(void *context, const TfEvent *e) {
  (void)e;
  ++*(int *)context;
  return ERR_OK;
}

/* A process that is killed while it writes leaves any part of its last record. */
static void test_tfevents_reader_ignores_half_a_record_at_the_end(void **state) {
  (void)state;
  Str records = {0};
  add_golden_records(&records);
  OK(str_check(&records));
  int most = 0;
  for (size_t len = 0; len <= records.len; len++) {
    int count = 0;
    write_records(&records, len);
    OK(tfevents_read(at("events"), count_event, &count));
    assert_between(count, most, most + 1);
    most = count;
  }
  assert_int_equal(most, RECORDS - 1);
  str_free(&records);
}

static void test_tfevents_reader_finds_every_changed_bit(void **state) {
  (void)state;
  Str records = {0};
  tfevents_add_version(&records, 1.5);
  tfevents_add_start(&records, 2.5, 1);
  OK(str_check(&records));
  for (size_t bit = 0; bit < 8 * records.len; bit++) {
    int count = 0;
    records.s[bit / 8] = (char)(records.s[bit / 8] ^ (1 << bit % 8));
    write_records(&records, records.len);
    assert_int_equal(tfevents_read(at("events"), count_event, &count), ERR_WORK);
    assert_says("events is damaged: the checksum of a");
    records.s[bit / 8] = (char)(records.s[bit / 8] ^ (1 << bit % 8));
  }
  str_free(&records);
}

/* Frames `message` as a record with correct checksums. */
static void write_message(const char *message, size_t len) {
  Str record = {0};
  uint8_t header[12] = {(uint8_t)len};
  uint32_t crc = tfevents_masked_crc(header, 8);
  for (int i = 0; i < 4; i++) header[8 + i] = (uint8_t)(crc >> (8 * i));
  str_addn(&record, (const char *)header, sizeof header);
  str_addn(&record, message, len);
  crc = tfevents_masked_crc(message, len);
  for (int i = 0; i < 4; i++) str_addc(&record, (char)(crc >> (8 * i)));
  OK(str_check(&record));
  write_records(&record, record.len);
  str_free(&record);
}

static void assert_message_refused(const char *message, size_t len) {
  int count = 0;
  write_message(message, len);
  assert_int_equal(tfevents_read(at("events"), count_event, &count), ERR_WORK);
  assert_says("events is damaged: a message is not an event (record at byte 0)");
  assert_int_equal(count, 0);
}

static void test_tfevents_reader_refuses_a_length_beyond_the_message(void **state) {
  (void)state;
  assert_message_refused("\x2a\x05\x0a", 3);                                  /* summary */
  assert_message_refused("\x2a\x02\x0a\x05", 4);                              /* value */
  assert_message_refused("\x2a\x04\x0a\x02\x0a\x09", 6);                      /* tag */
  assert_message_refused("\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11); /* 2^64 - 1 */
}

static void test_tfevents_reader_refuses_a_varint_without_end(void **state) {
  (void)state;
  assert_message_refused("\x10\x80", 2);
  assert_message_refused("\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12);
}

static void test_tfevents_reader_refuses_an_unknown_wire_type(void **state) {
  (void)state;
  assert_message_refused("\x0b", 1);
}

static void test_tfevents_text_that_is_not_utf8_is_replaced(void **state) {
  (void)state;
  Str out = {0};
  TfSummary s = tfevents_begin(&out, 1.0, 1);
  tfevents_add_table(&s, "t",
                     "a\xff\xfe"
                     "b",
                     1, 1);
  tfevents_end(&s);
  OK(str_check(&out));
  const char want[] =
      "\x42\x08"
      "a\xef\xbf\xbd\xef\xbf\xbd"
      "b";
  assert_non_null(memmem(out.s, out.len, want, sizeof want - 1));
  str_free(&out);
}

static void test_tfevents_hparams_lines_without_a_name_are_left_out(void **state) {
  (void)state;
  Str with = {0}, without = {0};
  TfSummary s = tfevents_begin(&with, 1.0, 0);
  tfevents_add_hparams(&s, "= 3\n\nword\nlr = 0.5", 3.0);
  tfevents_end(&s);
  s = tfevents_begin(&without, 1.0, 0);
  tfevents_add_hparams(&s, "lr = 0.5\n", 3.0);
  tfevents_end(&s);
  OK(str_check(&with));
  OK(str_check(&without));
  assert_int_equal(with.len, without.len);
  assert_memory_equal(with.s, without.s, with.len);
  str_free(&with);
  str_free(&without);
}

static void test_hparams_numbers_are_decimal(void **state) {
  (void)state;
  Str copy = {0};
  Hparam h;
  double number;
  const char *options = "a = 0.5\nb = 0x1f\nc = 1e3\nd = 0X1P3\ne = 1e999\nf = +.5\n";
  char found[8] = "";
  for (size_t n = 0; hparams_next(&options, &h);)
    if (hparams_is_number(&h, &copy, &number)) found[n++] = h.name[0];
  assert_string_equal(found, "acf");
  str_free(&copy);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tfevents_crc32c_equals_published_values),
      cmocka_unit_test(test_tfevents_crc32c_of_parts_continues),
      cmocka_unit_test(test_tfevents_bytes_equal_those_of_tensorboard),
      cmocka_unit_test(test_tfevents_reader_returns_steps_tags_and_values),
      cmocka_unit_test(test_tfevents_reader_ignores_half_a_record_at_the_end),
      cmocka_unit_test(test_tfevents_reader_finds_every_changed_bit),
      cmocka_unit_test(test_tfevents_reader_refuses_a_length_beyond_the_message),
      cmocka_unit_test(test_tfevents_reader_refuses_a_varint_without_end),
      cmocka_unit_test(test_tfevents_reader_refuses_an_unknown_wire_type),
      cmocka_unit_test(test_tfevents_text_that_is_not_utf8_is_replaced),
      cmocka_unit_test(test_tfevents_hparams_lines_without_a_name_are_left_out),
      cmocka_unit_test(test_hparams_numbers_are_decimal),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
