/* Writes train.order: sorts the pairs of each window by length, with a counting sort. Depends on
 * base, checked, order. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/place.h"
#include "data/order_file.h"
#include "data/shard.h"

/* A window during sorting. */
typedef struct {
  uint64_t first; /* number of the window's first pair in the training set */
  uint64_t pairs;
  size_t wide[2]; /* maximum length of each side + 1 */
  int primary;
  OrderCell *cell;
  size_t cells;
  size_t cell_cap;
} WindowSort;

typedef struct {
  OrderLengths lengths;
  void *context;
  WindowSort *window;
  size_t windows;
  /* for each combination of lengths: first a count, then the next free position */
  uint64_t *table;
  size_t table_cap;
} OrderSort;

static size_t get_place(const WindowSort *w, const uint32_t len[2]) {
  return (size_t)len[w->primary] * w->wide[!w->primary] + len[!w->primary];
}

static Err clear_table(OrderSort *s, const WindowSort *w) {
  size_t places = w->wide[0] * w->wide[1];
  TRY(mem_grow(&s->table, &s->table_cap, places, sizeof *s->table));
  memset(s->table, 0, places * sizeof *s->table);
  return ERR_OK;
}

/* Counts the pairs of each combination of source and target length. */
static Err count_lengths(OrderSort *s, WindowSort *w) {
  uint64_t total[2] = {0};
  uint32_t len[2];
  w->wide[0] = w->wide[1] = 1;
  for (uint64_t i = 0; i < w->pairs; i++) {
    TRY(s->lengths(s->context, w->first + i, len));
    for (int side = 0; side < 2; side++) {
      if (len[side] > SHARD_LONGEST)
        return err_set(
            ERR_WORK,
            "bug: pair %llu has %u tokens, but at most %u are allowed; please report it",
            (unsigned long long)(w->first + i), len[side], SHARD_LONGEST);
      if (len[side] >= w->wide[side]) w->wide[side] = len[side] + 1;
      total[side] += len[side];
    }
  }
  w->primary = total[1] >= total[0];
  TRY(clear_table(s, w));
  for (uint64_t i = 0; i < w->pairs; i++) {
    TRY(s->lengths(s->context, w->first + i, len));
    s->table[get_place(w, len)]++;
  }
  return ERR_OK;
}

/* Lists the combinations of lengths that occur, in sorted order. */
static Err list_cells(OrderSort *s, WindowSort *w) {
  for (size_t p = 0; p < w->wide[w->primary]; p++) {
    for (size_t o = 0; o < w->wide[!w->primary]; o++) {
      uint64_t count = s->table[p * w->wide[!w->primary] + o];
      if (count == 0) continue;
      TRY(mem_grow(&w->cell, &w->cell_cap, w->cells + 1, sizeof *w->cell));
      OrderCell *cell = &w->cell[w->cells++];
      cell->len[w->primary] = (uint16_t)p;
      cell->len[!w->primary] = (uint16_t)o;
      cell->count = (uint32_t)count;
    }
  }
  return ERR_OK;
}

/* Stores every pair at the next free position for its lengths. list: (w->pairs) */
static Err fill_list(OrderSort *s, const WindowSort *w, uint32_t *list) {
  uint64_t place = 0;
  TRY(clear_table(s, w));
  for (size_t c = 0; c < w->cells; c++) {
    uint32_t len[2] = {w->cell[c].len[0], w->cell[c].len[1]};
    s->table[get_place(w, len)] = place;
    place += w->cell[c].count;
  }
  for (uint64_t i = 0; i < w->pairs; i++) {
    uint32_t len[2];
    TRY(s->lengths(s->context, w->first + i, len));
    list[s->table[get_place(w, len)]++] = (uint32_t)i;
  }
  return ERR_OK;
}

/* Sorts the list of pairs in a mapped file, so that the memory use does not grow with the corpus.
 * The disk space is reserved first, so that a full disk is an error instead of a SIGBUS. */
static Err write_list(OrderSort *s, const WindowSort *w, const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return err_errno("cannot create", path);
  size_t bytes = (size_t)w->pairs * sizeof(uint32_t);
  errno = posix_fallocate(fd, 0, (off_t)bytes);
  void *at = errno ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  Err err = at == MAP_FAILED ? err_errno("cannot write", path) : ERR_OK;
  close(fd);
  if (err) return err;
  err = fill_list(s, w, at);
  munmap(at, bytes);
  return err;
}

