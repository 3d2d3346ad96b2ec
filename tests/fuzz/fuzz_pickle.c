/* Files of torch.save as hostile bytes: whatever is accepted can be read whole. If the first byte is
 * odd, the rest is data.pkl of an archive with two storages and correct checksums; else it is the
 * file itself. Depends on format/torch_file. */
#include "format/torch_file.h"

#include "../unit/zip_support.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const TorchFile *f) {
  static float out[1 << 16];
  for (size_t i = 0; i < f->state.tensors; i++) {
    const PickleTensor *t = &f->state.tensor[i];
    uint64_t count = 1;
    for (int k = 0; k < t->dimensions; k++) count *= t->shape[k];
    REQUIRE(t->name && t->storage && f->storage[i]);
    if (count <= sizeof out / sizeof *out) (void)!torch_read(f, i, out, count);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint8_t storage[64];
  TorchFile f;
  Str file = {0};
  if (size == 0) return 0;
  ZipPart part[] = {{"a/data.pkl", data + 1, size - 1},
                    {"a/data/0", storage, sizeof storage},
                    {"a/data/1", storage, 16}};
  if (data[0] & 1) zip_build(&file, part, 3);
  const char *path = data[0] & 1 ? fuzz_file((const uint8_t *)file.s, file.len)
                                 : fuzz_file(data + 1, size - 1);
  if (torch_open(&f, path) == ERR_OK) {
    read_all(&f);
    torch_close(&f);
  }
  str_free(&file);
  return 0;
}
