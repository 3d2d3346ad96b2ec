/* Reads zip archives whose members are stored without compression, as PyTorch writes them (also
 * zip64). The archive is mapped and its members are used in place. All bytes are untrusted. Depends
 * on base. */
#ifndef FORMAT_ZIP_H
#define FORMAT_ZIP_H

#include <stdint.h>

#include "base/place.h"

typedef struct {
  char *name;
  const uint8_t *bytes; /* contents, `size` bytes in the mapped file */
  uint64_t size;
  uint32_t crc; /* CRC-32 of the contents, as the archive states it */
} ZipMember;

typedef struct {
  PlacePin map;
  ZipMember *member; /* sorted by name */
  size_t members, cap;
} ZipFile;

/* Opens an archive and checks that every member lies within the file, is stored, is not encrypted
 * and has a name of its own. After an error there is nothing to close. */
NODISCARD Err zip_open(ZipFile *z, const char *path);
void zip_close(ZipFile *z);
/* Returns the member with this name, or NULL. */
const ZipMember *zip_find(const ZipFile *z, const char *name);
/* Compares the contents of a member with its checksum. */
NODISCARD Err zip_verify(const ZipFile *z, const ZipMember *m);

#endif
