/* Writes zip archives of stored members, for tests and fuzzers of the readers. Depends on
 * base/str, base/crc. */
#ifndef TESTS_ZIP_SUPPORT_H
#define TESTS_ZIP_SUPPORT_H

#include <stdint.h>
#include <string.h>

#include "base/crc.h"
#include "base/str.h"

typedef struct {
  const char *name;
  const void *bytes;
  size_t size;
} ZipPart;

static inline void zip_put(Str *out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) str_addc(out, (char)(value >> (8 * i) & 255));
}

/* Appends the fields that local header and directory entry have in common. */
static inline void zip_put_facts(Str *out, const ZipPart *p) {
  zip_put(out, 0, 2); /* flags */
  zip_put(out, 0, 2); /* method: stored */
  zip_put(out, 0, 4); /* time */
  zip_put(out, crc_add(0, p->bytes, p->size), 4);
  zip_put(out, p->size, 4);
  zip_put(out, p->size, 4);
  zip_put(out, strlen(p->name), 2);
  zip_put(out, 0, 2); /* extra */
}

static inline void zip_put_entry(Str *out, const ZipPart *p, size_t offset) {
  zip_put(out, 0x02014b50, 4);
  zip_put(out, 20, 2);
  zip_put(out, 20, 2);
  zip_put_facts(out, p);
  zip_put(out, 0, 2 + 2 + 2); /* comment, disk, attributes */
  zip_put(out, 0, 4);
  zip_put(out, offset, 4);
  str_add(out, p->name);
}

/* Appends an archive of at most 8 members. */
static inline void zip_build(Str *out, const ZipPart *part, size_t n) {
  size_t offset[8], begin;
  for (size_t i = 0; i < n; i++) {
    offset[i] = out->len;
    zip_put(out, 0x04034b50, 4);
    zip_put(out, 20, 2);
    zip_put_facts(out, &part[i]);
    str_add(out, part[i].name);
    str_addn(out, part[i].bytes, part[i].size);
  }
  begin = out->len;
  for (size_t i = 0; i < n; i++) zip_put_entry(out, &part[i], offset[i]);
  size_t bytes = out->len - begin;
  zip_put(out, 0x06054b50, 4);
  zip_put(out, 0, 4); /* disks */
  zip_put(out, n, 2);
  zip_put(out, n, 2);
  zip_put(out, bytes, 4);
  zip_put(out, begin, 4);
  zip_put(out, 0, 2);
}

#endif
