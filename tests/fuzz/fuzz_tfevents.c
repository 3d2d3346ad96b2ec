/* TensorBoard event files as hostile bytes, as given and with corrected checksums, so that
 * the messages are reached. Every tag must lie within its event. Depends on
 * format/tfevents. */
#include "format/tfevents.h"

#include "fuzz_file.h"

#define LIMIT ((size_t)1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Err check_event(void *context, const TfEvent *event) {
  uint64_t *end = context;
  TfValue v;
  REQUIRE(event->offset >= *end);
  *end = event->offset + 16;
  for (size_t at = 0; tfevents_next_value(event, &at, &v);) {
    const uint8_t *tag = (const uint8_t *)v.tag;
    REQUIRE(at <= event->summary_len);
    REQUIRE(v.tag_len == 0 ||
            (tag >= event->summary && tag + v.tag_len <= event->summary + at));
  }
  return ERR_OK;
}

/* Corrects the checksums of all records, up to the first one that is longer than the rest of the
 * file; of that one, only the checksum of its length. */
static void seal_records(uint8_t *file, size_t size) {
  for (size_t at = 0; size - at >= 16;) {
    uint64_t len = fuzz_get64(file, at);
    fuzz_put32(file, at + 8, tfevents_masked_crc(file + at, 8));
    if (len > size - at - 16) return;
    fuzz_put32(file, at + 12 + (size_t)len, tfevents_masked_crc(file + at + 12, (size_t)len));
    at += 16 + (size_t)len;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t file[LIMIT];
  uint64_t end = 0;
  if (size > LIMIT) return 0;
  (void)!tfevents_read(fuzz_file(data, size), check_event, &end);
  memcpy(file, data, size);
  seal_records(file, size);
  end = 0;
  (void)!tfevents_read(fuzz_file(file, size), check_event, &end);
  return 0;
}
