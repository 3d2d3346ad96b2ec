/* Creates, reads and writes keys. Depends on file, getrandom(2). */
#include "launch/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define MAGIC "trireme-key-1 "

enum {
  MAGIC_LEN = sizeof MAGIC - 1,
  LINE_LEN = MAGIC_LEN + 2 * KEY_BYTES + 1, /* length of the line with its line break */
};

Err key_make(Key *key) {
  size_t have = 0;
  while (have < KEY_BYTES) {
    ssize_t n = getrandom(key->bytes + have, KEY_BYTES - have, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return err_errno("cannot make a key from", "getrandom(2)");
    have += (size_t)n;
  }
  return ERR_OK;
}

void key_wipe(Key *key) {
  explicit_bzero(key, sizeof *key);
}

void key_to_text(const Key *key, char text[KEY_TEXT]) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < KEY_BYTES; i++) {
    text[2 * i] = digits[key->bytes[i] >> 4];
    text[2 * i + 1] = digits[key->bytes[i] & 15];
  }
  text[KEY_TEXT - 1] = '\0';
}

static int get_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool key_from_text(const char *text, Key *key) {
  for (int i = 0; i < KEY_BYTES; i++) {
    int high = get_digit(text[2 * i]);
    int low = high < 0 ? -1 : get_digit(text[2 * i + 1]);
    if (low < 0) return false;
    key->bytes[i] = (uint8_t)(high << 4 | low);
  }
  return text[KEY_TEXT - 1] == '\0';
}

/* Writes all bytes: a write that stops early, on a full disk, is followed by one with the reason. */
static bool write_all(int fd, const char *bytes, size_t len) {
  while (len) {
    ssize_t n = write(fd, bytes, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes += n;
    len -= (size_t)n;
  }
  return true;
}

static Err write_line(int fd, const char *path) {
  Key key;
  char line[LINE_LEN + 1];
  TRY(key_make(&key));
  memcpy(line, MAGIC, MAGIC_LEN);
  key_to_text(&key, line + MAGIC_LEN);
  line[LINE_LEN - 1] = '\n';
  /* fchmod sets the mode exactly; the mode of open(2) is reduced by the umask. */
  bool is_written = fchmod(fd, 0600) == 0 && write_all(fd, line, LINE_LEN) && fsync(fd) == 0;
  Err err = is_written ? ERR_OK : err_errno("cannot write", path);
  explicit_bzero(line, sizeof line);
  key_wipe(&key);
  return err;
}

Err key_create(const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST)
    return err_set(ERR_WORK,
                   "%s exists: a key is not overwritten, because machines may use it; choose "
                   "another name, or remove the file",
                   path);
  if (fd < 0) return err_errno("cannot create", path);
  Err err = write_line(fd, path);
  close(fd);
  if (err) unlink(path);
  return err;
}

static Err check_mode(int fd, const char *path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return err_errno("cannot read", path);
  if ((info.st_mode & 077) != 0)
    return err_set(
        ERR_WORK,
        "%s can be read or written by other users (mode %04o), so the key may be known "
        "to them; make a new one with 'trireme launch --new-key FILE', or run 'chmod "
        "600 %s' if nobody else had access",
        path, (unsigned)(info.st_mode & 07777), path);
  return ERR_OK;
}

static Err read_line(int fd, uint64_t bytes, const char *path, Key *key) {
  char line[LINE_LEN];
  Err err = ERR_OK;
  if (bytes != LINE_LEN || pread(fd, line, LINE_LEN, 0) != LINE_LEN ||
      memcmp(line, MAGIC, MAGIC_LEN) != 0 || line[LINE_LEN - 1] != '\n')
    err = err_set(
        ERR_WORK,
        "%s is not a key file: it has %llu bytes, and not the one line of %d bytes that "
        "begins with '%s'; copy it again, or make one with 'trireme launch --new-key "
        "FILE'",
        path, (unsigned long long)bytes, LINE_LEN, MAGIC);
  if (!err) {
    line[LINE_LEN - 1] = '\0';
    if (!key_from_text(line + MAGIC_LEN, key))
      err = err_set(ERR_WORK,
                    "%s is not a key file: not all of its 64 digits are hexadecimal; copy it "
                    "again, or make one with 'trireme launch --new-key FILE'",
                    path);
  }
  explicit_bzero(line, sizeof line);
  return err;
}

Err key_read(const char *path, Key *key) {
  int fd;
  uint64_t bytes;
  TRY(file_open(path, &fd, &bytes));
  Err err = check_mode(fd, path);
  if (!err) err = read_line(fd, bytes, path, key);
  close(fd);
  return err;
}
