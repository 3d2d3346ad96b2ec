/* Mutual proof of a shared key, and encryption with forward secrecy. Depends on key, mem,
 * libsodium. */
#include "launch/handshake.h"

#include <string.h>

#include "base/mem.h"

#ifdef HAVE_SODIUM

#include <sodium.h>

/* Includes the version of the protocol: peers with another version derive other keys. */
#define LABEL       "trireme channel 1"
#define KDF_CONTEXT "trireme1" /* must have crypto_kdf_CONTEXTBYTES bytes */

enum {
  POINT = crypto_scalarmult_BYTES,
  HEADER = crypto_secretstream_xchacha20poly1305_HEADERBYTES,
  PROOF = 32,
  HELLO_BYTES = POINT,
  CLIENT_BYTES = POINT + HEADER + PROOF,
  SERVER_BYTES = HEADER + PROOF,
};
_Static_assert((int)CLIENT_BYTES == (int)HANDSHAKE_MESSAGE_MAX, "the longest message");
_Static_assert(HANDSHAKE_RECORD_EXTRA == crypto_secretstream_xchacha20poly1305_ABYTES, "");
_Static_assert(KEY_BYTES >= crypto_generichash_KEYBYTES_MIN, "");
_Static_assert(KEY_BYTES <= crypto_generichash_KEYBYTES_MAX, "");
_Static_assert(sizeof KDF_CONTEXT - 1 == crypto_kdf_CONTEXTBYTES, "");

/* Numbers of the subkeys that crypto_kdf derives from M. */
typedef enum { CLIENT_PROOF = 1, SERVER_PROOF, CLIENT_RECORDS, SERVER_RECORDS } Derived;

typedef enum {
  SEND_HELLO,   /* server: first state */
  AWAIT_CLIENT, /* server: waits for the client's public key and proof */
  SEND_SERVER,  /* server: sends its own proof */
  AWAIT_HELLO,  /* client: first state */
  SEND_CLIENT,
  AWAIT_SERVER,
  PROVEN,
  FAILED,
} Phase;

struct Handshake {
  Phase phase;
  Key key;
  uint8_t secret[POINT]; /* ephemeral secret key; wiped when M has been computed */
  uint8_t server_point[POINT], client_point[POINT];
  uint8_t master[crypto_kdf_KEYBYTES]; /* M; wiped when both sides are authenticated */
  crypto_secretstream_xchacha20poly1305_state sent, received;
};

static void derive_key(const Handshake *h, Derived which, uint8_t out[32]) {
  crypto_kdf_derive_from_key(out, 32, which, KDF_CONTEXT, h->master);
}

/* Computes M. Returns false if the peer's public key is a point of low order, for which the
 * X25519 result does not depend on our secret. */
static bool mix_master(Handshake *h, const uint8_t peer[POINT]) {
  uint8_t shared[POINT];
  bool is_good = crypto_scalarmult(shared, h->secret, peer) == 0;
  crypto_generichash_state state;
  crypto_generichash_init(&state, h->key.bytes, KEY_BYTES, sizeof h->master);
  crypto_generichash_update(&state, (const uint8_t *)LABEL, sizeof LABEL);
  crypto_generichash_update(&state, h->server_point, POINT);
  crypto_generichash_update(&state, h->client_point, POINT);
  crypto_generichash_update(&state, shared, POINT);
  crypto_generichash_final(&state, h->master, sizeof h->master);
  sodium_memzero(shared, sizeof shared);
  sodium_memzero(&state, sizeof state);
  sodium_memzero(h->secret, sizeof h->secret);
  key_wipe(&h->key);
  return is_good;
}

static void compute_proof(const Handshake *h, Derived which, const uint8_t header[HEADER],
                          uint8_t proof[PROOF]) {
  uint8_t key[32];
  derive_key(h, which, key);
  crypto_generichash(proof, PROOF, header, HEADER, key, sizeof key);
  sodium_memzero(key, sizeof key);
}

Err handshake_check_available(void) {
  return sodium_init() < 0 ? err_set(ERR_WORK,
                                     "libsodium cannot be initialised: the kernel has no "
                                     "random numbers; check /dev/urandom")
                           : ERR_OK;
}

Err handshake_begin(Handshake **handshake, const Key *key, HandshakeRole role) {
  *handshake = NULL;
  TRY(handshake_check_available());
  Handshake *h;
  TRY(mem_alloc(&h, 1, sizeof *h));
  bool is_server = role == HANDSHAKE_SERVER;
  h->phase = is_server ? SEND_HELLO : AWAIT_HELLO;
  h->key = *key;
  randombytes_buf(h->secret, sizeof h->secret);
  crypto_scalarmult_base(is_server ? h->server_point : h->client_point, h->secret);
  *handshake = h;
  return ERR_OK;
}

void handshake_free(Handshake *h) {
  if (!h) return;
  sodium_memzero(h, sizeof *h);
  mem_free(h);
}

/* Writes header and proof, and starts our stream of encrypted records with that header. */
static void write_proof(Handshake *h, Derived proof, Derived records, uint8_t *out) {
  uint8_t key[32];
  derive_key(h, records, key);
  crypto_secretstream_xchacha20poly1305_init_push(&h->sent, out, key);
  sodium_memzero(key, sizeof key);
  compute_proof(h, proof, out, out + HEADER);
}

