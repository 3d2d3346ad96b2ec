/* Reads zip archives of stored members: the end record, the central directory, and of each local
 * header the two lengths that say where the contents begin. Depends on base. */
#include "format/zip.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/mem.h"

#define END_BYTES      22 /* end of central directory record, without its comment */
#define LOCATOR_BYTES  20 /* zip64 end of central directory locator */
#define END64_BYTES    56 /* zip64 end of central directory record */
#define ENTRY_BYTES    46 /* entry of the central directory, without name, extra and comment */
#define LOCAL_BYTES    30 /* local header, without name and extra */
#define COMMENT_MAX    65535
#define END_MARK       0x06054b50u
#define LOCATOR_MARK   0x07064b50u
#define END64_MARK     0x06064b50u
#define ENTRY_MARK     0x02014b50u
#define LOCAL_MARK     0x04034b50u
#define ZIP64_EXTRA    1
#define FLAG_ENCRYPTED 1
#define UNKNOWN32      0xffffffffu /* the value is in the zip64 extra field */
#define MEMBERS_MAX    ((uint64_t)1 << 20)

/* Position and extent of the central directory. */
typedef struct {
  uint64_t entries, bytes, offset;
} Directory;

static uint16_t get16(const uint8_t *p) {
  return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const uint8_t *p) {
  return (uint32_t)get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p) {
  return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32;
}

static Err report_damage(const ZipFile *z, const char *what, uint64_t offset) {
  return err_set(ERR_WORK,
                 "%s is not a usable zip archive: %s (byte %llu); copy the file again",
                 z->map.path, what, (unsigned long long)offset);
}

/* Finds the end record, which is followed only by its comment. */
static Err find_end(const ZipFile *z, uint64_t *offset) {
  *offset = 0;
  if (z->map.size < END_BYTES) return report_damage(z, "it is too short", 0);
  uint64_t last = z->map.size - END_BYTES;
  uint64_t first = last > COMMENT_MAX ? last - COMMENT_MAX : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    const uint8_t *p = z->map.bytes + at;
    if (get32(p) != END_MARK || get16(p + 20) != last - at) continue;
    *offset = at;
    return ERR_OK;
  }
  return report_damage(z, "it has no end record, so it is truncated or of another format",
                       z->map.size);
}

/* Reads the zip64 end record, if a locator precedes the end record. */
static Err read_end64(const ZipFile *z, uint64_t end, Directory *d) {
  if (end < LOCATOR_BYTES) return ERR_OK;
  const uint8_t *locator = z->map.bytes + end - LOCATOR_BYTES;
  if (get32(locator) != LOCATOR_MARK) return ERR_OK;
  uint64_t at = get64(locator + 8);
  if (at > end || end - at < END64_BYTES || get32(z->map.bytes + at) != END64_MARK)
    return report_damage(z, "its zip64 end record is not where it should be", end);
  const uint8_t *p = z->map.bytes + at;
  *d = (Directory){.entries = get64(p + 32), .bytes = get64(p + 40), .offset = get64(p + 48)};
  return ERR_OK;
}

static Err find_directory(const ZipFile *z, Directory *d) {
  uint64_t end;
  TRY(find_end(z, &end));
  const uint8_t *p = z->map.bytes + end;
  *d = (Directory){.entries = get16(p + 10), .bytes = get32(p + 12), .offset = get32(p + 16)};
  TRY(read_end64(z, end, d));
  if (d->offset > end || d->bytes > end - d->offset)
    return report_damage(z, "its directory lies outside the file", end);
  if (d->entries > MEMBERS_MAX) return report_damage(z, "it has too many members", end);
  return ERR_OK;
}

/* Replaces those of size, packed size and offset that do not fit into 32 bits by the 64-bit values
 * of the zip64 extra field, which has them in this order. */
static bool read_extra(const uint8_t *extra, size_t len, uint64_t value[3]) {
  while (len >= 4) {
    size_t id = get16(extra), bytes = get16(extra + 2);
    if (bytes > len - 4) return false;
    const uint8_t *p = extra + 4;
    extra += 4 + bytes;
    len -= 4 + bytes;
    if (id != ZIP64_EXTRA) continue;
    for (int i = 0; i < 3; i++) {
      if (value[i] != UNKNOWN32) continue;
      if (bytes < 8) return false;
      value[i] = get64(p);
      p += 8;
      bytes -= 8;
    }
  }
  return true;
}

