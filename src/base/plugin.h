/* Plug-ins: shared objects for libraries that many machines lack (CUDA, MPI). The program is not
 * linked with these libraries; it loads the plug-in with dlopen. Depends on err, file.
 *
 *   Plugin p;
 *   TRY(plugin_open(&p, "libtrireme-cuda.so"));
 *   TRY(plugin_symbol(&p, "trireme_backend_cuda", &function));
 *   plugin_close(&p);
 *
 * Search path: the directories of TRIREME_PLUGIN_PATH (separated by colons), the directory of the
 * program, and ../lib/trireme relative to it. A plug-in calls functions of the program's module
 * base, so both must come from the same build; it states its build by defining, once,
 *
 *   const char trireme_plugin_version[] = PLUGIN_VERSION; */
#ifndef BASE_PLUGIN_H
#define BASE_PLUGIN_H

#include "base/file.h"

/* Version of the interface. Increase the number whenever a struct that program and plug-ins share
 * changes. */
#define PLUGIN_VERSION TRIREME_VERSION "/12"

typedef struct {
  void *handle;
  char path[FILE_PATH_MAX]; /* path of the plug-in that was loaded */
} Plugin;

/* Fails if the plug-in is not found, cannot be loaded, or has another version. */
NODISCARD Err plugin_open(Plugin *p, const char *name);
/* Returns true if the search path contains a file of that name. The file may still fail to
 * load. */
bool plugin_exists(const char *name);
/* Stores the address of a function or variable in *address, a pointer to a pointer. */
NODISCARD Err plugin_symbol(const Plugin *p, const char *symbol, void *address);
void plugin_close(Plugin *p); /* Unloads the plug-in, if it is open. */

#endif
