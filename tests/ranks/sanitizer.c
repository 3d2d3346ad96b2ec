/* Linked into the program and the tests of ranks under the leak checker. Open MPI and its libraries keep
 * memory until the process ends. The names of the libraries suppress these reports, so the libraries must
 * not be unloaded. Built in, because not every process that a test starts has the test's environment.
 * Depends on nothing. */
int dlclose(void *handle);
const char *__lsan_default_suppressions(void);
const char *__lsan_default_options(void);
const char *__asan_default_options(void);

int dlclose(void *handle) {
  (void)handle;
  return 0;
}

const char *__lsan_default_suppressions(void) {
  return "leak:libopen-pal\n"
         "leak:libopen-rte\n"
         "leak:libmpi\n"
         "leak:libpmix\n"
         "leak:mca_\n"
         "leak:libhwloc\n"
         "leak:libevent\n"
         "leak:libucs\n"
         "leak:libfabric\n"
         "leak:libnl\n"
         "leak:vasprintf\n";
}

const char *__lsan_default_options(void) {
  return "print_suppressions=0";
}

/* A test host with a clock of its own preloads a library before the sanitizer's. Cancelling a thread leaves
 * marks on its stack, which are reported when the sanitizer frees its signal stack. */
const char *__asan_default_options(void) {
  return "verify_asan_link_order=0:use_sigaltstack=0";
}
