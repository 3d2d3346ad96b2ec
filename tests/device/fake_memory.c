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

extern unsigned long fake_taken; /* by the program, of fake_cuda.c */

static Backend fake;
static uint64_t working;

static Err reserve(const Backend *b, size_t longest, size_t d) {
  working = WORKING;
  return fake.reserve(b, longest, d);
}

static Err memory(const Backend *b, uint64_t *left, uint64_t *all) {
  (void)b;
  *all = ALL, *left = ALL - working - fake_taken;
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
  b->reserve = reserve, b->memory = memory;
  if (s->type == TYPE_F32) return ERR_OK;
  memcpy(&b->lower, &no, sizeof no);
  for (char *at = (char *)&b->linear; at < (char *)&b->packed; at += sizeof no)
    memcpy(at, &no, sizeof no);
  return ERR_OK;
}
