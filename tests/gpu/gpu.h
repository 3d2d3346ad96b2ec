/* What the tests share that go through the plug-in: a GPU, or why there is none. To be
 * included behind cmocka.h. Relies on backend, file. */
#ifndef TESTS_GPU_GPU_H
#define TESTS_GPU_GPU_H

#include <stdio.h>

#include "backend/backend.h"
#include "base/file.h"

static inline void ok(Err err) {
  if (err) fail_msg("%s", err_message());
}

static inline void open_gpu(Backend *b, const char *precision) {
  ok(backend_open(b, &(BackendSpec){"cuda", precision, 1}));
}

/* Opens it at the begin of main, and says which it is. Not 0: what main is to return, 77
 * where this machine has none. */
static inline int find_gpu(Backend *b, const char *precision) {
  if (!file_exists("/proc/driver/nvidia/version") && !file_exists("/dev/nvidiactl")) {
    printf("cannot run: this machine has no NVIDIA GPU\n");
    return 77;
  }
  if (backend_open(b, &(BackendSpec){"cuda", precision, 1})) {
    printf("there is a GPU, but: %s\n", err_message());
    return 1;
  }
  printf("%s\n", b->about);
  return 0;
}

#endif
