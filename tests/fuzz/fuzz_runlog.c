/* metrics.jsonl and system.jsonl as hostile bytes, read at once and in two parts, which must give the
 * same. The first byte selects the file and where it is cut. Depends on monitor/runlog. */
#include "monitor/runlog.h"

#include <fcntl.h>

#include "base/file.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *run_dir(void) {
  static char dir[] = "/dev/shm/trireme-fuzz-runlog-XXXXXX";
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

/* Steps of a column increase; every field of an event can be read. */
static void check_log(const RunLog *log) {
  for (size_t i = 0; i < log->column_count; i++) {
    const RunColumn *c = &log->columns[i];
    for (size_t k = 1; k < c->points; k++)
      REQUIRE(runlog_point(log, c, k).step > runlog_point(log, c, k - 1).step);
  }
  for (size_t i = 0; i < log->event_count; i++) {
    double numbers[4];
    char text[16] = "";
    (void)runlog_event_numbers(&log->events[i], "rank_ms", numbers, 4);
    (void)runlog_event_item(&log->events[i], "hosts", 1, text, sizeof text);
    (void)runlog_event_text(&log->events[i], "event", text, sizeof text);
    REQUIRE(strnlen(text, sizeof text) < sizeof text);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  RunLog whole, parts;
  if (size < 2) return 0;
  const char *name = data[0] & 1 ? "system.jsonl" : "metrics.jsonl";
  size_t cut = (size - 1) * (data[0] >> 1) / 128;
  write_part("metrics.jsonl", data, 0, O_TRUNC);
  write_part("system.jsonl", data, 0, O_TRUNC);
  REQUIRE(!runlog_open(&parts, run_dir()));
  write_part(name, data + 1, cut, O_TRUNC);
  (void)!runlog_read(&parts);
  write_part(name, data + 1 + cut, size - 1 - cut, O_APPEND);
  Err second = runlog_read(&parts);
  REQUIRE(!runlog_open(&whole, run_dir()));
  Err once = runlog_read(&whole);
  REQUIRE(once == second);
  REQUIRE(whole.records == parts.records);
  REQUIRE(whole.event_count == parts.event_count);
  REQUIRE(whole.host_count == parts.host_count);
  REQUIRE(whole.damaged_lines == parts.damaged_lines || once);
  check_log(&whole);
  check_log(&parts);
  runlog_close(&whole);
  runlog_close(&parts);
  return 0;
}
