/* Reads the versions of the MPI plug-in, its library and mpirun. Depends on base/plugin,
 * command. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/plugin.h"
#include "launch/command.h"
#include "launch/probe.h"

#define VERSION_MAX 8192 /* at least MPI_MAX_LIBRARY_VERSION_STRING of any MPI library */
/* Time limit in seconds for `mpirun --version`, which a slow network drive may delay. */
#define VERSION_SECONDS 20

/* MPI_Get_library_version may be called before MPI_Init. */
static void read_library(const Plugin *p, MachineFacts *m) {
  char version[VERSION_MAX] = "";
  int len = 0;
  int (*get_version)(char *, int *);
  void *found = dlsym(p->handle, "MPI_Get_library_version");
  memcpy(&get_version, &found, sizeof found);
  if (!found || get_version(version, &len) != 0) return;
  version[strcspn(version, ",\n")] = '\0';
  snprintf(m->mpi, sizeof m->mpi, "%.95s", version);
}

void probe_mpi(MachineFacts *m) {
  Plugin p = {0};
  CommandResult r;
  if (plugin_open(&p, "libtrireme-mpi.so")) {
    snprintf(m->mpi_problem, sizeof m->mpi_problem, "%s", err_message());
  } else {
    read_library(&p, m);
    probe_hash_file(p.path, m->mpi_sha256);
    plugin_close(&p);
  }
  const char *const argv[] = {"mpirun", "--version", NULL};
  if (!command_run(argv, VERSION_SECONDS, &r) && r.status == 0) {
    size_t n = strcspn(str_text(&r.out), "\n");
    snprintf(m->mpirun, sizeof m->mpirun, "%.*s", n < 95 ? (int)n : 95, str_text(&r.out));
  }
  command_free(&r);
}
