/* Tables: CSV as RFC 4180 has it, TSV, JSON lines, and files that are none of these. Depends on data,
 * cmocka. */
#include <stdio.h>
#include <zlib.h>

#include "base/mem.h"
#include "data/table.h"
#include "support.h"

static const char *const two[] = {"class", "text"};

/* Writes the bytes to a file of this name and opens the columns "class" and "text". */
static Err open_bytes(Table **t, const char *name, const char *bytes, size_t len) {
  TableKind kind;
  OK(file_write(at(name), bytes, len));
  OK(table_kind(name, &kind));
  return table_open(t, at(name), kind, two, 2);
}
static Table *open_table(const char *name, const char *text) {
  Table *t;
  OK(open_bytes(&t, name, text, strlen(text)));
  return t;
}

static void assert_row(Table *t, const char *class, const char *text, uint64_t line) {
  const TableField *row;
  OK(table_row(t, &row));
  assert_non_null(row);
  assert_string_equal(row[0].text, class);
  assert_string_equal(row[1].text, text);
  assert_int_equal(row[1].len, strlen(text));
  assert_int_equal(table_line(t), line);
}
static void assert_end(Table *t) {
  const TableField *row;
  OK(table_row(t, &row));
  assert_null(row);
  OK(table_row(t, &row));
  assert_null(row);
  table_close(t);
}
static void assert_wrong(const char *name, const char *bytes, size_t len, const char *words) {
  Table *t;
  const TableField *row = (const TableField *)bytes;
  Err err = open_bytes(&t, name, bytes, len);
  while (!err && row) err = table_row(t, &row);
  assert_int_equal(err, ERR_WORK);
  assert_says(words);
  if (strstr(err_message(), "column") == NULL) assert_says(name);
  table_close(t);
}
#define WRONG(name, text, words) assert_wrong(name, text, sizeof(text) - 1, words)

static void test_csv_columns_are_found_by_name(void **state) {
  (void)state;
  Table *t = open_table("a.csv", "id,text,class\n7,one,1\n8,two,0\n");
  assert_row(t, "1", "one", 2);
  assert_row(t, "0", "two", 3);
  assert_end(t);
}

static void test_csv_quoted_field_keeps_commas_quotes_and_line_breaks(void **state) {
  (void)state;
  Table *t = open_table(
      "a.csv", "class,text\r\n1,\"a, \"\"b\"\"\r\n\r\nc\nd\"\r\n\"2\",\"\"\r\n3,\"\"\"\"\r\n");
  assert_row(t, "1", "a, \"b\"\r\n\r\nc\nd", 2);
  assert_row(t, "2", "", 6);
  assert_row(t, "3", "\"", 7);
  assert_end(t);
}

static void test_csv_quote_inside_an_unquoted_field_is_kept(void **state) {
  (void)state;
  Table *t = open_table("a.csv", "class,text\n1,say \"hi\", \n");
  const TableField *row;
  assert_int_equal(table_row(t, &row), ERR_WORK);
  assert_says("3 fields");
  table_close(t);
  t = open_table("b.csv", "class,text\n1,5\" screen\n");
  assert_row(t, "1", "5\" screen", 2);
  assert_end(t);
}

static void test_csv_mark_and_empty_lines_are_skipped_and_the_last_line_may_have_no_end(
    void **state) {
  (void)state;
  Table *t = open_table("a.csv",
                        "\xef\xbb\xbf"
                        "class,text\n\n1,a\n\n2,b");
  assert_row(t, "1", "a", 3);
  assert_row(t, "2", "b", 5);
  assert_end(t);
}

static void test_csv_compressed_has_the_same_rows(void **state) {
  (void)state;
  const char text[] = "class,text\n1,\"a\nb\"\n";
  gzFile out = gzopen(at("a.csv.gz"), "wb");
  TableKind kind;
  Table *t;
  gzwrite(out, text, sizeof text - 1);
  gzclose(out);
  OK(table_kind("a.csv.gz", &kind));
  OK(table_open(&t, at("a.csv.gz"), kind, two, 2));
  assert_row(t, "1", "a\nb", 2);
  assert_end(t);
}

static void test_csv_nul_in_a_field_is_kept(void **state) {
  (void)state;
  Table *t;
  const TableField *row;
  const char bytes[] = "class,text\n1,a\0b\n";
  OK(open_bytes(&t, "a.csv", bytes, sizeof bytes - 1));
  OK(table_row(t, &row));
  assert_int_equal(row[1].len, 3);
  assert_memory_equal(row[1].text, "a\0b", 4);
  assert_end(t);
}

static void test_tsv_quote_is_an_ordinary_character(void **state) {
  (void)state;
  Table *t = open_table("a.tsv", "text\tclass\n\"a, b\t1\n\"\t2\n");
  assert_row(t, "1", "\"a, b", 2);
  assert_row(t, "2", "\"", 3);
  assert_end(t);
}

static void test_jsonl_values_are_texts(void **state) {
  (void)state;
  Table *t = open_table(
      "a.jsonl",
      "{\"text\":\"a\\nb\",\"class\":3}\n\n{\"class\":true,\"x\":[1],\"text\":\"\"}\n"
      "{\"class\":0.25,\"text\":\"c\"}\n");
  assert_row(t, "3", "a\nb", 1);
  assert_row(t, "1", "", 3);
  assert_row(t, "0.25", "c", 4);
  assert_end(t);
}

