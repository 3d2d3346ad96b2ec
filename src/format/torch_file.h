/* Reads the tensors of a file that torch.save wrote of a state dict, such as pytorch_model.bin: a
 * zip archive, or the older form before PyTorch 1.6. Executes nothing (see pickle.h). All bytes are
 * untrusted. Depends on zip, pickle. */
#ifndef FORMAT_TORCH_FILE_H
#define FORMAT_TORCH_FILE_H

#include "format/pickle.h"
#include "format/zip.h"

typedef struct {
  ZipFile zip;  /* the archive; not open for a file of the older form */
  PlacePin map; /* the file of the older form */
  PickleState state;
  const uint8_t **storage; /* (state.tensors) first byte of the storage of each tensor */
} TorchFile;

/* Opens a file and checks that each tensor lies within its storage, each storage within the file,
 * and, for an archive, all checksums. After an error there is nothing to close. */
NODISCARD Err torch_open(TorchFile *f, const char *path);
void torch_close(TorchFile *f);
/* Copies tensor number i, which must have `count` elements, to an array of floats in row-major
 * order. */
NODISCARD Err torch_read(const TorchFile *f, size_t i, float *out, uint64_t count);

#endif
