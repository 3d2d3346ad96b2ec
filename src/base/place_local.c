/* Storage kind for local files. A pinned range is mapped: all ranks of a machine share one copy
 * in the page cache, and opening a large file costs nothing. If a page can no longer be read (the
 * file was truncated, the disk failed), the kernel raises SIGBUS, which mapguard reports before
 * it ends the process with exit code 1.
 *
 * Only on file systems without mmap (ENODEV) is a range read into memory. Files on network file
 * systems are mapped too: a private copy of every shard for every rank would not fit into memory.
 * Depends on err, file, mapguard, mem. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mapguard.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/place_internal.h"

static Err open_local(PlaceFile *f) {
  return file_open(f->path, &f->fd, &f->size);
}

static void close_local(PlaceFile *f) {
  close(f->fd);
}

static Err read_local(const PlaceFile *f, uint64_t offset, void *to, size_t len) {
  uint8_t *at = to;
  while (len) {
    ssize_t n = pread(f->fd, at, len, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int error = errno;
      return err_set(ERR_WORK,
                     "cannot read %s at byte %" PRIu64
                     ": %s; check the disk or the network file system",
                     f->path, offset, strerror(error));
    }
    if (n == 0)
      return err_set(ERR_WORK,
                     "%s was truncated while it was in use: it ends at byte %" PRIu64
                     " and had %" PRIu64 " bytes; copy it again",
                     f->path, offset, f->size);
    at += n;
    offset += (uint64_t)n;
    len -= (size_t)n;
  }
  return ERR_OK;
}

/* Maps a range. A mapping must begin at a page boundary: `state` is the address of that page,
 * `state_size` the size of the mapping. */
static Err pin_local(const PlaceFile *f, PlacePin *pin) {
  size_t before = (size_t)(pin->offset % (uint64_t)sysconf(_SC_PAGESIZE));
  size_t size = before + pin->size;
  void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, f->fd, (off_t)(pin->offset - before));
  if (at == MAP_FAILED && errno == ENODEV) return place_pin_copy(f, pin);
  if (at == MAP_FAILED) return err_errno("cannot map", f->path);
  Err err = mapguard_add(at, size, pin->offset - before, f->path);
  if (err) {
    munmap(at, size);
    return err;
  }
  pin->state = at;
  pin->state_size = size;
  pin->bytes = (const uint8_t *)at + before;
  return ERR_OK;
}

static void unpin_local(PlacePin *pin) {
  if (pin->state_size == 0) {
    place_unpin_copy(pin);
    return;
  }
  mapguard_remove(pin->state);
  munmap(pin->state, pin->state_size);
}

/* Returns the type of a path. A dangling symbolic link counts as a file, so that opening it
 * reports the problem. */
static PlaceType type_local(const char *path) {
  if (file_is_dir(path)) return PLACE_DIRECTORY;
  return file_exists(path) ? PLACE_FILE : PLACE_MISSING;
}

static Err list_local(const char *path, PlaceVisit visit, void *context) {
  DIR *dir = opendir(path);
  if (!dir) return err_errno("cannot read the directory", path);
  Err err = ERR_OK;
  for (struct dirent *entry; !err && (entry = readdir(dir));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    err = visit(context, entry->d_name);
  }
  closedir(dir);
  return err;
}

const PlaceKind place_local = {.open = open_local,
                               .close = close_local,
                               .read = read_local,
                               .type = type_local,
                               .size = file_size,
                               .list = list_local,
                               .pin = pin_local,
                               .unpin = unpin_local};
