/* Tables as hostile bytes: the first byte selects CSV, TSV or JSON lines. Every row has the columns that
 * were asked for, and each field ends with NUL. Depends on data/table, memfd. */
#include "data/table.h"

#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const column[] = {"a", "b"};
  Table *t;
  const TableField *row;
  uint64_t last = 0;
  if (size == 0) return 0;
  if (table_open(&t, fuzz_file(data + 1, size - 1), (TableKind)(data[0] % 3), column, 2))
    return 0;
  while (table_row(t, &row) == ERR_OK && row) {
    for (int i = 0; i < 2; i++) REQUIRE(row[i].text[row[i].len] == '\0');
    REQUIRE(table_line(t) > last);
    last = table_line(t);
  }
  table_close(t);
  return 0;
}