static uint64_t count_bytes(const WindowSort *w) {
  uint64_t bytes = w->cells * sizeof *w->cell + w->pairs * sizeof(uint32_t);
  return (bytes + 7) & ~(uint64_t)7;
}

static Err write_window(OrderSort *s, const WindowSort *w, FileWriter *file,
                        CheckedTable *checks, const char *list_path) {
  static const uint8_t zeros[8];
  PlacePin list;
  TRY(write_list(s, w, list_path));
  TRY(place_pin_file(&list, list_path));
  size_t cells = w->cells * sizeof *w->cell;
  Err err = checked_put(checks, file, w->cell, cells);
  if (!err) err = checked_put(checks, file, list.bytes, list.size);
  if (!err)
    err = checked_put(checks, file, zeros, (size_t)(count_bytes(w) - cells - list.size));
  place_unpin(&list);
  return err;
}

static Err write_parts(OrderSort *s, FileWriter *file, CheckedTable *checks,
                       const char *list_path) {
  OrderHeader2 header = {.version = 2};
  memcpy(header.magic, ORDER_MAGIC, sizeof header.magic);
  header.windows = (uint32_t)s->windows;
  header.payload = sizeof header + s->windows * sizeof(OrderEntry);
  uint64_t offset = header.payload;
  for (size_t i = 0; i < s->windows; i++) {
    header.pairs += s->window[i].pairs;
    header.payload += count_bytes(&s->window[i]);
  }
  TRY(checked_put(checks, file, &header, sizeof header));
  for (size_t i = 0; i < s->windows; i++) {
    const WindowSort *w = &s->window[i];
    OrderEntry entry = {.pairs = w->pairs, .offset = offset, .cells = w->cells};
    entry.primary = (uint32_t)w->primary;
    offset += count_bytes(w);
    TRY(checked_put(checks, file, &entry, sizeof entry));
  }
  for (size_t i = 0; i < s->windows; i++)
    TRY(write_window(s, &s->window[i], file, checks, list_path));
  return checked_write(checks, file);
}

static Err write_file(OrderSort *s, const char *path, const char *list_path, uint64_t *bytes,
                      char sha256[65]) {
  FileWriter file;
  CheckedTable checks = {0};
  TRY(file_create(&file, path));
  Err err = write_parts(s, &file, &checks, list_path);
  *bytes = file.bytes;
  if (!err) err = file_finish(&file, sha256);
  file_abandon(&file);
  checked_table_free(&checks);
  return err;
}

static Err sort_windows(OrderSort *s, const uint64_t *window_pairs, size_t windows) {
  uint64_t first = 0;
  TRY(mem_alloc(&s->window, windows, sizeof *s->window));
  for (size_t i = 0; i < windows; i++) {
    WindowSort *w = &s->window[s->windows++];
    if (window_pairs[i] == 0 || window_pairs[i] > ORDER_WINDOW_PAIRS)
      return err_set(ERR_WORK,
                     "a window of training pairs has 1 to 4,294,967,295 pairs, not %llu; set "
                     "--window-pairs",
                     (unsigned long long)window_pairs[i]);
    w->first = first;
    w->pairs = window_pairs[i];
    first += w->pairs;
    TRY(count_lengths(s, w));
    TRY(list_cells(s, w));
  }
  return ERR_OK;
}

Err order_write(const char *path, const uint64_t *window_pairs, size_t windows,
                OrderLengths lengths, void *context, uint64_t *bytes, char sha256[65]) {
  OrderSort s = {.lengths = lengths, .context = context};
  char list_path[FILE_PATH_MAX];
  int n = snprintf(list_path, sizeof list_path, "%s.list", path);
  if (n < 0 || n >= FILE_PATH_MAX)
    return err_set(ERR_WORK, "the path %s is too long; choose a directory with a shorter path",
                   path);
  if (windows == 0 || windows > ORDER_WINDOWS_MAX)
    return err_set(ERR_WORK, "%zu windows are not possible, 1 to %u are; raise --window-pairs",
                   windows, ORDER_WINDOWS_MAX);
  Err err = sort_windows(&s, window_pairs, windows);
  if (!err) err = write_file(&s, path, list_path, bytes, sha256);
  unlink(list_path);
  for (size_t i = 0; i < s.windows; i++) mem_free(s.window[i].cell);
  mem_free(s.window);
  mem_free(s.table);
  return err;
}
