/* Extracts archive members through libarchive, and parses the SGM files of WMT. All input is
 * untrusted. Depends on libarchive, base. */
#include "data/unpack.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/progress.h"
#include "base/utf8.h"

/* ---- archives ---- */

Err unpack_member(const char *archive, const char *member, const char *to) {
  return unpack_members(archive, &(UnpackPair){.member = member, .to = to}, 1);
}

#ifndef HAVE_ARCHIVE

bool unpack_is_built(void) {
  return false;
}

Err unpack_members(const char *archive, const UnpackPair *pairs, size_t n) {
  (void)pairs;
  (void)n;
  return err_set(ERR_WORK,
                 "cannot unpack %s: this program was built without libarchive; install "
                 "libarchive-dev and build it again",
                 archive);
}

#else

#include <archive.h>
#include <archive_entry.h>

#define BLOCK       ((size_t)1 << 18)
#define SHOWN_NAMES 5

bool unpack_is_built(void) {
  return true;
}

static Err archive_error(struct archive *a, const char *path) {
  const char *why = archive_error_string(a);
  return err_set(ERR_WORK,
                 "cannot unpack %s: %s; if it is damaged, remove it and fetch it again", path,
                 why ? why : "unknown error");
}

static const char *plain_name(const char *name) {
  while (name[0] == '.' && name[1] == '/') {
    name += 2;
    while (*name == '/') name++;
  }
  return name;
}

/* Extracts an archive entry to `to`: writes a temporary file and renames it. */
static Err extract_entry(struct archive *a, const char *path, const char *to, char *block,
                         Progress *progress) {
  char beside[FILE_PATH_MAX];
  /* The temporary file has a fixed name, so that the leftover of a killed process is
   * overwritten. */
  int len = snprintf(beside, sizeof beside, "%s.part", to);
  if (len < 0 || len >= FILE_PATH_MAX)
    return err_set(ERR_WORK, "the path %s is too long; choose a directory with a shorter path",
                   to);
  FileWriter w;
  TRY(file_create(&w, beside));
  Err err = ERR_OK;
  for (;;) {
    la_ssize_t n = archive_read_data(a, block, BLOCK);
    if (n == ARCHIVE_RETRY) continue;
    if (n < 0) err = archive_error(a, path);
    if (n <= 0) break;
    err = file_put(&w, block, (size_t)n);
    if (err) break;
    progress_set(progress, (uint64_t)archive_filter_bytes(a, -1));
  }
  if (!err) err = file_finish(&w, NULL);
  file_abandon(&w);
  if (!err) err = file_rename(beside, to);
  if (err) unlink(beside);
  return err;
}

static Err extract_pairs(struct archive *a, const char *path, const UnpackPair *pairs, size_t n,
                         bool *found, char *block, Progress *progress) {
  Str names = {0};
  size_t left = n;
  int shown = 0;
  Err err = ERR_OK;
  while (left && !err) {
    struct archive_entry *entry;
    int code = archive_read_next_header(a, &entry);
    if (code == ARCHIVE_RETRY) continue;
    if (code == ARCHIVE_EOF) break;
    if (code < ARCHIVE_WARN) {
      err = archive_error(a, path);
      break;
    }
    progress_set(progress, (uint64_t)archive_filter_bytes(a, -1));
    const char *name = archive_entry_pathname(entry);
    if (!name) continue;
    bool regular = archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry);
    if (regular && shown < SHOWN_NAMES) str_addf(&names, "%s%s", shown++ ? ", " : "", name);
    for (size_t i = 0; i < n; i++) {
      if (found[i] || strcmp(plain_name(name), plain_name(pairs[i].member)) != 0) continue;
      if (!regular) {
        err = err_set(ERR_WORK,
                      "cannot unpack %s from %s: it is a link, a directory or a device; only "
                      "regular files are unpacked",
                      name, path);
      } else {
        err = extract_entry(a, path, pairs[i].to, block, progress);
      }
      found[i] = true;
      left--;
      break;
    }
  }
  for (size_t i = 0; i < n && !err; i++) {
    if (found[i]) continue;
    err = err_set(ERR_WORK, "%s has no member %s; its first members are: %.600s", path,
                  pairs[i].member, shown ? str_text(&names) : "no file at all");
  }
  str_free(&names);
  return err;
}

