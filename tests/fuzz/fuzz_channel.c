/* Feeds bytes of a hostile peer to a channel without encryption, in pieces of any length.
 * The channel must return the frames that a second, simpler reader finds in the same bytes.
 * Input: one byte for the length of the pieces, then the peer's bytes. Depends on
 * launch/channel. */
#include <sys/socket.h>

#include "fuzz_file.h"
#include "launch/channel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* State of the simple reader. is_ended: an end mark was read. */
typedef struct {
  const uint8_t *at, *end;
  bool is_ended, is_bad;
} Reader;

/* Reads the next frame that is not of type 0; returns false at the end, and at an
 * incomplete or invalid frame. */
static bool read_frame(Reader *r, Frame *frame) {
  while (!r->is_bad && r->end - r->at >= 4) {
    size_t length =
        r->at[0] | (size_t)r->at[1] << 8 | (size_t)r->at[2] << 16 | (size_t)r->at[3] << 24;
    r->is_bad = length < 1 || length > CHANNEL_FRAME_MAX + 1 || r->is_ended;
    if (r->is_bad || (size_t)(r->end - r->at) - 4 < length) return false;
    *frame = (Frame){r->at[4], r->at + 5, length - 1};
    if (frame->type == 0 && frame->len > 0) {
      r->is_bad = frame->len != 1 || frame->data[0] != 1;
      r->is_ended = !r->is_bad;
    }
    if (r->is_bad) return false;
    r->at += 4 + length;
    if (frame->type != 0) return true;
  }
  return false;
}

static void take_frames(Channel *c, Reader *r) {
  for (Frame got, expected; channel_next(c, &got);) {
    REQUIRE(read_frame(r, &expected));
    REQUIRE(got.type == expected.type && got.len == expected.len);
    REQUIRE(got.len == 0 || memcmp(got.data, expected.data, got.len) == 0);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  size_t piece = 1 + (size_t)data[0] * data[0];
  Reader reader = {.at = data + 1, .end = data + size};
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  Channel *c;
  REQUIRE(channel_open(&c, fds[0], fds[0], "fuzz") == ERR_OK);
  Err err = ERR_OK;
  for (const uint8_t *at = reader.at; at < reader.end && !err; at += piece) {
    size_t n = (size_t)(reader.end - at) < piece ? (size_t)(reader.end - at) : piece;
    REQUIRE(write(fds[1], at, n) == (ssize_t)n);
    err = channel_advance(c);
    take_frames(c, &reader);
  }
  close(fds[1]);
  while (!err) {
    err = channel_advance(c);
    take_frames(c, &reader);
  }
  Frame rest;
  REQUIRE(!read_frame(&reader, &rest));
  REQUIRE(channel_is_ended(c) == reader.is_ended);
  channel_close(c);
  return 0;
}
