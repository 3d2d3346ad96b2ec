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
/* For messages: copies `text` with everything that a terminal obeys, or that changes the
 * order of what is read, made visible: \n, \t, \x1b, bytes that are not UTF-8 as \xff,
 * C1 controls, line separators and bidirectional marks as \u{202e}. What is visible stays
 * as it is, so twice is as good as once. Cut at a whole character when `room` is too small;
 * returns how many bytes of the text are in it. */
size_t utf8_visible(const char *text, char *out, size_t room);
/* For JSON, which holds nothing but UTF-8: copies `text` with each byte that is not UTF-8 as
 * \xNN, and a backslash as \x5c, so that every name has one form and can be had back. False
 * when `room` is too small; four times the length and one always suffice. */
bool utf8_escape(const char *text, char *out, size_t room);

#endif
