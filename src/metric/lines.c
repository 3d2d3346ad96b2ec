/* Reads hypotheses and references. Only LF ends a line, and white space at the end of a line is
 * removed, as in sacreBLEU. Depends on base/file, utf8. */
#include "metric/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "metric/unicode.h"

const char *metric_lines_name(const char *path) {
  return strcmp(path, "-") == 0 ? "standard input" : path;
}

static Err read_all(int fd, const char *name, Str *into) {
  char block[65536];
  for (;;) {
    ssize_t n = read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return err_errno("cannot read", name);
    if (n == 0) return str_check(into);
    str_addn(into, block, (size_t)n);
  }
}

/* Reads the file once, from beginning to end, so that a pipe is accepted. */
static Err read_text(const char *path, Str *into) {
  if (strcmp(path, "-") == 0) return read_all(STDIN_FILENO, "standard input", into);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return err_errno("cannot open", path);
  Err err = read_all(fd, path, into);
  close(fd);
  return err;
}

static Err check_utf8(const MetricLines *l) {
  size_t valid = utf8_valid(str_text(&l->bytes), l->bytes.len);
  if (valid == l->bytes.len) return ERR_OK;
  size_t line = 1, begin = 0;
  for (size_t i = 0; i < valid; i++) {
    if (l->bytes.s[i] != '\n') continue;
    line++;
    begin = i + 1;
  }
  return err_set(ERR_WORK,
                 "%s, line %zu, byte %zu (byte %zu of the file): 0x%02x is not UTF-8; convert "
                 "the file, for example with iconv",
                 metric_lines_name(l->path), line, valid - begin + 1, valid + 1,
                 (unsigned char)l->bytes.s[valid]);
}

/* Finds the lines of the bytes that were read. */
static Err split_lines(MetricLines *l) {
  TRY(check_utf8(l));
  const char *end = str_text(&l->bytes) + l->bytes.len;
  for (const char *at = end - l->bytes.len; at < end;) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    TRY(mem_grow(&l->line, &l->line_cap, l->lines + 1, sizeof *l->line));
    l->line[l->lines++] = metric_rstrip((MetricText){at, (size_t)(stop - at)});
    at = stop + 1;
  }
  return ERR_OK;
}

Err metric_lines_read(MetricLines *l, const char *path) {
  *l = (MetricLines){.path = path};
  TRY(read_text(path, &l->bytes));
  return split_lines(l);
}

Err metric_lines_read_regular(MetricLines *l, const char *path, size_t limit) {
  *l = (MetricLines){.path = path};
  TRY(file_read(path, limit, &l->bytes));
  return split_lines(l);
}

void metric_lines_free(MetricLines *l) {
  str_free(&l->bytes);
  mem_free(l->line);
  *l = (MetricLines){0};
}
