/* Reads lines of plain, gzip and Zstandard files. The bytes are untrusted: every error names the
 * file and the offset. Depends on base, zlib, libzstd. */
#include "data/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#ifdef HAVE_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

#define RAW_BYTES ((size_t)1 << 18)
/* maximum bytes of a line; a longer one is not a sentence */
#define LINE_LIMIT ((size_t)1 << 20)
/* Maximum log2 of the Zstandard window: the default of zstd, sufficient for its options -19 and
 * --long. The header of a frame may request up to 2 GB. */
#define WINDOW_LOG  27
#define MAGIC_BYTES 4

typedef enum { PLAIN, GZIP, ZSTANDARD } Kind;

struct Input {
  char *path;
  int fd;
  Kind kind;
  bool raw_end, frame_open; /* the end of the file was read; a compressed frame has begun */
  uint8_t *raw;             /* bytes as stored in the file, RAW_BYTES long */
  size_t raw_at, raw_len;
  uint64_t raw_total;
  Sha256 sha;
  bool is_hashed;
  z_stream gzip;
#ifdef HAVE_ZSTD
  ZSTD_DStream *zstd;
#endif
  char *text; /* decoded text; the current line begins at text_at */
  size_t text_at, text_len, text_cap;
  uint64_t number;
  bool text_end;
  bool had_cr; /* the last line ended with CRLF */
};

/* Reads the bytes that are available and appends them to the buffer. */
static Err read_raw(Input *in) {
  ssize_t n;
  do n = read(in->fd, in->raw + in->raw_len, RAW_BYTES - in->raw_len);
  while (n < 0 && errno == EINTR);
  if (n < 0) return err_errno("cannot read", in->path);
  in->raw_end = n == 0;
  if (in->is_hashed) sha256_add(&in->sha, in->raw + in->raw_len, (size_t)n);
  in->raw_len += (size_t)n;
  in->raw_total += (size_t)n;
  return ERR_OK;
}

static Err refill_buffer(Input *in) {
  in->raw_at = 0;
  in->raw_len = 0;
  return in->raw_end ? ERR_OK : read_raw(in);
}

static Err report_damage(const Input *in, const char *why) {
  return err_set(ERR_WORK, "%s is damaged near byte %llu: %s; copy or download it again",
                 in->path, (unsigned long long)(in->raw_total - in->raw_len + in->raw_at), why);
}

/* Returns true if the first `len` bytes agree with the beginning of a Zstandard frame, or of a
 * skippable frame, which may contain anything; pzstd writes one first. */
static bool begins_zstd(const uint8_t *b, size_t len) {
  static const uint8_t frame[MAGIC_BYTES] = {0x28, 0xb5, 0x2f, 0xfd};
  /* The first byte of a skippable frame may be 0x50 to 0x5f. */
  static const uint8_t skippable[MAGIC_BYTES] = {0x50, 0x2a, 0x4d, 0x18};
  size_t n = len < MAGIC_BYTES ? len : MAGIC_BYTES;
  if (n == 0 || memcmp(b, frame, n) == 0) return true;
  return (b[0] & 0xf0) == skippable[0] && memcmp(b + 1, skippable + 1, n - 1) == 0;
}

static bool begins_gzip(const uint8_t *b, size_t len) {
  return len == 0 || (b[0] == 0x1f && (len < 2 || b[1] == 0x8b));
}

static Err begin_zstd(Input *in) {
  in->kind = ZSTANDARD;
#ifdef HAVE_ZSTD
  in->zstd = ZSTD_createDStream();
  if (!in->zstd)
    return err_set(ERR_WORK, "cannot decompress %s: out of memory for Zstandard", in->path);
  ZSTD_DCtx_setParameter(in->zstd, ZSTD_d_windowLogMax, WINDOW_LOG);
  return ERR_OK;
#else
  return err_set(ERR_WORK,
                 "%s is compressed with Zstandard, which this program was built without: "
                 "install libzstd-dev and build it again",
                 in->path);
#endif
}

/* Determines the compression from the first bytes. A pipe or a terminal may return them one by
 * one. More bytes are awaited only while those read so far could be the beginning of a compressed
 * file. */
