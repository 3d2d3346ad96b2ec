/* Writes, reads and repairs shards.manifest. A data set may have 100,000 shards, and a JSON
 * library needs 6 microseconds per line, so the lines have one exact form that a scanner compares
 * token by token. Depends on base, meta. */
#include "data/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"

#define LINE_MAX_BYTES 4096

void manifest_add_counts(MetaSplit *split, const ManifestEntry *entry) {
  split->lines += entry->lines;
  split->pairs += entry->file.pairs;
  for (int side = 0; side < 2; side++) {
    split->tokens[side] += entry->tokens[side];
    split->text_bytes[side] += entry->text_bytes[side];
    if (entry->longest[side] > split->longest[side])
      split->longest[side] = entry->longest[side];
  }
  for (int v = 0; v < CLEAN_VERDICTS; v++) split->dropped[v] += entry->dropped[v];
}

void manifest_add_texts(Meta *meta, const ManifestEntry *entry) {
  manifest_add_counts(&meta->split[entry->split], entry);
  meta->classify->counts[entry->split].cut += entry->cut;
  meta->classify->counts[entry->split].empty += entry->empty;
}

/* ---- printing ---- */

static void print_counts(Str *out, const char *key, const uint64_t *value, int n) {
  str_addf(out, ",\"%s\":[", key);
  for (int i = 0; i < n; i++) str_addf(out, "%s%" PRIu64, i ? "," : "", value[i]);
  str_addc(out, ']');
}

void manifest_print(const ManifestEntry *e, Str *out) {
  str_addf(out, "{\"file\":\"%s\",\"split\":\"%s\"", e->file.name, split_name[e->split]);
  str_addf(out, ",\"lines\":%" PRIu64 ",\"pairs\":%" PRIu64, e->lines, e->file.pairs);
  print_counts(out, "tokens", e->tokens, 2);
  print_counts(out, "longest", e->longest, 2);
  print_counts(out, "text_bytes", e->text_bytes, 2);
  print_counts(out, "dropped", e->dropped + CLEAN_KEEP + 1, CLEAN_VERDICTS - CLEAN_KEEP - 1);
  str_addf(out, ",\"bytes\":%" PRIu64 ",\"sha256\":\"%s\"", e->file.bytes, e->file.sha256);
  if (e->has_texts) str_addf(out, ",\"cut\":%" PRIu64 ",\"empty\":%" PRIu64, e->cut, e->empty);
  str_add(out, "}\n");
}

static Err write_all(int fd, const char *bytes, size_t len, const char *path) {
  while (len) {
    ssize_t n = write(fd, bytes, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return err_errno("cannot write", path);
    bytes += n;
    len -= (size_t)n;
  }
  return ERR_OK;
}

static Err sync_file(int fd, const char *path) {
  fault_point("file");
  return fsync(fd) != 0 && errno != EINVAL ? err_errno("cannot sync", path) : ERR_OK;
}

/* Appends a line. After an error the file is truncated to whole lines, so that the next append
 * does not continue an incomplete line. */
static Err append_line(int fd, const Str *line, const char *path) {
  off_t before = lseek(fd, 0, SEEK_END);
  if (before < 0) return err_errno("cannot write", path);
  fault_point("file");
  Err err = write_all(fd, line->s, line->len, path);
  fault_point("manifest-append");
  if (!err) err = sync_file(fd, path);
  if (err && ftruncate(fd, before) != 0)
    log_warn("cannot remove an incomplete line at the end of %s; remove it before --resume",
             path);
  return err;
}

Err manifest_append(const char *path, const ManifestEntry *entry) {
  Str line = {0};
  manifest_print(entry, &line);
  Err err = str_check(&line);
  int fd = -1;
  if (!err) {
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    err = fd < 0 ? err_errno("cannot create", path) : append_line(fd, &line, path);
  }
  if (fd >= 0) close(fd);
  str_free(&line);
  return err;
}

/* ---- scanning ----
 * Each function moves s->at past the expected text and returns true, or returns false. */

typedef struct {
  const char *at;
  const char *end;
} Scan;

static bool scan_text(Scan *s, const char *text) {
  size_t len = strlen(text);
  if ((size_t)(s->end - s->at) < len || memcmp(s->at, text, len) != 0) return false;
  s->at += len;
  return true;
}

static bool scan_count(Scan *s, uint64_t *value) {
  const char *begin = s->at;
  *value = 0;
  for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
    uint64_t digit = (uint64_t)(*s->at - '0');
    if (*value > ((uint64_t)INT64_MAX - digit) / 10) return false;
    *value = *value * 10 + digit;
  }
  return s->at > begin && (*begin != '0' || s->at == begin + 1);
}