Err unpack_members(const char *archive, const UnpackPair *pairs, size_t n) {
  uint64_t size;
  TRY(file_size(archive, &size));
  char *block = NULL;
  bool *found = NULL;
  struct archive *a = archive_read_new();
  if (!a) return err_set(ERR_WORK, "out of memory while opening %s", archive);
  /* Filters are enabled by name, because libarchive's "all" would also start external
   * programs. */
  archive_read_support_filter_gzip(a);
  archive_read_support_filter_bzip2(a);
  archive_read_support_filter_xz(a);
  archive_read_support_filter_zstd(a);
  archive_read_support_format_tar(a);
  archive_read_support_format_zip(a);
  const char *name = strrchr(archive, '/');
  char title[128];
  snprintf(title, sizeof title, "unpack %s", name ? name + 1 : archive);
  Progress progress;
  progress_begin(&progress, title, "bytes", size);
  Err err = mem_alloc(&block, BLOCK, 1);
  if (!err) err = mem_alloc(&found, n ? n : 1, sizeof *found);
  if (!err && archive_read_open_filename(a, archive, BLOCK) != ARCHIVE_OK) {
    err = archive_error(a, archive);
  }
  if (!err) err = extract_pairs(a, archive, pairs, n, found, block, &progress);
  if (!err) progress_end(&progress);
  archive_read_free(a);
  mem_free(found);
  mem_free(block);
  return err;
}

#endif

/* ---- SGM ---- */

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

/* Returns true if a tag such as "<name" or "</name" begins at `at`, as a whole word. */
static bool is_tag(const char *at, const char *end, const char *tag) {
  size_t n = strlen(tag);
  if ((size_t)(end - at) <= n || strncasecmp(at, tag, n) != 0) return false;
  return is_blank(at[n]) || at[n] == '>' || at[n] == '/';
}

/* Returns the position after the '>' that ends the tag at `at`; quoted attribute values may
 * contain '>'. */
static const char *after_tag(const char *at, const char *end) {
  for (char quote = 0; at < end; at++) {
    if (quote) {
      if (*at == quote) quote = 0;
    } else if (*at == '"' || *at == '\'') {
      quote = *at;
    } else if (*at == '>') {
      return at + 1;
    }
  }
  return NULL;
}

/* Returns the code point of "&#38;" or "&#x26;"; 0 if it is not a valid character. */
static uint32_t parse_numeric_entity(const char *digits, size_t len) {
  uint32_t base = 10, code = 0;
  if (len && (*digits == 'x' || *digits == 'X')) {
    base = 16;
    digits++;
    len--;
  }
  if (len == 0 || len > 8) return 0;
  for (size_t i = 0; i < len; i++) {
    char c = digits[i];
    uint32_t d = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                 : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                 : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                        : 99;
    if (d >= base) return 0;
    code = code * base + d;
    if (code > 0x10FFFF) return 0;
  }
  return code >= 0xD800 && code <= 0xDFFF ? 0 : code;
}

/* Decodes the entity at `at` (an '&') into `out`. Returns its length in bytes, or 0 if the entity
 * is unknown; the '&' is then an ordinary character. */
