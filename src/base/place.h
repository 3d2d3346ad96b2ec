/* Access to the files of data sets and models. All such files are opened through this interface.
 * The scheme of a path ("scheme://") selects a storage kind; a path without a scheme is a local
 * file.
 *
 * A storage kind is a table of functions (PlaceKind). place_local.c implements local files. A new
 * kind, for example HTTP with a cache, is one file with such a table and a call of
 * place_register(). place.c checks bounds for all kinds; errors name the path and the offset.
 *
 * Pinned bytes stay in memory at a fixed address until they are unpinned. Local files are mapped;
 * on file systems without mmap they are read into memory (see place_local.c).
 * Threads: several threads may call place_read and place_pin for the same file.
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
  const PlaceKind *kind; /* NULL: the file is not open */
  char *path;
  uint64_t size; /* size of the file in bytes */
  void *state;   /* private data of the storage kind */
  int fd;        /* file descriptor, used by kinds that have one */
} PlaceFile;

/* A range of a file in memory. Stays valid after the PlaceFile is closed. */
typedef struct {
  const uint8_t *bytes; /* contents of the range, `size` bytes */
  size_t size;
  uint64_t offset; /* file offset of bytes[0] */
  char *path;
  const PlaceKind *kind; /* NULL: nothing is pinned */
  void *state;           /* private data of the storage kind */
  size_t state_size;     /* private data of the storage kind */
} PlacePin;

typedef enum { PLACE_MISSING, PLACE_FILE, PLACE_DIRECTORY } PlaceType;

/* Called with the name of each entry of a directory except "." and ".."; an error ends the
 * listing. */
typedef Err (*PlaceVisit)(void *context, const char *name);

/* Functions of a storage kind. open, close, read, type and size are required. The range passed to
 * read and pin lies within the file and is not empty. */
struct PlaceKind {
  const char *scheme; /* "mem" for paths mem://…; NULL for local files */
  /* Opens the file: `path` and `kind` are set, the function sets `size`, `state` and `fd`. */
  Err (*open)(PlaceFile *f);
  void (*close)(PlaceFile *f);
  Err (*read)(const PlaceFile *f, uint64_t offset, void *to, size_t len);
  PlaceType (*type)(const char *path);
  Err (*size)(const char *path, uint64_t *bytes);
  /* Calls `visit` with each name in the directory. NULL: this kind cannot list directories. */
  Err (*list)(const char *path, PlaceVisit visit, void *context);
  /* Pins a range: sets `bytes`, `state` and `state_size`; the other fields are set. NULL: place.c
   * reads the range into allocated memory instead. */
  Err (*pin)(const PlaceFile *f, PlacePin *pin);
  void (*unpin)(PlacePin *pin);
};

/* Adds a storage kind. Call it at program start, before other threads run. */
void place_register(const PlaceKind *kind);

/* Opens a file. After an error the file is not open and f->path is NULL. */
NODISCARD Err place_open(PlaceFile *f, const char *path);
void place_close(PlaceFile *f); /* Closes the file, if it is open. */
/* Reads exactly `len` bytes at `offset`. */
NODISCARD Err place_read(const PlaceFile *f, uint64_t offset, void *to, size_t len);
NODISCARD Err place_pin(const PlaceFile *f, uint64_t offset, size_t len, PlacePin *pin);
/* Pins a whole file. */
NODISCARD Err place_pin_file(PlacePin *pin, const char *path);
void place_unpin(PlacePin *pin); /* Unpins the range, if one is pinned. */
/* Returns the number of ranges that are currently pinned. */
size_t place_pins(void);

NODISCARD Err place_size(const char *path, uint64_t *bytes);
/* Fails if the scheme of the path is not known. Call it before place_type and place_exists, which
 * report that no file exists at such a path. */
NODISCARD Err place_check(const char *path);
PlaceType place_type(const char *path);
bool place_exists(const char *path);
NODISCARD Err place_list(const char *path, PlaceVisit visit, void *context);
/* Appends the contents of a file of at most `limit` bytes. */
NODISCARD Err place_read_all(const char *path, size_t limit, Str *into);
NODISCARD Err place_sha256(const char *path, char hex[65]);
/* Copies a file to the local path `to`: writes a temporary file in the same directory, syncs and
 * renames it. */
NODISCARD Err place_copy(const char *from, const char *to);

#endif
