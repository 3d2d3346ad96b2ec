/* Posts to rank 0 (comm/post.h) over a fake transport whose messages the test delivers. */
#include "comm/post.h"

#include "base/mem.h"
#include "support.h"

enum { RANKS = 4 };

/* The transport of the test: the last request of each kind, and whether it is complete. */
static struct {
  const void *sent;
  void *receive[RANKS];
  int sends, receives, abandoned;
  bool is_send_done;
  bool is_arrived[RANKS];
  bool is_broken;
  Post message[RANKS]; /* what arrives */
} wire;

static const char *fake_send(int to, int tag, const void *bytes, size_t n,
                             TransportRequest *q) {
  (void)tag;
  assert_int_equal(to, 0);
  assert_int_equal(n, sizeof(Post));
  if (wire.is_broken) return "the network is down";
  wire.sent = bytes;
  wire.sends++;
  q->handle = &wire.sent;
  return NULL;
}

static const char *fake_receive(int from, int tag, void *bytes, size_t n, TransportRequest *q) {
  (void)tag;
  assert_int_equal(n, sizeof(Post));
  if (wire.is_broken) return "the network is down";
  wire.receive[from] = bytes;
  wire.receives++;
  q->handle = &wire.receive[from];
  return NULL;
}

static const char *fake_test(TransportRequest *q, bool *is_done) {
  *is_done = q->handle == &wire.sent && wire.is_send_done;
  for (int r = 0; r < RANKS; r++) {
    if (q->handle != &wire.receive[r] || !wire.is_arrived[r]) continue;
    memcpy(wire.receive[r], &wire.message[r], sizeof wire.message[r]);
    wire.is_arrived[r] = false;
    *is_done = true;
  }
  return NULL;
}

static void fake_abandon(TransportRequest *q) {
  (void)q;
  wire.abandoned++;
}

static const Transport fake = {
    .send = fake_send, .recv = fake_receive, .test = fake_test, .abandon = fake_abandon};

/* Ranks 0 and 1 are on host a, 2 and 3 on host b. */
static Identity identity[RANKS];
static Group group;

static Posts *open_posts(int rank) {
  Posts *p;
  for (int r = 0; r < RANKS; r++) {
    identity[r] = (Identity){.machine = 1};
    identity[r].host[0] = r < 2 ? 'a' : 'b';
  }
  memset(&wire, 0, sizeof wire);
  group = (Group){.size = RANKS, .rank = rank, .transport = &fake, .identity = identity};
  group_count(&group);
  OK(post_open(&p, &group));
  return p;
}

static void arrive(int from, const char *text) {
  wire.message[from].bytes = (uint32_t)strlen(text);
  memcpy(wire.message[from].text, text, strlen(text));
  wire.is_arrived[from] = true;
}

static void test_post_is_sent_by_first_rank_of_other_host(void **state) {
  (void)state;
  Posts *p = open_posts(2);
  assert_true(post_add(p, "hello", 5));
  assert_true(post_is_sending(p));
  post_move(p);
  assert_int_equal(wire.sends, 1);
  const Post *sent = wire.sent;
  assert_int_equal(sent->bytes, 5);
  assert_memory_equal(sent->text, "hello", 5);
  wire.is_send_done = true;
  post_move(p);
  assert_false(post_is_sending(p));
  post_free(p);
}

static void test_post_of_other_ranks_is_dropped(void **state) {
  (void)state;
  static const int ranks[] = {0, 1, 3};
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
    Posts *p = open_posts(ranks[i]);
    assert_false(post_add(p, "hello", 5));
    assert_int_equal(post_dropped(p), 1);
    post_move(p);
    assert_int_equal(wire.sends, 0);
    post_free(p);
  }
}

static void test_post_too_long_is_dropped(void **state) {
  (void)state;
  static char text[POST_BYTES + 1];
  Posts *p = open_posts(2);
  assert_false(post_add(p, text, POST_BYTES + 1));
  assert_true(post_add(p, text, POST_BYTES));
  assert_int_equal(post_dropped(p), 1);
  post_free(p);
}