static Err begin_kind(Input *in) {
  while (!in->raw_end && in->raw_len < MAGIC_BYTES &&
         (begins_zstd(in->raw, in->raw_len) ||
          (in->raw_len < 2 && begins_gzip(in->raw, in->raw_len))))
    TRY(read_raw(in));
  if (in->raw_len >= MAGIC_BYTES && begins_zstd(in->raw, in->raw_len)) return begin_zstd(in);
  if (in->raw_len < 2 || !begins_gzip(in->raw, in->raw_len)) return ERR_OK;
  in->kind = GZIP;
  return inflateInit2(&in->gzip, 15 + 16) == Z_OK
             ? ERR_OK
             : err_set(ERR_WORK, "cannot decompress %s: out of memory for gzip", in->path);
}

Err input_open(Input **out, const char *path) {
  *out = NULL;
  Input *in;
  TRY(mem_alloc(&in, 1, sizeof *in));
  bool standard = strcmp(path, "-") == 0;
  Err err;
  struct stat st;
  in->fd = -1;
  sha256_begin(&in->sha);
  in->is_hashed = true;
  TRY_DONE(
      mem_dup(&in->path, standard ? "standard input" : path, standard ? 14 : strlen(path)));
  TRY_DONE(mem_alloc(&in->raw, RAW_BYTES, 1));
  in->fd = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
  if (in->fd < 0) {
    err = err_errno("cannot open", in->path);
    goto done;
  }
  if (fstat(in->fd, &st) == 0 && S_ISDIR(st.st_mode)) {
    err = err_set(ERR_WORK, "%s is a directory, not a text file; give the path of a file",
                  in->path);
    goto done;
  }
#ifdef POSIX_FADV_SEQUENTIAL
  posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
  err = begin_kind(in);
done:
  if (err)
    input_close(in);
  else
    *out = in;
  return err;
}

void input_close(Input *in) {
  if (!in) return;
  if (in->fd >= 0) close(in->fd);
  if (in->kind == GZIP) inflateEnd(&in->gzip);
#ifdef HAVE_ZSTD
  ZSTD_freeDStream(in->zstd);
#endif
  mem_free(in->path);
  mem_free(in->raw);
  mem_free(in->text);
  mem_free(in);
}

static Err decode_gzip(Input *in, size_t room, size_t *made) {
  z_stream *z = &in->gzip;
  z->next_in = in->raw + in->raw_at;
  z->avail_in = (uInt)(in->raw_len - in->raw_at);
  z->next_out = (Bytef *)in->text + in->text_len;
  z->avail_out = (uInt)room;
  int code = inflate(z, Z_NO_FLUSH);
  in->raw_at = in->raw_len - z->avail_in;
  *made = room - z->avail_out;
  in->frame_open = code != Z_STREAM_END;
  if (code == Z_STREAM_END)
    inflateReset(z); /* Another member may follow in the same gzip file. */
  else if (code != Z_OK && code != Z_BUF_ERROR)
    return report_damage(in, z->msg ? z->msg : "invalid gzip data");
  return ERR_OK;
}

static Err decode_zstd(Input *in, size_t room, size_t *made) {
#ifdef HAVE_ZSTD
  ZSTD_inBuffer from = {in->raw, in->raw_len, in->raw_at};
  ZSTD_outBuffer to = {in->text + in->text_len, room, 0};
  size_t code = ZSTD_decompressStream(in->zstd, &to, &from);
  in->raw_at = from.pos;
  *made = to.pos;
  in->frame_open = code != 0;
  if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge) {
    return err_set(ERR_WORK,
                   "%s needs more than %d MB to be unpacked (byte %llu: the window of its "
                   "Zstandard frame); unpack it with 'zstd -d --long=31' first",
                   in->path, 1 << (WINDOW_LOG - 20),
                   (unsigned long long)(in->raw_total - in->raw_len + in->raw_at));
  }
  if (ZSTD_isError(code)) return report_damage(in, ZSTD_getErrorName(code));
  return ERR_OK;
#else
  (void)room;
  (void)made;
  return report_damage(in, "Zstandard is not supported");
#endif
}

