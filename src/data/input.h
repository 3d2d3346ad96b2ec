/* Reads the lines of a text file or of standard input. The first bytes
 * of the file distinguish plain text, gzip and Zstandard. Depends on base, zlib, libzstd. */
#ifndef DATA_INPUT_H
#define DATA_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

typedef struct Input Input;

/* "-" is standard input. */
NODISCARD Err input_open(Input **in, const char *path);
/* The next line, without its end (LF or CRLF) and without a byte-order mark;
 * it stays valid until the next call. *line is NULL after the last. */
NODISCARD Err input_line(Input *in, const char **line, size_t *len);
/* Passes over the next lines, fewer at the end of the file. */
NODISCARD Err input_skip(Input *in, uint64_t lines);
/* Continues at a place of a plain file that can be read from any place, at or before the start of
 * a line: `before` line ends precede it. Ends the hash. */
NODISCARD Err input_seek(Input *in, uint64_t offset, uint64_t before);
bool input_is_plain(const Input *in); /* not compressed */
/* The hash is not wanted: saves the time for it. */
void input_end_hash(Input *in);
/* Returns whether input_line can return a line, or the end, without blocking. Waits up to
 * `patience` milliseconds for more data from a pipe. */
bool input_ready(Input *in, int patience);
const char *input_path(const Input *in);
uint64_t input_number(const Input *in); /* of the line last given, from 1 */
uint64_t input_bytes(const Input *in);  /* read from the file so far, as stored */
/* SHA-256 of the file as stored; after the last line. "" if the hash was ended. */
void input_sha256(Input *in, char hex[65]);
void input_close(Input *in);

#endif
