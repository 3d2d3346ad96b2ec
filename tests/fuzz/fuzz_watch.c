/* The files that `watch` reads as hostile bytes: the frame is drawn, in any size, and every character
 * of it is printable. The first byte selects the file, the second the size. Depends on
 * monitor/watch. */
#include "monitor/watch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const files[] = {"metrics.jsonl", "system.jsonl", "processes.jsonl"};
#define FILES 3

static const char *run_dir(void) {
  static char dir[] = "/tmp/trireme-fuzz-watch-XXXXXX";
  static bool is_made;
  if (!is_made) REQUIRE(mkdtemp(dir));
  is_made = true;
  return dir;
}

static void write_file(const char *name, const void *data, size_t size) {
  char path[FILE_PATH_MAX];
  REQUIRE(!file_join(path, run_dir(), name));
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(write(fd, data, size) == (ssize_t)size);
  close(fd);
}

static void draw(const Watch *w, WatchView *view, int rows, int cols, bool has_utf8) {
  Canvas c;
  REQUIRE(!canvas_open(&c, rows, cols, has_utf8));
  watch_draw(w, view, &c, true);
  for (int i = 0; i < rows * cols; i++) {
    bool is_ascii = c.code[i] >= ' ' && c.code[i] < 0x7f;
    REQUIRE(is_ascii || (has_utf8 && c.code[i] >= 0xa0));
  }
  canvas_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char usual[] =
      "{\"step\":1,\"seconds\":1,\"nll\":5}\n{\"step\":9,\"seconds\":2,\"nll\":4}\n";
  Watch w;
  char line[1024];
  if (size < 2) return 0;
  for (int i = 0; i < FILES; i++) write_file(files[i], usual, i == 0 ? sizeof usual - 1 : 0);
  write_file(files[data[0] % FILES], data + 2, size - 2);
  watch_init(&w, run_dir());
  if (watch_read(&w) == ERR_OK) {
    WatchView view = {.is_log = data[0] & 64, .zoom = data[0] >> 3 & 3};
    for (int i = 0; i < 3; i++) {
      draw(&w, &view, 1 + data[1] % 40, 1 + data[1] / 2, data[0] & 128);
      watch_select(&w, &view, i % 2 ? -1 : 1);
      view.scroll++;
    }
    watch_line(&w, line, sizeof line);
  }
  watch_close(&w);
  return 0;
}
