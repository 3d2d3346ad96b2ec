/* UTF-8 from untrusted input: strict decoding, encoding, white space, escaping. No dependencies. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at `at`; returns its length in bytes (1 to 4), or 0 if
 * the bytes up to `end` do not begin a valid, shortest-form character. */
size_t utf8_decode(const char *at, const char *end, uint32_t *code);
/* Encodes a code point; returns the number of bytes written (1 to 4). */
size_t utf8_encode(uint32_t code, char out[4]);
/* Returns the length of the longest valid prefix; equal to `len` if all bytes are valid. */
size_t utf8_valid(const char *bytes, size_t len);
/* Returns the length of a byte-order mark at the beginning: 3, or 0 if there is none. */
size_t utf8_bom(const char *bytes, size_t len);
/* Returns true for Unicode White_Space, the characters that \s matches in Perl and in the Moses
 * scripts. */
bool utf8_is_space(uint32_t code);
/* Copies `text` for a message and escapes characters that a terminal interprets: control
 * characters as \n, \t, \x1b; bytes that are not UTF-8 as \xff; C1 controls, line separators and bidirectional
 * marks as \u{202e}. Printable text, including such escapes, is unchanged: a second call changes
 * nothing. Truncates at a whole character if `room` is too small; returns how many bytes of
 * `text` were copied. */
size_t utf8_visible(const char *text, char *out, size_t room);
/* Copies `text` for JSON, which allows only UTF-8: each byte that is not UTF-8 becomes \xNN and a
 * backslash becomes \x5c, so the escaping is unambiguous and reversible. Returns false if `room`
 * is too small; 4 * length + 1 bytes are always enough. */
bool utf8_escape(const char *text, char *out, size_t room);

#endif
