/* A fake GPU that counts its free memory: every allocation reduces it, and `reserve` reduces
 * it by WORKING. It also offers bf16 and fp16, in which operations do nothing: only memory
 * matters. Built with fake_cuda.c, both with -Dtrireme_backend_cuda=fake_open; needs
 * FAKE_GRAPH=0. */
#include <string.h>

#include "backend/cuda/cuda.h"

#undef trireme_backend_cuda
Err trireme_backend_cuda(Backend *b, const CudaSpec *s);

#define ALL     ((uint64_t)1 << 28)
#define WORKING 10000000u

extern unsigned long fake_taken; /* bytes allocated; in fake_cuda.c */

static Backend fake;
static uint64_t working;

static Err reserve(const Backend *b, size_t longest, size_t d) {
  working = WORKING;
  return fake.reserve(b, longest, d);
}

static Err memory(const Backend *b, uint64_t *left, uint64_t *all) {
  (void)b;
  *all = ALL;
  *left = ALL - working - fake_taken;
  return ERR_OK;
}

static void do_nothing(void) {
}

Err trireme_backend_cuda(Backend *b, const CudaSpec *s) {
  CudaSpec plain = *s;
  void (*no)(void) = do_nothing;
  plain.type = TYPE_F32;
  TRY(fake_open(b, &plain));
  fake = *b;
  b->type = s->type;
  b->reserve = reserve;
  b->memory = memory;
  if (s->type == TYPE_F32) return ERR_OK;
  memcpy(&b->lower, &no, sizeof no);
  for (char *at = (char *)&b->linear; at < (char *)&b->packed; at += sizeof no)
    memcpy(at, &no, sizeof no);
  return ERR_OK;
}