/* Copies characters up to a quotation mark, which is consumed. The characters must be printable;
 * quotes and backslashes are not allowed. */
static bool scan_string(Scan *s, char *out, size_t room) {
  size_t n = 0;
  for (; s->at < s->end && *s->at != '"'; s->at++) {
    if (*s->at < '!' || *s->at > '~' || *s->at == '\\' || n + 1 >= room) return false;
    out[n++] = *s->at;
  }
  out[n] = '\0';
  return scan_text(s, "\"");
}

static bool scan_counts(Scan *s, const char *key, uint64_t *value, int n) {
  if (!scan_text(s, key)) return false;
  for (int i = 0; i < n; i++) {
    if (!scan_text(s, i ? "," : "[") || !scan_count(s, &value[i])) return false;
  }
  return scan_text(s, "]");
}

/* Reads the numbers of dropped pairs by reason. A later version may append reasons; their numbers
 * are skipped, and `lines` minus `pairs` is still the total. */
static bool scan_dropped(Scan *s, uint64_t *dropped) {
  uint64_t unknown;
  if (!scan_text(s, ",\"dropped\":")) return false;
  for (int v = CLEAN_KEEP + 1; v < CLEAN_VERDICTS; v++) {
    if (!scan_text(s, v == CLEAN_KEEP + 1 ? "[" : ",") || !scan_count(s, &dropped[v]))
      return false;
  }
  while (scan_text(s, ",")) {
    if (!scan_count(s, &unknown)) return false;
  }
  return scan_text(s, "]");
}

static bool scan_split(Scan *s, Split *split) {
  char name[8];
  if (!scan_text(s, ",\"split\":\"") || !scan_string(s, name, sizeof name)) return false;
  for (int i = 0; i < SPLITS; i++) {
    *split = (Split)i;
    if (strcmp(name, split_name[i]) == 0) return true;
  }
  return false;
}

static bool scan_file(Scan *s, MetaFile *f) {
  return scan_text(s, "{\"file\":\"") && scan_string(s, f->name, sizeof f->name) &&
         f->name[0] && f->name[0] != '.' && !strchr(f->name, '/');
}

static bool scan_hash(Scan *s, char sha256[65]) {
  return scan_text(s, ",\"sha256\":\"") && scan_string(s, sha256, 65) &&
         strspn(sha256, "0123456789abcdef") == 64;
}

/* Reads the counts that only shards of texts have. */
static bool scan_texts(Scan *s, ManifestEntry *e) {
  e->has_texts = scan_text(s, ",\"cut\":");
  return !e->has_texts ||
         (scan_count(s, &e->cut) && scan_text(s, ",\"empty\":") && scan_count(s, &e->empty));
}

/* Parses a line without its line break. Later versions may append keys, which are ignored. */
static bool scan_entry(Scan *s, ManifestEntry *e) {
  *e = (ManifestEntry){0};
  return scan_file(s, &e->file) && scan_split(s, &e->split) && scan_text(s, ",\"lines\":") &&
         scan_count(s, &e->lines) && scan_text(s, ",\"pairs\":") &&
         scan_count(s, &e->file.pairs) && e->file.pairs > 0 &&
         scan_counts(s, ",\"tokens\":", e->tokens, 2) &&
         scan_counts(s, ",\"longest\":", e->longest, 2) &&
         scan_counts(s, ",\"text_bytes\":", e->text_bytes, 2) && scan_dropped(s, e->dropped) &&
         scan_text(s, ",\"bytes\":") && scan_count(s, &e->file.bytes) &&
         scan_hash(s, e->file.sha256) && scan_texts(s, e) && s->end > s->at &&
         s->end[-1] == '}' && (*s->at == ',' || s->at + 1 == s->end);
}

Err manifest_parse(const char *text, size_t len, const char *where, ManifestEnd *end,
                   ManifestTake take, void *context) {
  *end = (ManifestEnd){0};
  for (size_t number = 1; end->bytes < len; number++) {
    size_t rest = len - end->bytes;
    const char *line = text + end->bytes;
    const char *line_end = memchr(line, '\n', rest < LINE_MAX_BYTES ? rest : LINE_MAX_BYTES);
    ManifestEntry entry;
    Scan scan = {line, line_end};
    if (!line_end || !scan_entry(&scan, &entry)) {
      end->is_damaged = true;
      return err_set(ERR_WORK,
                     "%s:%zu does not describe a shard: unexpected text at byte %zu of the "
                     "file; prepare the data set again",
                     where, number, (size_t)(scan.at - text));
    }
    TRY(take(context, &entry));
    end->bytes = (size_t)(line_end + 1 - text);
  }
  return ERR_OK;
}

static int compare_names(const void *a, const void *b) {
  return strcmp((*(const MetaFile *const *)a)->name, (*(const MetaFile *const *)b)->name);
}

