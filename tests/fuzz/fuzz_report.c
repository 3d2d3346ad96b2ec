/* The files of a run other than its measurements as hostile bytes: config, processes.jsonl, model.json,
 * training.json and dataset.json. A report is made and written in every form; the page must have no
 * element that a file brought in. The first byte selects the file. Depends on monitor/report. */
#include "monitor/report.h"

#include <fcntl.h>
#include <math.h>

#include "base/file.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/dev/shm/trireme-fuzz-report-XXXXXX";
static const char *const names[] = {"config",
                                    "processes.jsonl",
                                    "checkpoints/latest/model.json",
                                    "checkpoints/latest/training.json",
                                    "data/dataset.json",
                                    "metrics.jsonl"};
#define NAMES (sizeof names / sizeof *names)

static void write_bytes(const char *name, const void *bytes, size_t size) {
  char path[FILE_PATH_MAX];
  REQUIRE(!file_join(path, dir, name));
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(write(fd, bytes, size) == (ssize_t)size);
  close(fd);
}

static void make_dirs(void) {
  char path[FILE_PATH_MAX];
  REQUIRE(mkdtemp(dir));
  REQUIRE(!file_join(path, dir, "checkpoints/latest") && !file_mkdirs(path));
  REQUIRE(!file_join(path, dir, "data") && !file_mkdirs(path));
}

static void write_defaults(void) {
  static const char metrics[] =
      "{\"nll\":3,\"steps_per_s\":10,\"forward_ms\":40,\"step\":10,\"seconds\":1}\n"
      "{\"event\":\"ranks\",\"rank_ms\":[9,8],\"hosts\":[\"a\",\"b\"],\"step\":10,\"seconds\":"
      "1}\n";
  char config[FILE_PATH_MAX + 16];
  for (size_t i = 1; i < NAMES; i++) write_bytes(names[i], "", 0);
  write_bytes("metrics.jsonl", metrics, sizeof metrics - 1);
  int len = snprintf(config, sizeof config, "data = %s/data\n", dir);
  write_bytes("config", config, (size_t)len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static bool is_made;
  const char *dirs[] = {dir};
  Report report;
  Str page = {0}, markdown = {0}, json = {0};
  if (size == 0) return 0;
  if (!is_made) make_dirs();
  is_made = true;
  write_defaults();
  write_bytes(names[data[0] % NAMES], data + 1, size - 1);
  if (report_make(&report, dirs, 1, 1.5)) return 0;
  REQUIRE(!report_html(&report, &page));
  REQUIRE(!strstr(page.s, "<script") && !strstr(page.s, "<img"));
  REQUIRE(!report_markdown(&report, &markdown));
  (void)!report_json(&report, &json);
  str_free(&page);
  str_free(&markdown);
  str_free(&json);
  report_free(&report);
  return 0;
}