static bool check_proof(Handshake *h, Derived proof, Derived records, const uint8_t *message) {
  uint8_t key[32], expected[PROOF];
  compute_proof(h, proof, message, expected);
  bool is_good = crypto_verify_32(expected, message + HEADER) == 0;
  derive_key(h, records, key);
  is_good &= crypto_secretstream_xchacha20poly1305_init_pull(&h->received, message, key) == 0;
  sodium_memzero(key, sizeof key);
  sodium_memzero(expected, sizeof expected);
  return is_good;
}

size_t handshake_take_message(Handshake *h, uint8_t out[HANDSHAKE_MESSAGE_MAX]) {
  switch (h->phase) {
    case SEND_HELLO:
      memcpy(out, h->server_point, POINT);
      h->phase = AWAIT_CLIENT;
      return HELLO_BYTES;
    case SEND_CLIENT:
      memcpy(out, h->client_point, POINT);
      write_proof(h, CLIENT_PROOF, CLIENT_RECORDS, out + POINT);
      h->phase = AWAIT_SERVER;
      return CLIENT_BYTES;
    case SEND_SERVER:
      write_proof(h, SERVER_PROOF, SERVER_RECORDS, out);
      sodium_memzero(h->master, sizeof h->master);
      h->phase = PROVEN;
      return SERVER_BYTES;
    default:
      return 0;
  }
}

size_t handshake_expects(const Handshake *h) {
  switch (h->phase) {
    case AWAIT_CLIENT:
      return CLIENT_BYTES;
    case AWAIT_HELLO:
      return HELLO_BYTES;
    case AWAIT_SERVER:
      return SERVER_BYTES;
    default:
      return 0;
  }
}

bool handshake_is_done(const Handshake *h) {
  return h->phase == PROVEN;
}

bool handshake_awaits_proof(const Handshake *h) {
  return h->phase == AWAIT_SERVER;
}

Err handshake_read_message(Handshake *h, const uint8_t *message) {
  bool is_good = false;
  if (h->phase == AWAIT_CLIENT) {
    memcpy(h->client_point, message, POINT);
    is_good = mix_master(h, message);
    is_good &= check_proof(h, CLIENT_PROOF, CLIENT_RECORDS, message + POINT);
    h->phase = SEND_SERVER;
  } else if (h->phase == AWAIT_HELLO) {
    memcpy(h->server_point, message, POINT);
    is_good = mix_master(h, message);
    h->phase = SEND_CLIENT;
  } else if (h->phase == AWAIT_SERVER) {
    is_good = check_proof(h, SERVER_PROOF, SERVER_RECORDS, message);
    sodium_memzero(h->master, sizeof h->master);
    h->phase = PROVEN;
  }
  if (is_good) return ERR_OK;
  h->phase = FAILED;
  return err_set(
      ERR_WORK,
      "the peer did not prove that it knows the key; copy the same key file to all machines");
}

Err handshake_seal(Handshake *h, const uint8_t header[4], const uint8_t *plain, size_t len,
                   uint8_t *sealed) {
  if (h->phase != PROVEN)
    return err_set(ERR_WORK, "internal error: a record before the end of the handshake");
  crypto_secretstream_xchacha20poly1305_push(&h->sent, sealed, NULL, plain, len, header, 4, 0);
  return ERR_OK;
}

Err handshake_open(Handshake *h, const uint8_t header[4], const uint8_t *sealed, size_t len,
                   uint8_t *plain) {
  bool is_good = h->phase == PROVEN && len >= HANDSHAKE_RECORD_EXTRA &&
                 crypto_secretstream_xchacha20poly1305_pull(&h->received, plain, NULL, NULL,
                                                            sealed, len, header, 4) == 0;
  if (is_good) return ERR_OK;
  h->phase = FAILED;
  return err_set(ERR_WORK,
                 "an encrypted record was changed, repeated, left out or reordered in transit; "
                 "start the launch again");
}

#else

Err handshake_check_available(void) {
  return err_set(
      ERR_WORK,
      "encrypted connections between machines are not available: built without "
      "libsodium; install libsodium-dev and build again, or start the ranks through ssh "
      "(--hosts)");
}

Err handshake_begin(Handshake **h, const Key *key, HandshakeRole role) {
  (void)key;
  (void)role;
  *h = NULL;
  return handshake_check_available();
}

/* Without libsodium no Handshake exists, so the functions below are never called. */
void handshake_free(Handshake *h) {
  (void)h;
}

size_t handshake_take_message(Handshake *h, uint8_t out[HANDSHAKE_MESSAGE_MAX]) {
  (void)h;
  (void)out;
  return 0;
}

size_t handshake_expects(const Handshake *h) {
  (void)h;
  return 0;
}

bool handshake_is_done(const Handshake *h) {
  (void)h;
  return false;
}

bool handshake_awaits_proof(const Handshake *h) {
  (void)h;
  return false;
}

static Err refuse_call(void) {
  return err_set(ERR_WORK, "internal error: built without libsodium");
}

Err handshake_read_message(Handshake *h, const uint8_t *message) {
  (void)h;
  (void)message;
  return refuse_call();
}

Err handshake_seal(Handshake *h, const uint8_t header[4], const uint8_t *plain, size_t len,
                   uint8_t *sealed) {
  (void)h;
  (void)header;
  (void)plain;
  (void)len;
  (void)sealed;
  return refuse_call();
}

Err handshake_open(Handshake *h, const uint8_t header[4], const uint8_t *sealed, size_t len,
                   uint8_t *plain) {
  (void)h;
  (void)header;
  (void)sealed;
  (void)len;
  (void)plain;
  return refuse_call();
}

#endif
