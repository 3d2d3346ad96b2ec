/* Plug-ins: shared objects that bring in what most machines lack (CUDA, MPI) and
 * that the program itself is not linked with. Relies on err, file.
 *
 *   Plugin p;
 *   TRY(plugin_open(&p, "libtrireme-cuda.so"));
 *   TRY(plugin_symbol(&p, "trireme_backend_cuda", &function));
 *   plugin_close(&p);
 *
 * It is looked for in the directories of TRIREME_PLUGIN_PATH (with colons between),
 * beside the program, and in ../lib/trireme as seen from the program. A plug-in
 * calls the program's own base room, so both must come from one build: it says
 * which by defining, once,
 *
 *   const char trireme_plugin_version[] = PLUGIN_VERSION; */
#ifndef BASE_PLUGIN_H
#define BASE_PLUGIN_H

#include "base/file.h"

/* The number grows whenever a struct that crosses the door changes. */
#define PLUGIN_VERSION TRIREME_VERSION "/8"

typedef struct {
  void *handle;
  char path[FILE_PATH_MAX]; /* where it was found */
} Plugin;

/* Fails when it is nowhere, cannot be loaded, or is of another version. */
NODISCARD Err plugin_open(Plugin *p, const char *name);
/* Is there a file of that name where plugin_open looks, whatever it is? */
bool plugin_exists(const char *name);
/* The address of a function or variable into *address, a pointer to a pointer. */
NODISCARD Err plugin_symbol(const Plugin *p, const char *symbol, void *address);
void plugin_close(Plugin *p); /* harmless when not open */

#endif
