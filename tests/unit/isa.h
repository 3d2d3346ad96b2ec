/* Runs a check on every instruction set of this machine. Include after cmocka.h. Depends on backend. */
#ifndef TESTS_ISA_H
#define TESTS_ISA_H

#include <stdlib.h>

#include "backend/backend.h"

/* Calls `check` with a backend of two threads for every instruction set that this machine supports. */
static void on_every_isa(void (*check)(Backend *)) {
  static const char *const names[] = {"avx512+amx", "avx512", "avx2", "sse2", "neon"};
  int tested = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    Backend b;
    setenv("TRIREME_ISA", names[i], 1);
    if (backend_cpu(&b, 2, false)) continue; /* not an instruction set of this machine */
    check(&b);
    tested++;
  }
  unsetenv("TRIREME_ISA");
  assert_true(tested > 0);
}

#endif
