/* In-memory copies on a second machine: the head (launch/supervisor_peer.c), with the test as
 * the agents. */
#include <sys/socket.h>
#include <unistd.h>

#include "launch/peer.h"
#include "launch/supervisor_internal.h"
#include "support.h"

#define MACHINES 3

typedef struct {
  Supervisor s;
  Machine machine[MACHINES];
  Channel *agent[MACHINES]; /* the agents' ends of the channels */
} Head;

static void open_head(Head *h, int members) {
  *h = (Head){0};
  h->s.machine = h->machine;
  h->s.machines = MACHINES;
  OK(console_open(&h->s.console, &(ConsoleSpec){.log_dir = scratch, .is_quiet = true}));
  for (int i = 0; i < MACHINES; i++) {
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    OK(channel_open(&h->machine[i].channel, ends[0], ends[0], "agent"));
    OK(channel_open(&h->agent[i], ends[1], ends[1], "head"));
    snprintf(h->machine[i].name, sizeof h->machine[i].name, "host%d", i);
    h->machine[i].is_member = i < members;
  }
}

static void close_head(Head *h) {
  for (int i = 0; i < MACHINES; i++) {
    channel_close(h->machine[i].channel);
    channel_close(h->agent[i]);
  }
  OK(console_close(h->s.console));
}

static void note_copy(Head *h, int i, const char *dir) {
  json_t *event = json_pack("{s:s, s:i, s:s}", "event", "copy", "step", 6, "dir", dir);
  supervisor_note_copy(&h->s, &h->machine[i], event);
  json_decref(event);
}

/* Returns the next frame for agent i; false if there is none. */
static bool receive(Head *h, int i, Frame *f) {
  for (int turn = 0; turn < 3; turn++) {
    OK(channel_advance(h->machine[i].channel));
    OK(channel_advance(h->agent[i]));
    if (channel_next(h->agent[i], f)) return true;
  }
  return false;
}

/* Expects a message of this type for agent i and returns the id in it. */
static uint32_t expect(Head *h, int i, uint8_t type) {
  Frame f;
  json_t *body;
  assert_true(receive(h, i, &f));
  assert_int_equal(f.type, type);
  OK(protocol_parse(&f, "head", &body));
  uint32_t id = (uint32_t)protocol_int(body, "id", 0);
  json_decref(body);
  return id;
}

static int count_messages(Head *h, int i, uint8_t type) {
  Frame f;
  int count = 0;
  while (receive(h, i, &f)) {
    assert_int_equal(f.type, type);
    count++;
  }
  return count;
}

static void pass_part(Head *h, int i, uint32_t id, uint8_t kind, size_t len) {
  static uint8_t part[PEER_HEADER + PEER_BYTES];
  memset(part, 0, PEER_HEADER);
  part[0] = (uint8_t)id;
  part[4] = kind;
  Frame f = {.type = PEER_PART, .data = part, .len = PEER_HEADER + len};
  supervisor_pass_part(&h->s, &h->machine[i], &f);
}

static void answer(Head *h, int i, uint8_t type, uint32_t id) {
  json_t *body = json_pack("{s:I, s:s}", "id", (json_int_t)id, "text", "full");
  supervisor_handle_peer(&h->s, &h->machine[i], type, body);
  json_decref(body);
}

static void test_relay_copy_goes_to_the_next_member(void **state) {
  (void)state;
  Head h;
  Frame f;
  open_head(&h, MACHINES);
  note_copy(&h, 1, "/m/run-1");
  uint32_t id = expect(&h, 1, PEER_SEND);
  assert_true(id > 0);
  assert_int_equal(count_messages(&h, 1, PEER_READ), 4);
  pass_part(&h, 1, id, PART_FILE, 20);
  assert_true(receive(&h, 2, &f));
  assert_int_equal(f.type, PEER_PART);
  assert_int_equal(f.len, PEER_HEADER + 20);
  /* One part arrived, so one more is requested. */
  assert_int_equal(count_messages(&h, 1, PEER_READ), 1);
  pass_part(&h, 1, id, PART_END, 12);
  assert_int_equal(count_messages(&h, 1, PEER_READ), 0);
  assert_int_equal(h.machine[2].copy, 0);
  answer(&h, 2, PEER_STORED, id);
  assert_int_equal(h.machine[2].copy, h.machine[1].copy);
  assert_int_equal(count_messages(&h, 0, PEER_PART), 0);
  close_head(&h);
}

