/* Reads the lines of a text file or of standard input. Detects plain text, gzip and Zstandard by
 * the first bytes. Depends on base, zlib, libzstd. */
#ifndef DATA_INPUT_H
#define DATA_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

typedef struct Input Input;

/* Opens a file; "-" is standard input. */
NODISCARD Err input_open(Input **in, const char *path);
/* Returns the next line without its line break (LF or CRLF) and without a byte-order mark. The
 * line stays valid until the next call. *line is NULL after the last line. */
NODISCARD Err input_line(Input *in, const char **line, size_t *len);
/* Returns true if the line returned last ended with CRLF. */
bool input_had_cr(const Input *in);
/* Skips the next `lines` lines, or all remaining ones if there are fewer. */
NODISCARD Err input_skip(Input *in, uint64_t lines);
/* Continues at byte `offset` of a plain, seekable file. The offset must be at or before the start
 * of the line wanted; `before` is the number of line breaks before the offset. Disables the
 * hash. */
NODISCARD Err input_seek(Input *in, uint64_t offset, uint64_t before);
bool input_is_plain(const Input *in); /* Returns true if the file is not compressed. */
/* Disables the SHA-256, which saves the time to compute it. */
void input_end_hash(Input *in);
/* Returns true if input_line can return a line, or the end, without blocking. Waits up to
 * `patience` milliseconds for more data from a pipe. */
bool input_ready(Input *in, int patience);
const char *input_path(const Input *in);
/* Returns the number of the line returned last, from 1. */
uint64_t input_number(const Input *in);
/* Returns the number of bytes read from the file so far, before decompression. */
uint64_t input_bytes(const Input *in);
/* Returns the SHA-256 of the file before decompression. Call it after the last line. Returns ""
 * if the hash was disabled. */
void input_sha256(Input *in, char hex[65]);
void input_close(Input *in);

#endif
