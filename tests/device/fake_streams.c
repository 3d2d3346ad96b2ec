/* A CUDA plug-in whose GPU is the reference backend, which several threads can use at the same
 * time: each stream is a copy of it. FAKE_STREAMS=PATH: a file that receives the number of
 * streams that were opened and that of those closed when the device is closed. FAKE_FREE=BYTES:
 * free memory. Depends on the program's reference backend. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda.h"
#include "base/plugin.h"

extern const char trireme_plugin_version[];
const char trireme_plugin_version[] = PLUGIN_VERSION;

static int opened, closed;
static atomic_int bound;

static void close_stream(Backend *b) {
  (void)b;
  closed++;
}

static Err open_stream(const Backend *b, Backend *other) {
  *other = *b;
  other->close = close_stream;
  opened++;
  return ERR_OK;
}

static Err bind_thread(const Backend *b) {
  (void)b;
  bound++;
  return ERR_OK;
}

static Err memory(const Backend *b, uint64_t *left, uint64_t *all) {
  const char *bytes = getenv("FAKE_FREE");
  (void)b;
  *all = (uint64_t)1 << 40;
  *left = bytes ? strtoull(bytes, NULL, 10) : *all;
  return ERR_OK;
}

static void close_gpu(Backend *b) {
  const char *path = getenv("FAKE_STREAMS");
  FILE *f = path ? fopen(path, "w") : NULL;
  (void)b;
  if (!f) return;
  fprintf(f, "%d %d %s\n", opened, closed, bound ? "bound" : "not bound");
  fclose(f);
}

Err trireme_backend_cuda(Backend *b, const CudaSpec *s) {
  if (s->table != sizeof *b) return err_set(ERR_WORK, "fake GPU: another Backend");
  if (s->type != TYPE_F32) return err_set(ERR_USAGE, "fake GPU: only fp32");
  *b = (Backend){0};
  backend_reference(b);
  b->name = "cuda";
  b->host = false;
  b->close = close_gpu;
  b->memory = memory;
  b->open_stream = open_stream;
  b->bind_thread = bind_thread;
  snprintf(b->about, sizeof b->about, "cuda:0: fake GPU");
  return ERR_OK;
}
