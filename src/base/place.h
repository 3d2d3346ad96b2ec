/* Where the files of data sets and models are read from. Every reader of such a file opens it
 * here by its path; a path with "scheme://" selects the kind of place, any other is a local file.
 *
 * A kind is a table of functions (PlaceKind). Local files are the first one (place_local.c). A new
 * one, say HTTP with a cache, is one file with such a table and one call of place_register().
 * Bounds are checked here, once for all kinds; errors name the path and the offset.
 *
 * Pinned bytes stay in memory at a fixed address until they are unpinned. Local files are mapped;
 * where the file system has no mmap they are read into memory (see place_local.c).
 * Threads: place_read and place_pin may be called for one file by several threads.
 * Depends on err, str, mem. */
#ifndef BASE_PLACE_H
#define BASE_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/place.h"
#include "base/str.h"

typedef struct PlaceKind PlaceKind;

/* An open file. */
typedef struct {
  const PlaceKind *kind; /* NULL: not open */
  char *path;
  uint64_t size; /* bytes */
  void *state;   /* of the kind */
  int fd;        /* of the kind */
} PlaceFile;

/* A range of a file in memory. Does not depend on the PlaceFile, which may be closed. */
typedef struct {
  const uint8_t *bytes; /* (size) */
  size_t size;
  uint64_t offset; /* of bytes[0] in the file */
  char *path;
  const PlaceKind *kind; /* NULL: nothing is pinned */
  void *state;           /* of the kind */
  size_t state_size;     /* of the kind */
} PlacePin;

typedef enum { PLACE_MISSING, PLACE_FILE, PLACE_DIRECTORY } PlaceType;

/* Called with each name in a directory, without "." and ".."; an error ends the listing. */
typedef Err (*PlaceVisit)(void *context, const char *name);

/* open, close, read, type and size are required. The range given to read and pin lies within the file
 * and is not empty. */
struct PlaceKind {
  const char *scheme; /* "mem" for paths mem://…; NULL: local files */
  /* Fills size, state and fd of a file whose path and kind are set. */
  Err (*open)(PlaceFile *f);
  void (*close)(PlaceFile *f);
  Err (*read)(const PlaceFile *f, uint64_t offset, void *to, size_t len);
  PlaceType (*type)(const char *path);
  Err (*size)(const char *path, uint64_t *bytes);
  /* Calls `visit` with each name in the directory. NULL: this kind has no listings. */
  Err (*list)(const char *path, PlaceVisit visit, void *context);
  /* Fills bytes, state and state_size of a pin whose other fields are set. NULL: the range is
   * read into memory. */
  Err (*pin)(const PlaceFile *f, PlacePin *pin);
  void (*unpin)(PlacePin *pin);
};

/* Adds a kind; call it at program start, before other threads run. */
void place_register(const PlaceKind *kind);

/* After an error nothing is open and f->path is NULL. */
NODISCARD Err place_open(PlaceFile *f, const char *path);
void place_close(PlaceFile *f); /* harmless if it is not open */
/* Reads exactly `len` bytes. */
NODISCARD Err place_read(const PlaceFile *f, uint64_t offset, void *to, size_t len);
NODISCARD Err place_pin(const PlaceFile *f, uint64_t offset, size_t len, PlacePin *pin);
/* Pins a whole file. */
NODISCARD Err place_pin_file(PlacePin *pin, const char *path);
void place_unpin(PlacePin *pin); /* harmless if nothing is pinned */
/* Ranges that are pinned now. */
size_t place_pins(void);

NODISCARD Err place_size(const char *path, uint64_t *bytes);
/* Refuses a path whose scheme is not known. Call it before place_type and place_exists, for which
 * nothing exists at such a path. */
NODISCARD Err place_check(const char *path);
PlaceType place_type(const char *path);
bool place_exists(const char *path);
NODISCARD Err place_list(const char *path, PlaceVisit visit, void *context);
/* Appends the contents of a file of at most `limit` bytes. */
NODISCARD Err place_read_all(const char *path, size_t limit, Str *into);
NODISCARD Err place_sha256(const char *path, char hex[65]);
/* Copies a file to the local path `to`: written beside it, synced, renamed. */
NODISCARD Err place_copy(const char *from, const char *to);

#endif
