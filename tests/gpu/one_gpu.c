/* A plug-in for tests that opens the CUDA plug-in of ONE_GPU_PLUGIN and reports a GPU of its own for
 * each process, although all use the same one. NCCL is then selected, which in these tests is the
 * stand-in (nccl_stand_in.c). Depends on base/plugin, base/rng. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "base/plugin.h"
#include "base/rng.h"

extern const char trireme_plugin_version[];
const char trireme_plugin_version[] = PLUGIN_VERSION;

Err trireme_backend_cuda(Backend *b, const CudaSpec *spec) {
  const char *path = getenv("ONE_GPU_PLUGIN");
  void *plugin = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  Plugin real = {.handle = plugin};
  CudaOpen *open;
  if (!plugin)
    return err_set(ERR_WORK, "ONE_GPU_PLUGIN: %s", path ? dlerror() : "name the CUDA plug-in");
  TRY(plugin_symbol(&real, "trireme_backend_cuda", &open));
  TRY(open(b, spec));
  pid_t pid = getpid();
  b->device_id = rng_hash(&pid, sizeof pid, b->device_id) | 1;
  return ERR_OK;
}
