/* Text files as hostile bytes: plain, gzip and Zstandard. In the second mode the bytes,
 * repeated, are the text; the reader must find the same lines in the plain text and in its
 * compressed forms. Depends on data/input, zlib, libzstd. */
#include "data/input.h"

#include "base/rng.h"
#include "fuzz_file.h"
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads the file to its end; computes a hash and the number of its lines. */
static Err read_lines(const char *path, uint64_t *hash, uint64_t *lines) {
  Input *in;
  const char *line;
  size_t len;
  *hash = *lines = 0;
  TRY(input_open(&in, path));
  Err err;
  while (!(err = input_line(in, &line, &len)) && line) {
    REQUIRE(!memchr(line, '\n', len));
    *hash = rng_hash(line, len, *hash);
    REQUIRE(input_number(in) == ++*lines);
  }
  if (!err) { /* another read must also return the end */
    REQUIRE(input_line(in, &line, &len) == ERR_OK && !line);
    char hex[65];
    input_sha256(in, hex);
    REQUIRE(strlen(hex) == 64);
  }
  input_close(in);
  return err;
}

static void require_same(const char *path, uint64_t hash, uint64_t lines) {
  uint64_t other, others;
  REQUIRE(read_lines(path, &other, &others) == ERR_OK);
  REQUIRE(lines == others && hash == other);
}

static void require_gzip(const uint8_t *text, size_t len, uint64_t hash, uint64_t lines) {
  z_stream z = {0};
  REQUIRE(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  size_t room = deflateBound(&z, len);
  uint8_t *out = malloc(room);
  REQUIRE(out);
  z.next_in = (Bytef *)(uintptr_t)text;
  z.avail_in = (uInt)len;
  z.next_out = out;
  z.avail_out = (uInt)room;
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  size_t made = room - z.avail_out;
  deflateEnd(&z);
  require_same(fuzz_file(out, made), hash, lines);
  uint64_t other, others;
  REQUIRE(read_lines(fuzz_file(out, made - 1), &other, &others) != ERR_OK);
  free(out);
}

static void require_zstd(const uint8_t *text, size_t len, uint64_t hash, uint64_t lines) {
#ifdef HAVE_ZSTD
  size_t room = ZSTD_compressBound(len);
  uint8_t *out = malloc(room);
  REQUIRE(out);
  size_t made = ZSTD_compress(out, room, text, len, 1);
  REQUIRE(!ZSTD_isError(made));
  require_same(fuzz_file(out, made), hash, lines);
  uint64_t other, others;
  REQUIRE(read_lines(fuzz_file(out, made - 1), &other, &others) != ERR_OK);
  free(out);
#else
  (void)text, (void)len, (void)hash, (void)lines;
#endif
}

static bool looks_compressed(const uint8_t *b, size_t len) {
  return (len >= 2 && b[0] == 0x1f && b[1] == 0x8b) ||
         (len >= 4 && memcmp(b, "\x28\xb5\x2f\xfd", 4) == 0) ||
         (len >= 4 && (b[0] & 0xf0) == 0x50 && memcmp(b + 1, "\x2a\x4d\x18", 3) == 0);
}

static void compare_forms(const uint8_t *data, size_t size, size_t times) {
  if (times * size > (size_t)300000) times = 1;
  uint8_t *text = malloc(times * size);
  REQUIRE(text);
  for (size_t i = 0; i < times; i++) memcpy(text + i * size, data, size);
  uint64_t hash, lines;
  REQUIRE(read_lines(fuzz_file(text, times * size), &hash, &lines) == ERR_OK);
  require_gzip(text, times * size, hash, lines);
  require_zstd(text, times * size, hash, lines);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 4) return 0;
  bool compare = (data[0] & 31) == 1; /* rare, because it is slower */
  size_t times = 1 + ((size_t)data[1] << 8 | data[2]);
  data += 3, size -= 3;
  uint64_t hash, lines;
  if (compare && !looks_compressed(data, size))
    compare_forms(data, size, times);
  else
    (void)!read_lines(fuzz_file(data, size), &hash, &lines);
  return 0;
}
