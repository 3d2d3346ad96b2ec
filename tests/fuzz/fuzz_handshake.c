/* Secure channels under attack. The first byte of the input selects what the rest is:
 *   0  bytes of a peer without the key, sent to a server;  1  the same, sent to a client.
 *      The peer must not be authenticated, and must receive at most one handshake message.
 *   2  changes by an attacker to what a client and a server with the same key send each other.
 *      The frames that arrive must be the first of those that were sent, in order.
 * Depends on launch/channel, libsodium. */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include "fuzz_file.h"
#include "launch/channel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef HAVE_SODIUM
#include <sodium.h>

enum { FRAMES = 6, WIRE_MAX = 8192 };
static const Key key = {{1, 2, 3}};

/* The same random numbers in every run make a finding reproducible. */
static uint64_t random_state;
static const char *name_random(void) {
  return "fuzz";
}
static uint32_t make_random(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 32);
}
static void fill_random(void *const out, const size_t len) {
  for (size_t i = 0; i < len; i++) ((uint8_t *)out)[i] = (uint8_t)make_random();
}
static randombytes_implementation fixed = {
    .implementation_name = name_random, .random = make_random, .buf = fill_random};

static Channel *open_side(HandshakeRole role, int *wire) {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  Channel *c;
  REQUIRE(channel_open_secure(&c, fds[0], &key, role, "fuzz") == ERR_OK);
  channel_limit_handshake(c, 3600);
  *wire = fds[1];
  return c;
}

static void attack_without_key(const uint8_t *data, size_t size, HandshakeRole role) {
  int wire;
  Channel *c = open_side(role, &wire);
  Err err = channel_advance(c);
  size_t piece = size ? 1 + data[0] : 1;
  for (size_t at = 0; at < size && !err; at += piece) {
    size_t n = size - at < piece ? size - at : piece;
    REQUIRE(write(wire, data + at, n) == (ssize_t)n);
    err = channel_advance(c);
  }
  for (int i = 0; i < 4 && !err; i++) err = channel_advance(c);
  REQUIRE(!channel_is_proven(c));
  uint8_t sent[WIRE_MAX];
  ssize_t got = read(wire, sent, sizeof sent);
  REQUIRE(got <= (role == HANDSHAKE_SERVER ? 32 : HANDSHAKE_MESSAGE_MAX));
  close(wire);
  channel_close(c);
}

/* One end of the connection, and the bytes that it has sent so far. */
typedef struct {
  Channel *channel;
  int wire, arrived; /* arrived: number of received frames */
  uint8_t sent[WIRE_MAX];
  size_t len, forwarded;
  Err err;
} Side;

/* Makes frame i, whose length and contents depend only on i. */
static size_t make_frame(int i, uint8_t *out) {
  size_t len = (size_t)(i * i * 7);
  memset(out, 'a' + i, len);
  return len;
}

static void work(Side *s) {
  if (s->err) return;
  s->err = channel_advance(s->channel);
  ssize_t n;
  while ((n = read(s->wire, s->sent + s->len, WIRE_MAX - s->len)) > 0) s->len += (size_t)n;
  uint8_t expected[WIRE_MAX];
  for (Frame f; channel_next(s->channel, &f); s->arrived++) {
    REQUIRE(s->arrived < FRAMES && f.type == 1 + s->arrived);
    REQUIRE(f.len == make_frame(s->arrived, expected));
    REQUIRE(f.len == 0 || memcmp(f.data, expected, f.len) == 0);
  }
}

static void forward(Side *to, const uint8_t *bytes, size_t len) {
  REQUIRE(len == 0 || write(to->wire, bytes, len) == (ssize_t)len);
}

/* One change by the attacker: three bytes select its kind and position. */
static void tamper(Side *from, Side *to, const uint8_t step[3]) {
  size_t fresh = from->len - from->forwarded, at = (size_t)step[1] << 8 | step[2];
  uint8_t *new_bytes = from->sent + from->forwarded;
  switch (step[0] >> 1 & 7) {
    case 0: /* change a bit */
      if (fresh) new_bytes[at % fresh] ^= (uint8_t)(1 << (step[0] >> 4 & 7));
      break;
    case 1: /* drop bytes */
      if (fresh) from->forwarded += at % fresh;
      break;
    case 2: /* replay bytes that were sent earlier */
      if (from->len) forward(to, from->sent + at % from->len, from->len - at % from->len);
      break;
    case 3: /* send the receiver's own bytes back to it */
      if (to->len) forward(to, to->sent + at % to->len, to->len - at % to->len);
      break;
    case 4: /* insert */
      forward(to, step, 3);
      break;
    case 5: /* forward only a part */
      if (fresh) {
        forward(to, new_bytes, at % fresh);
        from->forwarded += at % fresh;
      }
      return;
    default: /* forward without a change */
      break;
  }
  forward(to, from->sent + from->forwarded, from->len - from->forwarded);
  from->forwarded = from->len;
}

static void attack_on_the_wire(const uint8_t *data, size_t size) {
  static Side side[2];
  memset(side, 0, sizeof side);
  for (int i = 0; i < 2; i++) {
    side[i].channel = open_side(i ? HANDSHAKE_SERVER : HANDSHAKE_CLIENT, &side[i].wire);
    uint8_t frame[WIRE_MAX];
    for (int k = 0; k < FRAMES; k++) {
      size_t len = make_frame(k, frame);
      REQUIRE(channel_send(side[i].channel, (uint8_t)(1 + k), frame, len) == ERR_OK);
    }
  }
  static const uint8_t honest[3] = {15, 0, 0};
  for (size_t step = 0; step < 12; step++) {
    work(&side[0]);
    work(&side[1]);
    const uint8_t *what = 3 * step + 3 <= size ? data + 3 * step : honest;
    int from = what[0] & 1;
    tamper(&side[from], &side[!from], what);
    if (what == honest) tamper(&side[!from], &side[from], honest);
  }
  work(&side[0]);
  work(&side[1]);
  for (int i = 0; i < 2; i++) {
    if (size == 0) REQUIRE(side[i].arrived == FRAMES && !side[i].err);
    if (side[i].arrived) REQUIRE(channel_is_proven(side[i].channel) || side[i].err);
    channel_close(side[i].channel);
    close(side[i].wire);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static bool is_ready;
  if (!is_ready) {
    REQUIRE(randombytes_set_implementation(&fixed) == 0 && sodium_init() >= 0);
    signal(SIGPIPE, SIG_IGN);
    is_ready = true;
  }
  random_state = 1;
  if (size < 1) return 0;
  if (data[0] % 3 == 2)
    attack_on_the_wire(data + 1, size - 1);
  else
    attack_without_key(data + 1, size - 1, data[0] % 3 ? HANDSHAKE_CLIENT : HANDSHAKE_SERVER);
  return 0;
}

#else

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  (void)data;
  (void)size;
  return 0;
}

#endif
