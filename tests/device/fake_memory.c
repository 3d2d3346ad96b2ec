/* A GPU that is none and knows what memory it has left: less by every block, and by WORKING
 * once it is made ready for work. It has the low types as well; in these its operations do
 * nothing, for only their memory counts. Built with fake_cuda.c, both with
 * -Dtrireme_backend_cuda=fake_open; relies on FAKE_RECORD=0. */
#include <string.h>

#include "backend/cuda/cuda.h"

#undef trireme_backend_cuda
Err trireme_backend_cuda(Backend *b, const CudaSpec *s);

#define ALL     ((uint64_t)1 << 28)
#define WORKING 10000000u
#define BLOCKS  64

static Backend fake;
static struct {
  void *at;
  size_t bytes;
} block[BLOCKS];
static uint64_t working;

static Err reserve(const Backend *b, size_t longest, size_t d) {
  working = WORKING;
  return fake.reserve(b, longest, d);
}

static Err alloc(const Backend *b, void *pointer, size_t bytes) {
  void *at;
  int i = 0;
  while (i < BLOCKS && block[i].at) i++;
  if (i == BLOCKS) return err_set(ERR_WORK, "more than %d blocks", BLOCKS);
  TRY(fake.alloc(b, &at, bytes));
  block[i].at = at, block[i].bytes = bytes;
  memcpy(pointer, &at, sizeof at);
  return ERR_OK;
}

static void release(const Backend *b, void *at) {
  for (int i = 0; i < BLOCKS; i++)
    if (block[i].at == at) block[i].at = NULL, block[i].bytes = 0;
  fake.release(b, at);
}

static Err memory(const Backend *b, uint64_t *left, uint64_t *all) {
  (void)b;
  *left = *all = ALL;
  *left -= working;
  for (int i = 0; i < BLOCKS; i++) *left -= block[i].bytes;
  return ERR_OK;
}

static void nothing(void) {
}

Err trireme_backend_cuda(Backend *b, const CudaSpec *s) {
  CudaSpec plain = *s;
  void (*no)(void) = nothing;
  plain.type = TYPE_F32;
  TRY(fake_open(b, &plain));
  fake = *b;
  b->type = s->type;
  b->reserve = reserve, b->alloc = alloc, b->release = release, b->memory = memory;
  if (s->type == TYPE_F32) return ERR_OK;
  memcpy(&b->lower, &no, sizeof no);
  for (char *at = (char *)&b->linear; at < (char *)&b->packed; at += sizeof no)
    memcpy(at, &no, sizeof no);
  return ERR_OK;
}
