/* Tables as hostile bytes: the first byte selects CSV, TSV, JSON lines or plain text. Every row has the columns that
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
  TableKind kind = (TableKind)(data[0] % (TABLE_TEXT + 1));
  size_t columns = kind == TABLE_TEXT ? 1 : 2;
  if (table_open(&t, fuzz_file(data + 1, size - 1), kind, column, columns)) return 0;
  while (table_row(t, &row) == ERR_OK && row) {
    for (size_t i = 0; i < columns; i++) REQUIRE(row[i].text[row[i].len] == '\0');
    REQUIRE(table_line(t) > last);
    last = table_line(t);
  }
  table_close(t);
  return 0;
}
