/* metrics.jsonl, system.jsonl, config and samples.jsonl of a run as hostile bytes, as the board reads
 * them. The first byte selects the file and where it is cut: curves that were read in two parts must
 * be those that are read at once, their steps increase, and what becomes an answer is JSON. Depends on
 * monitor/board_*. */
#include <fcntl.h>
#include <jansson.h>

#include "base/file.h"
#include "fuzz_file.h"
#include "monitor/board_files.h"
#include "monitor/board_series.h"
#include "monitor/board_system.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *run_dir(void) {
  static char dir[] = "/tmp/trireme-fuzz-board-XXXXXX";
  static bool is_made;
  if (!is_made) REQUIRE(mkdtemp(dir));
  is_made = true;
  return dir;
}

static void write_part(const char *name, const uint8_t *data, size_t size, int flags) {
  char path[FILE_PATH_MAX];
  REQUIRE(!file_join(path, run_dir(), name));
  int fd = open(path, O_WRONLY | O_CREAT | flags, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(write(fd, data, size) == (ssize_t)size);
  close(fd);
}

static void check_steps(const SeriesData *d) {
  for (int k = 0; d && k < LINE_KINDS; k++) {
    const Buckets *b = &d->kind[k].buckets;
    REQUIRE(b->count <= BUCKETS_MOST);
    for (size_t i = 0; i < b->count; i++) {
      REQUIRE(b->bucket[i].first.step <= b->bucket[i].last.step);
      REQUIRE(i == 0 || b->bucket[i].first.step > b->bucket[i - 1].last.step);
    }
  }
}

static void check_same(const SeriesData *a, const SeriesData *b) {
  for (int k = 0; k < LINE_KINDS; k++) {
    const Buckets *x = &a->kind[k].buckets, *y = &b->kind[k].buckets;
    REQUIRE(x->count == y->count);
    for (size_t i = 0; i < x->count; i++)
      REQUIRE(x->bucket[i].last.offset == y->bucket[i].last.offset);
  }
}

static void check_series(const uint8_t *data, size_t size, size_t cut) {
  Series parts = {0}, whole = {0};
  Buckets zoomed = {0};
  bool is_read;
  REQUIRE(!file_join(parts.path, run_dir(), "metrics.jsonl"));
  REQUIRE(!file_join(whole.path, run_dir(), "metrics.jsonl"));
  write_part("metrics.jsonl", data, cut, O_TRUNC);
  REQUIRE(series_refresh(&parts) && !series_read(&parts, SIZE_MAX));
  write_part("metrics.jsonl", data + cut, size - cut, O_APPEND);
  REQUIRE(series_refresh(&parts) && !series_read(&parts, SIZE_MAX));
  REQUIRE(series_refresh(&whole) && !series_sample(&whole));
  check_steps(whole.sample);
  series_free(&whole);
  REQUIRE(!series_read(&whole, SIZE_MAX));
  check_steps(parts.exact);
  check_same(parts.exact, whole.exact);
  for (int k = 0; k < LINE_KINDS; k++) {
    REQUIRE(!series_zoom(&whole, (LineKind)k, 1, 1e9, SIZE_MAX, &zoomed, &is_read));
    buckets_free(&zoomed);
  }
  series_free(&parts);
  series_free(&whole);
}

static void check_json(Str *text) {
  json_error_t error;
  json_t *value = json_loadb(str_text(text), text->len, 0, &error);
  REQUIRE(json_is_array(value));
  json_decref(value);
  str_free(text);
}

static void check_system(const uint8_t *data, size_t size, size_t cut) {
  BoardSystem s = {0};
  write_part("system.jsonl", data, cut, O_TRUNC);
  REQUIRE(!board_system_refresh(&s, run_dir()));
  write_part("system.jsonl", data + cut, size - cut, O_APPEND);
  REQUIRE(!board_system_refresh(&s, run_dir()));
  REQUIRE(s.hosts <= SYSTEM_HOSTS && s.offset <= size);
  board_system_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Str config = {0}, samples = {0};
  if (size < 2) return 0;
  size_t rest = size - 1, cut = rest * (data[0] >> 2) / 64;
  switch (data[0] & 3) {
    case 0:
      check_system(data + 1, rest, cut);
      break;
    case 1:
      write_part("config", data + 1, rest, O_TRUNC);
      board_files_config(run_dir(), &config);
      check_json(&config);
      write_part("processes.jsonl", data + 1, rest, O_TRUNC);
      board_files_process(run_dir(), &config);
      REQUIRE(config.len >= 2);
      str_free(&config);
      break;
    case 2:
      write_part("samples.jsonl", data + 1, rest, O_TRUNC);
      board_files_samples(run_dir(), &samples);
      check_json(&samples);
      break;
    default:
      check_series(data + 1, rest, cut);
  }
  return 0;
}