static void test_missing_column_is_named_with_those_that_exist(void **state) {
  (void)state;
  WRONG("a.csv", "label,text\n1,a\n", "has no column 'class'; its columns are label, text");
  WRONG("a.csv", "class,text,class\n1,a,2\n", "has two columns 'class'");
  WRONG("a.jsonl", "{\"text\":\"a\"}\n", "a.jsonl:1: there is no 'class' in the object");
  WRONG("a.csv", "", "is empty; its first row must name the columns");
}

static void test_ragged_row_is_named_by_line(void **state) {
  (void)state;
  WRONG("a.csv", "class,text\n1,\"a\nb\"\n2\n",
        "a.csv:4: the row has 1 field, but the first row names 2");
  WRONG("a.csv", "class,text\n1,a,b\n", "a.csv:2: the row has 3 fields");
}

static void test_broken_quotes_are_named_by_line(void **state) {
  (void)state;
  WRONG("a.csv", "class,text\n1,a\n2,\"b\n3,c\n",
        "a.csv:3: a quoted field of this row has no closing quote");
  WRONG("a.csv", "class,text\n1,\"a\"b\n",
        "a.csv:2: field 2 of the row goes on after its closing quote");
}

static void test_bytes_that_are_not_utf8_are_named_by_line(void **state) {
  (void)state;
  WRONG("a.csv", "class,text\n1,caf\xe9\n", "a.csv:2: byte 6 of the line is not UTF-8");
}

static void test_jsonl_other_values_are_errors(void **state) {
  (void)state;
  WRONG("a.jsonl", "{\"text\":\"a\",\"class\":null}\n",
        "a.jsonl:1: the value of 'class' is not a text");
  WRONG("a.jsonl", "[1]\n", "a.jsonl:1: is not a JSON object");
  WRONG("a.jsonl", "{\"text\":\n", "a.jsonl:1: is not JSON");
}

/* A quote that is never closed must not read the whole file into memory. */
static void test_field_of_10_mb_is_refused(void **state) {
  (void)state;
  enum { BYTES = 10 << 20 };
  char *text;
  OK(mem_alloc(&text, BYTES, 1));
  for (size_t i = 0; i < BYTES; i++) text[i] = i % 80 ? 'x' : '\n';
  memcpy(text, "class,text\n1,\"", 14);
  assert_wrong("a.csv", text, BYTES, "a.csv:2: the row is longer than 4,194,304 bytes");
  memset(text + 14, 'x', BYTES - 14);
  assert_wrong("a.csv", text, BYTES, "a.csv:2: the line is longer than 1048576 bytes");
  mem_free(text);
}

static void test_too_many_columns_are_refused(void **state) {
  (void)state;
  char text[5000];
  memset(text, ',', sizeof text);
  assert_wrong("a.csv", text, sizeof text, "a.csv:1: the row has more than 4,096 columns");
}

static void test_kind_of_an_unknown_name_is_an_error(void **state) {
  (void)state;
  TableKind kind;
  assert_int_equal(table_kind("data.xlsx", &kind), ERR_USAGE);
  assert_says("data.xlsx");
  OK(table_kind("a.tsv.zst", &kind));
  assert_int_equal(kind, TABLE_TSV);
  OK(table_kind("a.json", &kind));
  assert_int_equal(kind, TABLE_JSONL);
}

static void test_open_without_memory_fails_cleanly(void **state) {
  (void)state;
  const char text[] = "class,text\n1,\"a\nb\"\n";
  OK(file_write(at("a.csv"), text, sizeof text - 1));
  for (uint64_t n = 1; n < 100; n++) {
    Table *t;
    const TableField *row;
    mem_fail_after(n);
    Err err = table_open(&t, at("a.csv"), TABLE_CSV, two, 2);
    if (!err) err = table_row(t, &row);
    mem_fail_after(0);
    table_close(t);
    if (!err) return;
  }
  fail_msg("more than 100 allocations");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_csv_columns_are_found_by_name),
      cmocka_unit_test(test_csv_quoted_field_keeps_commas_quotes_and_line_breaks),
      cmocka_unit_test(test_csv_quote_inside_an_unquoted_field_is_kept),
      cmocka_unit_test(
          test_csv_mark_and_empty_lines_are_skipped_and_the_last_line_may_have_no_end),
      cmocka_unit_test(test_csv_compressed_has_the_same_rows),
      cmocka_unit_test(test_csv_nul_in_a_field_is_kept),
      cmocka_unit_test(test_tsv_quote_is_an_ordinary_character),
      cmocka_unit_test(test_jsonl_values_are_texts),
      cmocka_unit_test(test_missing_column_is_named_with_those_that_exist),
      cmocka_unit_test(test_ragged_row_is_named_by_line),
      cmocka_unit_test(test_broken_quotes_are_named_by_line),
      cmocka_unit_test(test_bytes_that_are_not_utf8_are_named_by_line),
      cmocka_unit_test(test_jsonl_other_values_are_errors),
      cmocka_unit_test(test_field_of_10_mb_is_refused),
      cmocka_unit_test(test_too_many_columns_are_refused),
      cmocka_unit_test(test_kind_of_an_unknown_name_is_an_error),
      cmocka_unit_test(test_open_without_memory_fails_cleanly),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
