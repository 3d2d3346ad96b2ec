/* Preloaded under the leak checker: keeps libraries that MPI loads from being unloaded, so
 * that their leaks have symbols and can be suppressed. Depends on nothing. */
int dlclose(void *handle);
int dlclose(void *handle) {
  (void)handle;
  return 0;
}
