/* Linked into every program of `make coverage` with -Wl,--wrap=_exit: a process that ends by _exit,
 * as agents and children of tests do, would otherwise not write its counts. */
#include <unistd.h>

void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));

void __wrap__exit(int status) {
  __gcov_dump();
  __real__exit(status);
}
