/* White space and letter case as Python defines them. Depends on base/utf8, utf8proc (version 2.8
 * has Unicode 15.0; later characters count as unassigned). */
#include "metric/unicode.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#ifdef HAVE_UTF8PROC
#include <utf8proc.h>

Err metric_unicode(void) {
  return ERR_OK;
}

MetricClass metric_class(uint32_t code) {
  switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return METRIC_NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return METRIC_PUNCTUATION;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return METRIC_SYMBOL;
    default:
      return METRIC_OTHER;
  }
}

static uint32_t lower_character(uint32_t code) {
  return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

/* Returns the Unicode property Case_Ignorable: some general categories, and word-break marks
 * inside words. */
static bool is_case_ignorable(uint32_t code) {
  static const uint16_t marks[] = {0x27,   0x2e,   0x3a,   0xb7,   0x387,  0x55f,
                                   0x5f4,  0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
                                   0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    if (code == marks[i]) return true;
  }
  switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

/* Returns the Unicode property Cased, for a character that is not Case_Ignorable. */
static bool is_cased(uint32_t code) {
  static const uint32_t ranges[][2] = {
      {0xaa, 0xaa},       {0xba, 0xba},       {0x2160, 0x217f},  {0x24b6, 0x24e9},
      {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
  }
  utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}
#else
Err metric_unicode(void) {
  return err_set(ERR_WORK,
                 "scores are not available: this program was built without utf8proc; install "
                 "libutf8proc-dev and build it again");
}

MetricClass metric_class(uint32_t code) {
  (void)code;
  return METRIC_OTHER;
}

static uint32_t lower_character(uint32_t code) {
  return code;
}

static bool is_case_ignorable(uint32_t code) {
  (void)code;
  return false;
}

static bool is_cased(uint32_t code) {
  (void)code;
  return false;
}
#endif

bool metric_is_space(uint32_t code) {
  return (code >= 0x1c && code <= 0x1f) || utf8_is_space(code);
}

/* Returns the first byte of the character that ends before `at`. */
static const char *step_back(const char *begin, const char *at) {
  do at--;
  while (at > begin && ((unsigned char)*at & 0xc0) == 0x80);
  return at;
}

MetricText metric_rstrip(MetricText text) {
  const char *end = text.s + text.len;
  while (end > text.s) {
    const char *at = step_back(text.s, end);
    uint32_t code;
    if (!utf8_decode(at, end, &code) || !metric_is_space(code)) break;
    end = at;
  }
  return (MetricText){text.s, (size_t)(end - text.s)};
}

/* Returns true if the capital sigma at `at` is the last letter of a word of several letters. Its
 * lower case is then ς. */
static bool is_final_sigma(MetricText text, const char *at, const char *after) {
  const char *end = text.s + text.len, *p = at;
  uint32_t code = 0;
  do {
    if (p == text.s) return false;
    p = step_back(text.s, p);
    utf8_decode(p, end, &code);
  } while (is_case_ignorable(code));
  if (!is_cased(code)) return false;
  for (p = after; p < end;) {
    p += utf8_decode(p, end, &code);
    if (!is_case_ignorable(code)) return !is_cased(code);
  }
  return true;
}

Err metric_lower(MetricText text, MetricBuffer *out) {
  /* Lower case makes a character at most one byte longer, from two bytes to three. */
  TRY(mem_grow(&out->s, &out->cap, text.len + text.len / 2 + 4, 1));
  char *to = out->s;
  const char *end = text.s + text.len;
  for (const char *at = text.s; at < end;) {
    unsigned char first = (unsigned char)*at;
    if (first < 0x80) {
      *to++ = (char)(first >= 'A' && first <= 'Z' ? first + 32 : first);
      at++;
      continue;
    }
    uint32_t code;
    size_t n = utf8_decode(at, end, &code);
    if (n == 0)
      return err_set(ERR_WORK,
                     "cannot score a line that is not valid UTF-8; convert the file, for "
                     "example with iconv");
    /* The lower case of U+0130 (capital I with dot) is i and a combining dot. */
    if (code == 0x130) {
      *to++ = 'i';
      code = 0x307;
    } else if (code == 0x3a3) {
      code = is_final_sigma(text, at, at + n) ? 0x3c2 : 0x3c3;
    } else {
      code = lower_character(code);
    }
    to += utf8_encode(code, to);
    at += n;
  }
  out->len = (size_t)(to - out->s);
  return ERR_OK;
}
