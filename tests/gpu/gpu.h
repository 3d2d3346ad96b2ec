/* Opens the GPU for tests that use the plug-in. Include after cmocka.h. Depends on backend.h,
 * base/file. */
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

/* Opens the GPU and prints its name. Returns 0, or the exit status for main: 77 if this machine
 * has no GPU. */
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

/* The same for programs whose tests open the GPU themselves. */
static inline int check_gpu(void) {
  Backend b;
  int why = find_gpu(&b, "fp32");
  if (!why) backend_close(&b);
  return why;
}

#endif