static void test_post_slow_network_drops_and_keeps_order(void **state) {
  (void)state;
  Posts *p = open_posts(2);
  int added = 0;
  post_add(p, "0", 1);
  post_move(p); /* the send of 0 stays pending */
  for (char c = '1'; c <= '9'; c++) added += post_add(p, &c, 1);
  assert_int_equal(added, POST_ROOM);
  assert_int_equal(post_dropped(p), 9 - POST_ROOM);
  wire.is_send_done = true;
  post_move(p);
  assert_memory_equal(((const Post *)wire.sent)->text, "1", 1);
  post_move(p);
  assert_memory_equal(((const Post *)wire.sent)->text, "2", 1);
  post_free(p);
}

static void test_post_arrives_at_rank_0(void **state) {
  (void)state;
  char bytes[POST_BYTES];
  size_t n;
  Posts *p = open_posts(0);
  assert_false(post_take(p, bytes, &n));
  post_move(p);
  assert_non_null(wire.receive[2]);
  assert_null(wire.receive[1]);
  assert_null(wire.receive[3]);
  arrive(2, "measured");
  post_move(p);
  assert_true(post_take(p, bytes, &n));
  assert_int_equal(n, 8);
  assert_memory_equal(bytes, "measured", 8);
  assert_false(post_take(p, bytes, &n));
  post_free(p);
}

static void test_post_slow_reader_loses_newest_and_receives_on(void **state) {
  (void)state;
  char bytes[POST_BYTES];
  size_t n;
  Posts *p = open_posts(0);
  post_move(p);
  for (char c = '0'; c <= '9'; c++) {
    char text[2] = {c, '\0'};
    arrive(2, text);
    post_move(p);
    assert_false(wire.is_arrived[2]); /* nothing stays in the transport */
  }
  assert_int_equal(post_dropped(p), 10 - POST_ROOM);
  for (int i = 0; i < POST_ROOM; i++) {
    assert_true(post_take(p, bytes, &n));
    assert_int_equal(bytes[0], '0' + i);
  }
  assert_false(post_take(p, bytes, &n));
  post_free(p);
}

static void test_post_with_wrong_length_is_dropped(void **state) {
  (void)state;
  char bytes[POST_BYTES];
  size_t n;
  Posts *p = open_posts(0);
  post_move(p);
  arrive(2, "x");
  wire.message[2].bytes = POST_BYTES + 1;
  post_move(p);
  assert_false(post_take(p, bytes, &n));
  assert_int_equal(post_dropped(p), 1);
  post_free(p);
}

static void test_post_broken_transport_loses_posts_only(void **state) {
  (void)state;
  Posts *sender = open_posts(2);
  wire.is_broken = true;
  post_add(sender, "x", 1);
  post_move(sender);
  assert_false(post_is_sending(sender));
  post_free(sender);
  Posts *reader = open_posts(0);
  wire.is_broken = true;
  post_move(reader);
  assert_int_equal(wire.receives, 0);
  post_cancel(reader);
  assert_int_equal(wire.abandoned, 0);
  post_free(reader);
}

static void test_post_cancel_ends_pending_requests(void **state) {
  (void)state;
  Posts *p = open_posts(2);
  post_add(p, "x", 1);
  post_move(p);
  post_cancel(p);
  assert_int_equal(wire.abandoned, 1);
  post_free(p);
  p = open_posts(0);
  post_move(p);
  post_cancel(p);
  assert_int_equal(wire.abandoned, 1);
  post_free(p);
}

static void test_post_open_out_of_memory_fails(void **state) {
  (void)state;
  post_free(open_posts(0)); /* makes the group */
  for (uint64_t n = 1; n <= 2; n++) {
    Posts *p;
    mem_fail_after(n);
    assert_int_equal(post_open(&p, &group), ERR_WORK);
    assert_null(p);
    mem_fail_after(0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_post_is_sent_by_first_rank_of_other_host),
      cmocka_unit_test(test_post_of_other_ranks_is_dropped),
      cmocka_unit_test(test_post_too_long_is_dropped),
      cmocka_unit_test(test_post_slow_network_drops_and_keeps_order),
      cmocka_unit_test(test_post_arrives_at_rank_0),
      cmocka_unit_test(test_post_slow_reader_loses_newest_and_receives_on),
      cmocka_unit_test(test_post_with_wrong_length_is_dropped),
      cmocka_unit_test(test_post_broken_transport_loses_posts_only),
      cmocka_unit_test(test_post_cancel_ends_pending_requests),
      cmocka_unit_test(test_post_open_out_of_memory_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
