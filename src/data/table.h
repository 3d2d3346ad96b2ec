/* Reads rows of a table with named columns: CSV (RFC 4180), TSV or JSON lines, or plain text, uncompressed or compressed with
 * gzip or Zstandard. The bytes are not trusted: errors name the file and the line. Depends on base,
 * input, jansson.
 *
 *   CSV     the first row names the columns; fields with commas, quotes or line breaks are in double
 *           quotes, and a quote inside is doubled
 *   TSV     the first row names the columns; a quote is an ordinary character
 *   JSONL   one object per line; a text, number or boolean by the column's name. The name "a.b" also finds
 *           the member b of the object a
 *   TEXT    every line that is not empty is a row with one field; columns have no names */
#ifndef DATA_TABLE_H
#define DATA_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/stringmap.h"

#define TABLE_FIELD_LIMIT ((size_t)1 << 22) /* maximum bytes of a row, and so of a field */
#define TABLE_COLUMNS     4096              /* maximum number of columns of a file */

typedef enum { TABLE_CSV, TABLE_TSV, TABLE_JSONL, TABLE_TEXT } TableKind;

typedef struct {
  const char *text; /* ends with NUL; may also contain NUL bytes */
  size_t len;
} TableField;

typedef struct Table Table;

/* Sets the kind by the end of the file's name, without .gz or .zst; never TABLE_TEXT. */
NODISCARD Err table_kind(const char *path, TableKind *kind);
/* Opens a file whose rows have at least the named columns. TABLE_TEXT: `columns` is 1, and the name is
 * not used. */
NODISCARD Err table_open(Table **out, const char *path, TableKind kind,
                         const char *const *column, size_t columns);
/* Adds the names of all columns to `names`; JSON lines: those of the members of the object `member` of
 * the first row, none if it has no such object. */
NODISCARD Err table_list_names(const char *path, TableKind kind, const char *member,
                               StringMap *names);
/* Reads the next row: *row has one field for each column that was named, in that order, valid until
 * the next call. *row is NULL after the last row. */
NODISCARD Err table_row(Table *t, const TableField **row);
/* Returns the line on which the row returned last begins, from 1. */
uint64_t table_line(const Table *t);
/* Returns the number of bytes read from the file so far, before decompression. */
uint64_t table_bytes(const Table *t);
/* Returns the SHA-256 of the file before decompression. Call it after the last row. */
void table_sha256(Table *t, char hex[65]);
void table_close(Table *t);

#endif