static size_t decode_entity(const char *at, const char *end, char out[4], size_t *out_len) {
  static const struct {
    const char *name;
    char c;
  } known[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    size_t n = strlen(known[i].name);
    if ((size_t)(end - at) >= n && memcmp(at, known[i].name, n) == 0) {
      out[0] = known[i].c;
      *out_len = 1;
      return n;
    }
  }
  if (end - at < 4 || at[1] != '#') return 0;
  size_t room = (size_t)(end - at) < 12 ? (size_t)(end - at) : 12;
  const char *semicolon = memchr(at, ';', room);
  uint32_t code = semicolon ? parse_numeric_entity(at + 2, (size_t)(semicolon - at) - 2) : 0;
  if (code == 0) return 0;
  /* Replaces control characters by spaces: a line break would split the segment into two
   * lines. */
  *out_len = utf8_encode(code < 32 || code == 127 ? ' ' : code, out);
  return (size_t)(semicolon - at) + 1;
}

/* Appends the text of one segment as one line. */
static void add_segment(const char *at, const char *end, Str *out) {
  while (at < end && is_blank(*at)) at++;
  while (end > at && is_blank(end[-1])) end--;
  while (at < end) {
    char decoded[4];
    size_t n, len;
    if (is_blank(*at)) {
      const char *from = at;
      bool broken = false;
      for (; at < end && is_blank(*at); at++) broken |= *at != ' ' && *at != '\t';
      if (broken)
        str_addc(out, ' ');
      else
        str_addn(out, from, (size_t)(at - from));
    } else if (*at == '&' && (n = decode_entity(at, end, decoded, &len)) > 0) {
      str_addn(out, decoded, len);
      at += n;
    } else {
      const char *from = at++;
      while (at < end && !is_blank(*at) && *at != '&') at++;
      str_addn(out, from, (size_t)(at - from));
    }
  }
  str_addc(out, '\n');
}

Err unpack_sgm_text(const char *bytes, size_t len, const char *where, Str *out) {
  const char *end = bytes + len, *nul = len ? memchr(bytes, '\0', len) : NULL;
  size_t segments = 0;
  if (nul) {
    return err_set(ERR_WORK, "%s: a NUL at byte %zu; SGM must be UTF-8 text, see iconv(1)",
                   where, (size_t)(nul - bytes));
  }
  for (const char *at = bytes; at < end;) {
    at = memchr(at, '<', (size_t)(end - at));
    if (!at) break;
    const char *open = at;
    if (end - at >= 4 && memcmp(at, "<!--", 4) == 0) {
      at = memmem(at + 4, (size_t)(end - at) - 4, "-->", 3);
      if (!at) {
        return err_set(
            ERR_WORK,
            "%s: the comment at byte %zu does not end; repair the file or download it again",
            where, (size_t)(open - bytes));
      }
      at += 3;
      continue;
    }
    if (is_tag(at, end, "</seg")) {
      return err_set(
          ERR_WORK,
          "%s: </seg> at byte %zu has no <seg> before it; repair the file or download it again",
          where, (size_t)(open - bytes));
    }
    if (!is_tag(at, end, "<seg")) {
      at++;
      continue;
    }
    const char *text = after_tag(at, end), *close = text;
    while (close && close < end && !is_tag(close, end, "</seg")) {
      if (is_tag(close, end, "<seg"))
        close = NULL; /* The next segment begins before this one ends. */
      else
        close = memchr(close + 1, '<', (size_t)(end - close) - 1);
    }
    at = close && close < end ? after_tag(close, end) : NULL;
    if (!at) {
      return err_set(
          ERR_WORK,
          "%s: the <seg> at byte %zu has no </seg>; repair the file or download it again",
          where, (size_t)(open - bytes));
    }
    add_segment(text, close, out);
    segments++;
  }
  if (segments == 0) {
    return err_set(ERR_WORK,
                   "%s has no <seg>: it is not an SGM file of a test set; check the recipe",
                   where);
  }
  return str_check(out);
}

Err unpack_sgm(const char *sgm, const char *to) {
  PlacePin map;
  Str out = {0};
  TRY(place_pin_file(&map, sgm));
  Err err = unpack_sgm_text((const char *)map.bytes, map.size, sgm, &out);
  if (!err) err = file_write(to, out.s, out.len);
  str_free(&out);
  place_unpin(&map);
  return err;
}