/* Decodes more text and appends it to in->text. */
static Err more_text(Input *in) {
  if (in->text_at) { /* Moves the incomplete line to the front of the buffer. */
    memmove(in->text, in->text + in->text_at, in->text_len - in->text_at);
    in->text_len -= in->text_at;
    in->text_at = 0;
  }
  if (in->text_len > LINE_LIMIT) {
    return err_set(ERR_WORK,
                   "%s:%llu: the line is longer than %zu bytes; split it into sentences or "
                   "remove it",
                   in->path, (unsigned long long)in->number + 1, LINE_LIMIT);
  }
  TRY(mem_grow(&in->text, &in->text_cap, in->text_len + RAW_BYTES, 1));
  for (size_t made = 0; made == 0;) {
    if (in->raw_at == in->raw_len) TRY(refill_buffer(in));
    if (in->raw_at == in->raw_len) {
      if (in->frame_open) return report_damage(in, "the compressed file ends too early");
      in->text_end = true;
      return ERR_OK;
    }
    size_t room = in->text_cap - in->text_len;
    if (in->kind == GZIP)
      TRY(decode_gzip(in, room, &made));
    else if (in->kind == ZSTANDARD)
      TRY(decode_zstd(in, room, &made));
    else {
      made = in->raw_len - in->raw_at < room ? in->raw_len - in->raw_at : room;
      memcpy(in->text + in->text_len, in->raw + in->raw_at, made);
      in->raw_at += made;
    }
    in->text_len += made;
  }
  return ERR_OK;
}

Err input_line(Input *in, const char **line, size_t *len) {
  *line = NULL;
  *len = 0;
  size_t searched = 0;
  char *newline = NULL;
  for (;;) {
    size_t have = in->text_len - in->text_at;
    if (have > searched)
      newline = memchr(in->text + in->text_at + searched, '\n', have - searched);
    if (newline || in->text_end) break;
    searched = have;
    TRY(more_text(in));
  }
  if (!newline && in->text_at == in->text_len) return ERR_OK;
  char *begin = in->text + in->text_at;
  char *end = newline ? newline : in->text + in->text_len;
  in->text_at = (size_t)(end - in->text) + (newline != NULL);
  in->number++;
  if (in->number == 1) begin += utf8_bom(begin, (size_t)(end - begin));
  in->had_cr = end > begin && end[-1] == '\r';
  if (in->had_cr) end--;
  *line = begin;
  *len = (size_t)(end - begin);
  return ERR_OK;
}

bool input_had_cr(const Input *in) {
  return in->had_cr;
}

Err input_skip(Input *in, uint64_t lines) {
  /* True if part of a line was skipped and its end is not found yet; the last line may have no
   * end. */
  bool has_part = false;
  while (lines > 0) {
    size_t have = in->text_len - in->text_at;
    char *newline = have ? memchr(in->text + in->text_at, '\n', have) : NULL;
    in->text_at = newline ? (size_t)(newline + 1 - in->text) : in->text_len;
    has_part = !newline && (has_part || have > 0);
    if (newline) {
      in->number++;
      lines--;
    } else if (in->text_end) {
      in->number += has_part;
      return ERR_OK;
    } else {
      TRY(more_text(in));
    }
  }
  return ERR_OK;
}

Err input_seek(Input *in, uint64_t offset, uint64_t before) {
  if (lseek(in->fd, (off_t)offset, SEEK_SET) < 0) return err_errno("cannot read", in->path);
  in->is_hashed = false;
  in->raw_at = 0;
  in->raw_len = 0;
  in->raw_total = offset;
  in->raw_end = false;
  in->text_at = 0;
  in->text_len = 0;
  in->text_end = false;
  in->number = before;
  return ERR_OK;
}

bool input_is_plain(const Input *in) {
  return in->kind == PLAIN;
}

void input_end_hash(Input *in) {
  in->is_hashed = false;
}

bool input_ready(Input *in, int patience) {
  size_t searched = 0;
  for (;;) {
    size_t have = in->text_len - in->text_at;
    if (in->text_end ||
        (have > searched && memchr(in->text + in->text_at + searched, '\n', have - searched)))
      return true;
    searched = have;
    struct pollfd f = {.fd = in->fd, .events = POLLIN};
    if (in->raw_at == in->raw_len && !in->raw_end && poll(&f, 1, patience) == 0) return false;
    if (more_text(in)) return true; /* The error is returned by the next call of input_line. */
  }
}

const char *input_path(const Input *in) {
  return in->path;
}

uint64_t input_number(const Input *in) {
  return in->number;
}

uint64_t input_bytes(const Input *in) {
  return in->raw_total;
}

void input_sha256(Input *in, char hex[65]) {
  Sha256 copy = in->sha;
  hex[0] = '\0';
  if (in->is_hashed) sha256_end(&copy, hex);
}
