/* Safetensors files as hostile bytes: whatever is accepted can be read whole.
 * Depends on format/safetensors. */
#include "format/safetensors.h"

#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static float out[1 << 16];
  SafeFile f;
  if (safetensors_open(&f, fuzz_file(data, size))) return 0;
  for (size_t i = 0; i < f.tensors; i++) {
    const SafeTensor *t = &f.tensor[i];
    uint64_t count = 1;
    for (int k = 0; k < t->dimensions; k++) count *= t->shape[k];
    REQUIRE(t->begin <= t->end && f.data + t->end <= f.map.bytes + f.map.size);
    if (count <= sizeof out / sizeof *out) (void)!safetensors_read(&f, t, out, count);
  }
  safetensors_close(&f);
  return 0;
}
