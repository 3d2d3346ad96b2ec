/* Reads the files of the running program and its plug-ins, which are copied to the hosts.
 * Depends on base. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/file.h"
#include "base/sha256.h"
#include "launch/cluster.h"

#define FILE_LIMIT ((size_t)2 << 30)

/* The plug-ins that ranks use, and their directories relative to the program after `make` and
 * `make install`. Those of other commands (board, watch) are left out: their libraries would be
 * needed on every host. */
static const char *const plugins[] = {"libtrireme-mpi.so", "libtrireme-cuda.so"};
static const char *const places[] = {".", "../lib/trireme"};

static Err add_file(ClusterProgram *p, const char *from, const char *to) {
  ClusterFile *f = &p->file[p->files++];
  Sha256 sha;
  snprintf(f->path, sizeof f->path, "%s", to);
  TRY(file_read(from, FILE_LIMIT, &f->bytes));
  sha256_begin(&sha);
  sha256_add(&sha, str_text(&f->bytes), f->bytes.len);
  sha256_end(&sha, f->sum);
  return ERR_OK;
}

static Err add_plugin(ClusterProgram *p, const char *program_dir, const char *name) {
  char place[FILE_PATH_MAX], path[FILE_PATH_MAX], to[128];
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    TRY(file_join(place, program_dir, places[i]));
    TRY(file_join(path, place, name));
    if (!file_exists(path)) continue;
    snprintf(to, sizeof to, "lib/trireme/%s", name);
    return add_file(p, path, to);
  }
  return ERR_OK;
}

/* Returns the architecture this program was compiled for, as printed by `uname -m`. */
static const char *compiled_for(void) {
#if defined __x86_64__
  return "x86_64";
#elif defined __aarch64__
  return "aarch64";
#else
  static struct utsname u;
  return uname(&u) ? "unknown" : u.machine;
#endif
}

Err cluster_read_program(ClusterProgram *p) {
  char dir[FILE_PATH_MAX];
  p->arch = compiled_for();
  TRY(file_program_dir(dir));
  TRY(add_file(p, "/proc/self/exe", "bin/trireme"));
  for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++)
    TRY(add_plugin(p, dir, plugins[i]));
  return ERR_OK;
}

void cluster_free(ClusterSpec *spec) {
  for (size_t i = 0; i < spec->program.files; i++) str_free(&spec->program.file[i].bytes);
  /* explicit_bzero is not optimized away: the secret must not remain in freed memory. */
  if (spec->credentials.s) explicit_bzero(spec->credentials.s, spec->credentials.cap);
  str_free(&spec->credentials);
}
