/* Preloaded under the leak checker: prevents libraries that MPI loads from being unloaded, so
 * that leaks in them have symbols and can be suppressed. Depends on nothing. */
int dlclose(void *handle);
int dlclose(void *handle) {
  (void)handle;
  return 0;
}