/* Fails if a shard is listed twice: an epoch would read it twice. */
static Err check_names(const char *path, const Meta *meta) {
  size_t files = 0;
  for (int s = 0; s < SPLITS; s++) files += meta->split[s].shards;
  const MetaFile **list;
  TRY(mem_alloc(&list, files, sizeof *list));
  size_t n = 0;
  for (int s = 0; s < SPLITS; s++) {
    for (size_t i = 0; i < meta->split[s].shards; i++) list[n++] = &meta->split[s].shard[i];
  }
  qsort(list, n, sizeof *list, compare_names);
  Err err = ERR_OK;
  for (size_t i = 1; i < n && !err; i++) {
    if (strcmp(list[i]->name, list[i - 1]->name) == 0)
      err = err_set(ERR_WORK, "%s is damaged: it lists %s twice; prepare the data set again",
                    path, list[i]->name);
  }
  mem_free(list);
  return err;
}

/* ---- loading ---- */

typedef struct {
  Meta *meta;
  bool has_counts;    /* Adds the counts of training shards to the split. */
  bool is_train_only; /* Ends at the first shard that is not a training shard. */
  bool is_over;       /* is_train_only, and there is such a shard */
} Loading;

static Err take_entry(void *context, const ManifestEntry *e) {
  Loading *l = context;
  MetaSplit *split = &l->meta->split[e->split];
  l->is_over = l->is_train_only && e->split != SPLIT_TRAIN;
  if (l->is_over) return ERR_STOPPED;
  TRY(meta_add_shard(split, &e->file));
  if (!l->has_counts || e->split != SPLIT_TRAIN) return ERR_OK;
  if (l->meta->classify)
    manifest_add_texts(l->meta, e);
  else
    manifest_add_counts(split, e);
  return ERR_OK;
}

static Err check_hash(const PlacePin *map, const MetaFile *expected) {
  if (map->size != expected->bytes)
    return err_set(ERR_WORK,
                   "%s is damaged: it has %zu bytes where dataset.json has %" PRIu64
                   "; prepare the data set again",
                   map->path, map->size, expected->bytes);
  char hex[65];
  Sha256 sha;
  sha256_begin(&sha);
  sha256_add(&sha, map->bytes, map->size);
  sha256_end(&sha, hex);
  if (strcmp(hex, expected->sha256) == 0) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s is damaged: its SHA-256 is %.12s… where dataset.json has %.12s…; prepare "
                 "the data set again",
                 map->path, hex, expected->sha256);
}

Err manifest_load(const char *path, Meta *meta) {
  PlacePin map;
  ManifestEnd end;
  Loading loading = {.meta = meta};
  TRY(place_pin_file(&map, path));
  Err err = check_hash(&map, &meta->manifest);
  if (!err)
    err = manifest_parse((const char *)map.bytes, map.size, path, &end, take_entry, &loading);
  place_unpin(&map);
  return err ? err : check_names(path, meta);
}

/* Truncates the file after its last whole line. */
static Err remove_rest(const char *path, size_t whole) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return err_errno("cannot write", path);
  fault_point("file");
  Err err = ftruncate(fd, (off_t)whole) != 0 ? err_errno("cannot write", path) : ERR_OK;
  if (!err) err = sync_file(fd, path);
  close(fd);
  return err;
}

/* Returns true if the bytes after offset `whole` are a single line, complete or not. A crash can
 * leave such a line; it cannot damage earlier lines, which were synced. */
static bool is_last_line(const PlacePin *map, size_t whole) {
  const void *end = memchr(map->bytes + whole, '\n', map->size - whole);
  return !end || (const uint8_t *)end + 1 == map->bytes + map->size;
}

/* Reads the entries, and removes what a crash left behind them. */
static Err recover_entries(const char *path, Loading *l) {
  if (!place_exists(path)) return ERR_OK;
  PlacePin map;
  ManifestEnd end;
  TRY(place_pin_file(&map, path));
  Err err = manifest_parse((const char *)map.bytes, map.size, path, &end, take_entry, l);
  bool is_torn = end.is_damaged && is_last_line(&map, end.bytes);
  place_unpin(&map);
  if (is_torn) {
    log_info("%s: the last line is incomplete; its shard is written again", path);
  }
  if (is_torn || l->is_over) err = remove_rest(path, end.bytes);
  return err ? err : check_names(path, l->meta);
}

Err manifest_recover(const char *path, Meta *meta) {
  return recover_entries(path, &(Loading){.meta = meta, .has_counts = true});
}

Err manifest_recover_texts(const char *path, Meta *meta) {
  return recover_entries(path,
                         &(Loading){.meta = meta, .has_counts = true, .is_train_only = true});
}
