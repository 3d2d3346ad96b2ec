/* Size and CRC-32 of files. Depends on err, place, parallel, crc. */
#include "base/filesum.h"

#include <inttypes.h>

#include "base/crc.h"
#include "base/parallel.h"
#include "base/place.h"

#define CHUNK ((size_t)1 << 20) /* bytes of one parallel task */
/* Number of chunks whose CRCs are computed in parallel before they are joined. */
#define ROUND 64

Err filesum_file(const char *path, FileSum *sum) {
  uint8_t block[1 << 16];
  PlaceFile f;
  *sum = (FileSum){0};
  TRY(place_open(&f, path));
  Err err = ERR_OK;
  while (!err && sum->bytes < f.size) {
    size_t len =
        f.size - sum->bytes < sizeof block ? (size_t)(f.size - sum->bytes) : sizeof block;
    err = place_read(&f, sum->bytes, block, len);
    if (err) break;
    sum->crc = crc_add(sum->crc, block, len);
    sum->bytes += len;
  }
  place_close(&f);
  return err;
}

FileSum filesum_bytes(const uint8_t *bytes, size_t len) {
  uint32_t crc = 0;
  for (size_t begin = 0; begin < len; begin += ROUND * CHUNK) {
    size_t left = len - begin < ROUND * CHUNK ? len - begin : ROUND * CHUNK;
    size_t chunks = (left + CHUNK - 1) / CHUNK;
    uint32_t part[ROUND];
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < chunks; i++) {
      size_t n = left - i * CHUNK < CHUNK ? left - i * CHUNK : CHUNK;
      part[i] = crc_add(0, bytes + begin + i * CHUNK, n);
    }
    for (size_t i = 0; i < chunks; i++) {
      size_t n = left - i * CHUNK < CHUNK ? left - i * CHUNK : CHUNK;
      crc = crc_join(crc, part[i], n);
    }
  }
  return (FileSum){len, crc};
}

Err filesum_compare(const char *path, FileSum now, FileSum then) {
  if (now.bytes != then.bytes) {
    return err_set(ERR_WORK,
                   "%s is damaged: it has %" PRIu64 " bytes, expected %" PRIu64
                   "; copy it again, or remove its directory",
                   path, now.bytes, then.bytes);
  }
  if (now.crc == then.crc) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s is damaged: its CRC-32 is %08" PRIx32 ", expected %08" PRIx32
                 "; copy it again, or remove its directory",
                 path, now.crc, then.crc);
}
