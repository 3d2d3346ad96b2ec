/* UTF-8 as hostile bytes: strict decoding, encoding, white space.
 * Relies on nothing. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at `at`; returns its length in bytes (1 to 4), or 0 if
 * the bytes up to `end` do not begin a valid, shortest-form character. */
size_t utf8_decode(const char *at, const char *end, uint32_t *code);
/* Writes 1 to 4 bytes and returns how many. */
size_t utf8_encode(uint32_t code, char out[4]);
/* Length of the longest valid prefix: equal to `len` when all is well. */
size_t utf8_valid(const char *bytes, size_t len);
/* Bytes of a byte-order mark at the beginning: 3 or 0. */
size_t utf8_bom(const char *bytes, size_t len);
/* Unicode White_Space, as the \s of Perl and of the Moses scripts. */
bool utf8_is_space(uint32_t code);

#endif
