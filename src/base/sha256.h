/* SHA-256 (FIPS 180-4), for the files listed in dataset.json and for downloads. Depends on
 * libcrypto if it is available. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* State of a SHA-256 computation. May be copied by assignment; the copy continues
 * independently. */
typedef union {
  struct {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
  };
  uint64_t libcrypto[14]; /* memory for the SHA256_CTX of libcrypto */
} Sha256;

void sha256_begin(Sha256 *sha);
void sha256_add(Sha256 *sha, const void *bytes, size_t len);
/* Writes the hash as 64 hexadecimal digits and a NUL. */
void sha256_end(Sha256 *sha, char hex[65]);

#endif
