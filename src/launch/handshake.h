/* The handshake and the encryption of a secure channel, without any I/O: the caller sends and
 * receives the messages (channel_open_secure). Needs libsodium; built without it, handshake_begin
 * returns the error of handshake_check_available.
 *
 *   server -> client   Es                 Es, Ec: ephemeral X25519 public keys, 32 bytes
 *   client -> server   Ec, Hc, Pc         Hc, Hs: secretstream headers, 24 bytes
 *   server -> client   Hs, Ps             Pc, Ps: proofs, 32 bytes
 *
 *   M  = BLAKE2b(key = shared key, label | Es | Ec | X25519(own secret, other's public))
 *   Pc = BLAKE2b(key = KDF(M, 1), Hc)     Ps = BLAKE2b(key = KDF(M, 2), Hs)
 *   records of the client: secretstream (XChaCha20-Poly1305) with the key KDF(M, 3) and Hc,
 *   of the server: KDF(M, 4) and Hs.
 *
 * Every message has a fixed length, the greatest HANDSHAKE_MESSAGE_MAX, so a peer decides neither
 * how much is read nor how much memory is used. The server proves itself only after the client has.
 * docs/formats.md has the threat model. Depends on key, libsodium. */
#ifndef LAUNCH_HANDSHAKE_H
#define LAUNCH_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "launch/key.h"

enum {
  HANDSHAKE_MESSAGE_MAX = 88,
  HANDSHAKE_RECORD_EXTRA = 17, /* bytes that encryption adds to a record */
};

typedef enum { HANDSHAKE_CLIENT, HANDSHAKE_SERVER } HandshakeRole;
typedef struct Handshake Handshake;

/* Fails, naming the missing package, if the program was built without libsodium. */
NODISCARD Err handshake_check_available(void);
/* Starts a handshake; copies the key. */
NODISCARD Err handshake_begin(Handshake **h, const Key *key, HandshakeRole role);
void handshake_free(Handshake *h); /* wipes the secrets; accepts NULL */

/* Writes the next message to send to `out` and returns its length; 0 if there is none. */
size_t handshake_take_message(Handshake *h, uint8_t out[HANDSHAKE_MESSAGE_MAX]);
/* Returns the length of the message that the peer must send next; 0 if this side must send
 * first, or if the handshake is complete. */
size_t handshake_expects(const Handshake *h);
bool handshake_is_done(const Handshake *h); /* both sides have proved that they know the key */
/* Returns true if this is a client that has sent its proof and has not yet received the
 * server's. */
bool handshake_awaits_proof(const Handshake *h);
/* Checks the peer's next message, which has handshake_expects() bytes. After an error the
 * caller must close the connection without sending anything. */
NODISCARD Err handshake_read_message(Handshake *h, const uint8_t *message);

/* Encrypt and decrypt records after the peer is authenticated. Records must be opened in the
 * order in which they were sealed; a record that is missing, repeated or changed is an error.
 * `header` (4 bytes, sent in clear) is authenticated with the record. */
NODISCARD Err handshake_seal(Handshake *h, const uint8_t header[4], const uint8_t *plain,
                             size_t len, uint8_t *sealed);
NODISCARD Err handshake_open(Handshake *h, const uint8_t header[4], const uint8_t *sealed,
                             size_t len, uint8_t *plain);

#endif