/* Sets m->bytes: the contents follow the local header, its name and its extra field. `limit`: where
 * the central directory begins. */
static Err locate_contents(const ZipFile *z, ZipMember *m, uint64_t local, uint64_t limit) {
  if (local > limit || limit - local < LOCAL_BYTES || get32(z->map.bytes + local) != LOCAL_MARK)
    return report_damage(z, "a member is not where its directory says", local);
  const uint8_t *p = z->map.bytes + local;
  uint64_t skip = LOCAL_BYTES + (uint64_t)get16(p + 26) + get16(p + 28);
  if (skip > limit - local || m->size > limit - local - skip)
    return report_damage(z, "a member lies outside the file", local);
  m->bytes = p + skip;
  return ERR_OK;
}

static Err add_member(ZipFile *z, const uint8_t *p, size_t name, size_t extra,
                      const Directory *d) {
  uint64_t at = (uint64_t)(p - z->map.bytes);
  uint64_t value[3] = {get32(p + 24), get32(p + 20), get32(p + 42)};
  ZipMember m = {.crc = get32(p + 16)};
  if (!read_extra(p + ENTRY_BYTES + name, extra, value))
    return report_damage(z, "a member has a damaged extra field", at);
  if (get16(p + 8) & FLAG_ENCRYPTED) return report_damage(z, "a member is encrypted", at);
  if (get16(p + 10) != 0 || value[0] != value[1])
    return report_damage(z, "a member is compressed, while PyTorch stores members as they are",
                         at);
  m.size = value[0];
  TRY(locate_contents(z, &m, value[2], d->offset));
  if (memchr(p + ENTRY_BYTES, 0, name)) return report_damage(z, "a name has a NUL byte", at);
  TRY(mem_grow(&z->member, &z->cap, z->members + 1, sizeof *z->member));
  TRY(mem_dup(&m.name, (const char *)p + ENTRY_BYTES, name));
  z->member[z->members++] = m;
  return ERR_OK;
}

static int compare_names(const void *a, const void *b) {
  const ZipMember *x = a, *y = b;
  return strcmp(x->name, y->name);
}

static Err sort_members(ZipFile *z) {
  if (z->members) qsort(z->member, z->members, sizeof *z->member, compare_names);
  for (size_t i = 1; i < z->members; i++) {
    if (strcmp(z->member[i - 1].name, z->member[i].name) == 0)
      return report_damage(z, "two members have the same name", 0);
  }
  return ERR_OK;
}

static Err read_directory(ZipFile *z) {
  Directory d;
  TRY(find_directory(z, &d));
  const uint8_t *p = z->map.bytes + d.offset;
  uint64_t left = d.bytes;
  for (uint64_t i = 0; i < d.entries; i++) {
    uint64_t at = (uint64_t)(p - z->map.bytes);
    if (left < ENTRY_BYTES || get32(p) != ENTRY_MARK)
      return report_damage(z, "its directory is damaged", at);
    size_t name = get16(p + 28), extra = get16(p + 30);
    uint64_t bytes = (uint64_t)ENTRY_BYTES + name + extra + get16(p + 32);
    if (bytes > left) return report_damage(z, "its directory is damaged", at);
    TRY(add_member(z, p, name, extra, &d));
    p += bytes;
    left -= bytes;
  }
  return sort_members(z);
}

Err zip_open(ZipFile *z, const char *path) {
  *z = (ZipFile){0};
  TRY(place_pin_file(&z->map, path));
  Err err = read_directory(z);
  if (err) zip_close(z);
  return err;
}

void zip_close(ZipFile *z) {
  for (size_t i = 0; i < z->members; i++) mem_free(z->member[i].name);
  mem_free(z->member);
  place_unpin(&z->map);
  *z = (ZipFile){0};
}

const ZipMember *zip_find(const ZipFile *z, const char *name) {
  size_t low = 0, high = z->members;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(z->member[middle].name, name);
    if (order == 0) return &z->member[middle];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

Err zip_verify(const ZipFile *z, const ZipMember *m) {
  uint32_t crc = crc_add(0, m->bytes, (size_t)m->size);
  if (crc == m->crc) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s is damaged: the CRC-32 of its member %s is %08x, expected %08x; copy the "
      "file again (PyTorch writes no valid CRC-32 after "
      "torch.serialization.set_crc32_options(False): then save it again without that)",
      z->map.path, m->name, crc, m->crc);
}
