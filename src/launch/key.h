/* The shared key with which machines prove to each other that they belong together. A key file
 * is one line of text, "trireme-key-1 " and 64 hexadecimal digits (docs/formats.md).
 * Depends on err, file. */
#ifndef LAUNCH_KEY_H
#define LAUNCH_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
  KEY_BYTES = 32,
  KEY_TEXT = 2 * KEY_BYTES + 1, /* size of a buffer for the hexadecimal digits */
};

typedef struct {
  uint8_t bytes[KEY_BYTES];
} Key;

/* Creates a key from random bytes of the kernel. */
NODISCARD Err key_make(Key *key);
/* Writes a new key to `path`, which must not exist, with mode 0600. */
NODISCARD Err key_create(const char *path);
/* Reads a key file. Fails if other users can read or write the file. */
NODISCARD Err key_read(const char *path, Key *key);

/* Convert a key to text, which is sent over an encrypted channel, and back. key_from_text
 * returns false if the text is not a key. */
void key_to_text(const Key *key, char text[KEY_TEXT]);
bool key_from_text(const char *text, Key *key);

/* Overwrites the key in memory with zeros. */
void key_wipe(Key *key);

#endif
