/* Strict decoding and encoding of UTF-8. No dependencies. */
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

size_t utf8_decode(const char *at, const char *end, uint32_t *code) {
  const unsigned char *p = (const unsigned char *)at;
  size_t left = (size_t)(end - at);
  if (left == 0) return 0;
  if (p[0] < 0x80) {
    *code = p[0];
    return 1;
  }
  size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  if (p[0] < 0xc2 || p[0] > 0xf4 || left < n) return 0;
  uint32_t c = p[0] & (0xffu >> (n + 1));
  for (size_t i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0;
    c = c << 6 | (p[i] & 0x3f);
  }
  if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
      (n == 4 && (c < 0x10000 || c > 0x10ffff)))
    return 0;
  *code = c;
  return n;
}

size_t utf8_encode(uint32_t code, char out[4]) {
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = n - 1; i > 0; i--) {
    out[i] = (char)(0x80 | (code & 0x3f));
    code >>= 6;
  }
  out[0] = (char)(lead[n] | code);
  return n;
}

size_t utf8_valid(const char *bytes, size_t len) {
  const char *at = bytes, *end = bytes + len;
  while (at < end) {
    uint64_t eight;
    while (end - at >= 8 && (memcpy(&eight, at, 8), (eight & 0x8080808080808080u) == 0))
      at += 8;
    if (at == end) break;
    uint32_t code;
    size_t n = utf8_decode(at, end, &code);
    if (n == 0) break;
    at += n;
  }
  return (size_t)(at - bytes);
}

size_t utf8_bom(const char *bytes, size_t len) {
  static const char mark[] = "\xef\xbb\xbf";
  return len >= 3 && memcmp(bytes, mark, 3) == 0 ? 3 : 0;
}

bool utf8_is_space(uint32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0d);
  if (c < 0x1680) return c == 0x85 || c == 0xa0;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

#define SHOWN 16 /* maximum bytes of one escaped character, including the NUL */

static bool is_obeyed(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

/* Writes the character or byte at `at` in its escaped form. Returns the number of bytes of the
 * text that were consumed. */
static size_t show_one(const char *at, const char *end, char shown[SHOWN]) {
  uint32_t code;
  size_t n = utf8_decode(at, end, &code);
  if (n == 0)
    snprintf(shown, SHOWN, "\\x%02x", (unsigned)(unsigned char)*at);
  else if (code == '\n' || code == '\r' || code == '\t')
    snprintf(shown, SHOWN, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
  else if (code < 0x80 && is_obeyed(code))
    snprintf(shown, SHOWN, "\\x%02x", (unsigned)code);
  else if (is_obeyed(code))
    snprintf(shown, SHOWN, "\\u{%x}", (unsigned)code);
  else
    snprintf(shown, SHOWN, "%.*s", (int)n, at);
  return n ? n : 1;
}

size_t utf8_visible(const char *text, char *out, size_t room) {
  size_t len = 0;
  const char *at = text, *end = text + strlen(text);
  while (at < end) {
    char shown[SHOWN];
    size_t taken = show_one(at, end, shown), n = strlen(shown);
    if (len + n + 1 > room) break;
    memcpy(out + len, shown, n);
    len += n;
    at += taken;
  }
  if (room) out[len] = '\0';
  return (size_t)(at - text);
}

bool utf8_escape(const char *text, char *out, size_t room) {
  const char *end = text + strlen(text);
  size_t used = 0;
  while (text < end) {
    uint32_t code;
    size_t n = *text == '\\' ? 0 : utf8_decode(text, end, &code);
    if (used + (n ? n : 4) >= room) return false;
    if (n)
      memcpy(out + used, text, n);
    else
      snprintf(out + used, 5, "\\x%02x", (unsigned)(unsigned char)*text);
    used += n ? n : 4;
    text += n ? n : 1;
  }
  if (used >= room) return false;
  out[used] = '\0';
  return true;
}
