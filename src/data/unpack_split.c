/* Splits a tab-separated text into four files: source and target of the training pairs, and of the
 * held-out pairs. A hash of the source sentence decides which pairs are held out. Depends on input, base. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sha256.h"
#include "data/input.h"
#include "data/unpack.h"

/* One of the four output files: written under a temporary name and renamed when all four are
 * complete. */
typedef struct {
  const char *to;             /* path of the file; NULL: the file is not wanted */
  char beside[FILE_PATH_MAX]; /* temporary name */
  FileWriter w;
} Part;

/* Returns the first 64 bits of the SHA-256, so that other tools can reproduce the split. */
static uint64_t number_of(const char *sentence, size_t len) {
  Sha256 sha;
  char hex[65];
  sha256_begin(&sha);
  sha256_add(&sha, sentence, len);
  sha256_end(&sha, hex);
  hex[16] = '\0';
  return strtoull(hex, NULL, 16);
}

static Err create_part(Part *part, const char *to) {
  part->to = to;
  if (!to) return ERR_OK;
  int len = snprintf(part->beside, sizeof part->beside, "%s.part", to);
  if (len < 0 || len >= FILE_PATH_MAX) {
    part->to = NULL;
    return err_set(ERR_WORK, "the path %s is too long; choose a directory with a shorter path",
                   to);
  }
  return file_create(&part->w, part->beside);
}

static Err put_line(Part *part, const char *text, size_t len) {
  if (!part->to) return ERR_OK;
  TRY(file_put(&part->w, text, len));
  return file_put(&part->w, "\n", 1);
}

/* Writes each line to its two files. pairs: (2) receives the numbers of training and held-out
 * pairs. */
static Err distribute_lines(Input *in, uint64_t n, Part part[4], uint64_t pairs[2]) {
  const char *line;
  size_t len;
  for (;;) {
    TRY(input_line(in, &line, &len));
    if (!line) return ERR_OK;
    const char *tab = memchr(line, '\t', len);
    bool zero = memchr(line, '\0', len) != NULL;
    if (!tab || zero) {
      return err_set(ERR_WORK, "%s:%llu: %s; every line must be source, tab, target in UTF-8",
                     input_path(in), (unsigned long long)input_number(in),
                     zero ? "a zero byte" : "no tab");
    }
    size_t source = (size_t)(tab - line), target = len - source - 1;
    /* Further columns, such as the author of the sentence, are ignored. */
    const char *more = memchr(tab + 1, '\t', target);
    if (more) target = (size_t)(more - tab) - 1;
    int held = number_of(line, source) % n == 0;
    pairs[held]++;
    TRY(put_line(&part[2 * held], line, source));
    TRY(put_line(&part[2 * held + 1], tab + 1, target));
  }
}

static Err split_input(Input *in, uint64_t n, const char *const to[4], Part part[4]) {
  uint64_t pairs[2] = {0};
  for (int i = 0; i < 4; i++) TRY(create_part(&part[i], to[i]));
  TRY(distribute_lines(in, n, part, pairs));
  if (pairs[0] == 0 || pairs[1] == 0) {
    return err_set(ERR_WORK,
                   "%s: of its %llu pairs, the held-out ones (hash of the source 0 modulo "
                   "%llu) are %s; choose another number, or use more text",
                   input_path(in), (unsigned long long)(pairs[0] + pairs[1]),
                   (unsigned long long)n, pairs[1] ? "all" : "none");
  }
  for (int i = 0; i < 4; i++) {
    if (to[i]) TRY(file_finish(&part[i].w, NULL));
  }
  for (int i = 0; i < 4; i++) {
    if (to[i]) TRY(file_rename(part[i].beside, to[i]));
  }
  return ERR_OK;
}

Err unpack_split(const char *tsv, uint64_t n, const char *const to[4]) {
  Input *in;
  Part part[4] = {0};
  TRY(input_open(&in, tsv));
  for (int i = 0; i < 4; i++) part[i].w.fd = -1;
  Err err = split_input(in, n, to, part);
  for (int i = 0; i < 4; i++) {
    if (!part[i].to) continue;
    file_abandon(&part[i].w);
    if (err) unlink(part[i].beside);
  }
  input_close(in);
  return err;
}
