/* Reads config, process, checkpoints and samples of a run for the board. Depends on base, Jansson,
 * board_json. */
#include "monitor/board_files.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "monitor/board_json.h"
#include "monitor/board_line.h"

#define CONFIG_BYTES  ((size_t)256 << 10)
#define CONFIG_LINES  1000
#define PROCESS_BYTES ((size_t)64 << 10) /* of the end of processes.jsonl */
#define CHECKPOINTS   1000
#define SAMPLE_BYTES  ((size_t)1 << 20) /* of the end of samples.jsonl */
#define SAMPLES       50

/* Reads the end of a regular file, at most `bytes`. Sets *is_cut if the file is longer. */
static void read_end(const char *run, const char *name, size_t bytes, Str *into, bool *is_cut) {
  char path[FILE_PATH_MAX], *text;
  struct stat st;
  *is_cut = false;
  if (file_join(path, run, name)) return;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && mem_alloc(&text, bytes, 1) == ERR_OK) {
    *is_cut = (uint64_t)st.st_size > bytes;
    ssize_t got = pread(fd, text, bytes, *is_cut ? st.st_size - (off_t)bytes : 0);
    if (got > 0) str_addn(into, text, (size_t)got);
    mem_free(text);
  }
  close(fd);
}

/* Appends `["name", "value"]` for a line "name = value". Returns false for another line. */
static bool add_option(const char *line, size_t len, bool is_first, Str *out) {
  const char *end = line + len, *equals = memchr(line, '=', len);
  while (line < end && isspace((unsigned char)*line)) line++;
  if (!equals || line == end || *line == '#') return false;
  const char *name_end = equals, *value = equals + 1;
  while (name_end > line && isspace((unsigned char)name_end[-1])) name_end--;
  while (value < end && isspace((unsigned char)*value)) value++;
  while (end > value && isspace((unsigned char)end[-1])) end--;
  if (end - value >= 2 && *value == '"' && end[-1] == '"') {
    value++;
    end--;
  }
  str_add(out, is_first ? "[" : ",[");
  board_json_text(out, line, (size_t)(name_end - line));
  str_addc(out, ',');
  board_json_text(out, value, (size_t)(end - value));
  str_addc(out, ']');
  return true;
}

void board_files_config(const char *run, Str *out) {
  Str config = {0};
  bool is_cut;
  size_t count = 0;
  read_end(run, "config", CONFIG_BYTES, &config, &is_cut);
  const char *at = str_text(&config), *end = at + config.len;
  str_addc(out, '[');
  while (at < end && count < CONFIG_LINES) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t len = (size_t)((stop ? stop : end) - at);
    if (add_option(at, len, count == 0, out)) count++;
    at += len + 1;
  }
  str_addc(out, ']');
  str_free(&config);
}

void board_files_process(const char *run, Str *out) {
  Str text = {0};
  bool is_cut, is_written = false;
  read_end(run, "processes.jsonl", PROCESS_BYTES, &text, &is_cut);
  size_t end = text.len;
  while (end > 0 && text.s[end - 1] != '\n') end--; /* an incomplete line does not count */
  size_t begin = end ? end - 1 : 0;
  while (begin > 0 && text.s[begin - 1] != '\n') begin--;
  if (end) is_written = board_json_line(out, text.s + begin, end - 1 - begin);
  if (!is_written) str_add(out, "null");
  str_free(&text);
}

/* Reads the number of "step-N"; returns false for another name. */
static bool read_step(const char *name, uint64_t *step) {
  char *end;
  if (!str_starts(name, "step-") || !isdigit((unsigned char)name[5])) return false;
  *step = strtoull(name + 5, &end, 10);
  return *end == '\0';
}

void board_files_checkpoints(const char *run, Str *out) {
  char path[FILE_PATH_MAX], best[256] = "";
  struct dirent *e;
  size_t count = 0;
  str_addc(out, '[');
  DIR *dir = file_join(path, run, "checkpoints") ? NULL : opendir(path);
  if (dir && readlinkat(dirfd(dir), "best", best, sizeof best - 1) < 0) best[0] = '\0';
  while (dir && (e = readdir(dir)) && count < CHECKPOINTS) {
    struct stat st;
    uint64_t step;
    if (!read_step(e->d_name, &step) || fstatat(dirfd(dir), e->d_name, &st, 0) != 0) continue;
    str_addf(out, "%s{\"step\":%" PRIu64 ",\"time\":%lld,\"is_best\":%s}", count ? "," : "",
             step, (long long)st.st_mtim.tv_sec,
             strcmp(best, e->d_name) == 0 ? "true" : "false");
    count++;
  }
  if (dir) closedir(dir);
  str_addc(out, ']');
}

typedef struct {
  const char *text;
  size_t len;
  double step;
} SampleLine;

/* Keeps the last SAMPLES lines that were not undone. */
static size_t take_sample(SampleLine *kept, size_t count, const char *text, size_t len) {
  Line line;
  if (!line_read(&line, text, len)) return count;
  double last = line.undoes_later ? line.undone_after : line.step - 0.5;
  while (count && kept[count - 1].step > last) count--;
  if (line.undoes_later) return count;
  if (count == SAMPLES) {
    memmove(kept, kept + 1, (SAMPLES - 1) * sizeof *kept);
    count--;
  }
  kept[count] = (SampleLine){text, len, line.step};
  return count + 1;
}

void board_files_samples(const char *run, Str *out) {
  Str text = {0};
  SampleLine kept[SAMPLES];
  bool is_cut;
  size_t count = 0;
  read_end(run, "samples.jsonl", SAMPLE_BYTES, &text, &is_cut);
  const char *at = str_text(&text), *end = at + text.len, *stop;
  while (at < end && (stop = memchr(at, '\n', (size_t)(end - at)))) {
    /* In a file that is cut, the first line is not whole; it is not JSON and is left out. */
    count = take_sample(kept, count, at, (size_t)(stop - at));
    at = stop + 1;
  }
  str_addc(out, '[');
  bool is_first = true;
  for (size_t i = 0; i < count; i++) {
    size_t before = out->len;
    if (!is_first) str_addc(out, ',');
    if (board_json_line(out, kept[i].text, kept[i].len))
      is_first = false;
    else if (!is_first && out->len > before)
      out->len = before; /* removes the comma */
  }
  str_addc(out, ']');
  str_free(&text);
}