static void test_relay_one_machine_keeps_its_copy_alone(void **state) {
  (void)state;
  Head h;
  open_head(&h, 1);
  note_copy(&h, 0, "/m/run-1");
  assert_int_equal(count_messages(&h, 0, PEER_SEND), 0);
  assert_int_equal(h.machine[0].copy, 1);
  close_head(&h);
}

static void test_relay_newest_copy_follows_the_one_under_way(void **state) {
  (void)state;
  Head h;
  open_head(&h, MACHINES);
  note_copy(&h, 0, "/m/run-1");
  uint32_t first = expect(&h, 0, PEER_SEND);
  count_messages(&h, 0, PEER_READ);
  note_copy(&h, 0, "/m/run-1");
  note_copy(&h, 0, "/m/run-1");
  assert_int_equal(count_messages(&h, 0, PEER_SEND), 0);
  pass_part(&h, 0, first, PART_END, 12);
  answer(&h, 1, PEER_STORED, first);
  assert_int_equal(h.machine[1].copy, 1);
  uint32_t second = expect(&h, 0, PEER_SEND);
  assert_true(second != first);
  count_messages(&h, 0, PEER_READ);
  answer(&h, 1, PEER_STORED, first); /* a late answer about the previous transfer */
  assert_int_equal(h.machine[1].copy, 1);
  answer(&h, 1, PEER_STORED, second);
  assert_int_equal(h.machine[1].copy, 3);
  assert_int_equal(count_messages(&h, 0, PEER_SEND), 0);
  close_head(&h);
}

static void test_relay_slow_receiver_is_not_sent_more(void **state) {
  (void)state;
  Head h;
  open_head(&h, MACHINES);
  note_copy(&h, 0, "/m/run-1");
  uint32_t id = expect(&h, 0, PEER_SEND);
  int asked = count_messages(&h, 0, PEER_READ), passed = 0;
  while (asked > 0 && passed < 100) {
    pass_part(&h, 0, id, PART_BYTES, PEER_BYTES); /* the receiver does not read */
    passed++;
    asked += count_messages(&h, 0, PEER_READ) - 1;
  }
  assert_int_equal(asked, 0);
  assert_true(passed < 20);
  assert_true(channel_unsent(h.machine[1].channel) < (size_t)4 << 20);
  Frame f;
  while (receive(&h, 1, &f)) {}
  supervisor_continue_copy(&h.s);
  assert_int_equal(count_messages(&h, 0, PEER_READ), 4);
  close_head(&h);
}

static void test_relay_failure_ends_the_copy_and_the_next_is_tried(void **state) {
  (void)state;
  Head h;
  open_head(&h, MACHINES);
  note_copy(&h, 0, "/m/run-1");
  uint32_t id = expect(&h, 0, PEER_SEND);
  count_messages(&h, 0, PEER_READ);
  /* A failure reported by a machine that does not take part in the transfer. */
  answer(&h, 2, PEER_FAILED, id);
  assert_int_equal(h.s.peer.id, id);
  answer(&h, 1, PEER_FAILED, id);
  assert_int_equal(h.machine[1].copy, 0);
  pass_part(&h, 0, id, PART_BYTES, 100); /* a part that was already requested */
  assert_int_equal(count_messages(&h, 1, PEER_PART), 0);
  note_copy(&h, 0, "/m/run-1");
  assert_true(expect(&h, 0, PEER_SEND) != id);
  close_head(&h);
}

static void test_relay_lost_receiver_is_replaced(void **state) {
  (void)state;
  Head h;
  open_head(&h, MACHINES);
  note_copy(&h, 0, "/m/run-1");
  uint32_t id = expect(&h, 0, PEER_SEND);
  count_messages(&h, 0, PEER_READ);
  note_copy(&h, 0, "/m/run-1");
  h.machine[1].is_member = false;
  supervisor_forget_copy(&h.s, h.machine[1].channel);
  uint32_t second = expect(&h, 0, PEER_SEND);
  assert_true(second != id);
  count_messages(&h, 0, PEER_READ);
  pass_part(&h, 0, second, PART_END, 12);
  assert_int_equal(count_messages(&h, 2, PEER_PART), 1);
  close_head(&h);
}

static void test_relay_lost_holder_ends_the_copy(void **state) {
  (void)state;
  Head h;
  open_head(&h, MACHINES);
  note_copy(&h, 0, "/m/run-1");
  note_copy(&h, 0, "/m/run-1");
  supervisor_forget_copy(&h.s, h.machine[0].channel);
  assert_int_equal(h.s.peer.id, 0);
  assert_null(h.s.peer.next_from);
  close_head(&h);
}

/* Queues frames of type 1 for agent i until the queue is full. */
static void fill_queue(Head *h, int i) {
  static uint8_t frame[CHANNEL_FRAME_MAX];
  while (channel_send(h->machine[i].channel, 1, frame, sizeof frame) == ERR_OK) {}
  while (channel_send(h->machine[i].channel, 1, frame, 1) == ERR_OK) {}
}

/* Lets agent i read the frames of fill_queue; returns the number of other frames. */
static int empty_queue(Head *h, int i) {
  int others = 0;
  while (channel_unsent(h->machine[i].channel)) {
    OK(channel_advance(h->machine[i].channel));
    OK(channel_advance(h->agent[i]));
    for (Frame f; channel_next(h->agent[i], &f);) others += f.type != 1;
  }
  return others;
}

static void test_relay_request_that_could_not_be_sent_is_repeated(void **state) {
  (void)state;
  Head h;
  open_head(&h, MACHINES);
  note_copy(&h, 0, "/m/run-1");
  uint32_t id = expect(&h, 0, PEER_SEND);
  assert_int_equal(count_messages(&h, 0, PEER_READ), 4);
  fill_queue(&h, 0);
  for (int part = 0; part < 4; part++) pass_part(&h, 0, id, PART_BYTES, 20);
  assert_int_equal(empty_queue(&h, 0), 0);
  supervisor_continue_copy(&h.s);
  assert_int_equal(count_messages(&h, 0, PEER_READ), 4);
  close_head(&h);
}

static void test_relay_copy_that_could_not_begin_does_not_block_the_next(void **state) {
  (void)state;
  Head h;
  open_head(&h, MACHINES);
  fill_queue(&h, 0);
  note_copy(&h, 0, "/m/run-1");
  assert_int_equal(empty_queue(&h, 0), 0);
  note_copy(&h, 0, "/m/run-1");
  expect(&h, 0, PEER_SEND);
  assert_int_equal(count_messages(&h, 0, PEER_READ), 4);
  close_head(&h);
}

static void test_relay_parts_that_were_not_asked_for_are_dropped(void **state) {
  (void)state;
  Head h;
  open_head(&h, MACHINES);
  note_copy(&h, 0, "/m/run-1");
  uint32_t id = expect(&h, 0, PEER_SEND);
  assert_int_equal(count_messages(&h, 0, PEER_READ), 4);
  size_t len = PEER_BYTES;
  for (int part = 0; part < 40; part++) pass_part(&h, 0, id, PART_BYTES, len);
  assert_between(count_messages(&h, 1, PEER_PART), 4, 12);
  close_head(&h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_relay_copy_goes_to_the_next_member),
      cmocka_unit_test(test_relay_one_machine_keeps_its_copy_alone),
      cmocka_unit_test(test_relay_newest_copy_follows_the_one_under_way),
      cmocka_unit_test(test_relay_slow_receiver_is_not_sent_more),
      cmocka_unit_test(test_relay_failure_ends_the_copy_and_the_next_is_tried),
      cmocka_unit_test(test_relay_lost_receiver_is_replaced),
      cmocka_unit_test(test_relay_lost_holder_ends_the_copy),
      cmocka_unit_test(test_relay_request_that_could_not_be_sent_is_repeated),
      cmocka_unit_test(test_relay_copy_that_could_not_begin_does_not_block_the_next),
      cmocka_unit_test(test_relay_parts_that_were_not_asked_for_are_dropped),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
