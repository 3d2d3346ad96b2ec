/* Tests of launch/channel.h over Unix sockets and pipes: frames that arrive in parts, limits,
 * and peers that close, end or send nothing. Depends on launch/channel. */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support.h"

#include "base/mem.h"
#include "base/progress.h"
#include "launch/channel.h"

static Channel *open_with_peer(int *peer) {
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Channel *c;
  OK(channel_open(&c, fds[0], fds[0], "host b"));
  *peer = fds[1];
  return c;
}

static void open_both(Channel *both[2]) {
  int fd;
  both[0] = open_with_peer(&fd);
  OK(channel_open(&both[1], fd, fd, "host a"));
}

static void write_all(int fd, const void *bytes, size_t len) {
  assert_int_equal(write(fd, bytes, len), (ssize_t)len);
}

/* Advances until a frame or an error arrives. */
static Err await_frame(Channel *c, Frame *frame) {
  for (;;) {
    if (channel_next(c, frame)) return ERR_OK;
    struct pollfd fds[2];
    int count;
    channel_events(c, fds, &count);
    poll(fds, (nfds_t)count, channel_wait_ms(c));
    Err err = channel_advance(c);
    if (err) return channel_next(c, frame) ? ERR_OK : err;
  }
}

static void assert_frame(const Frame *f, uint8_t type, const void *data, size_t len) {
  assert_int_equal(f->type, type);
  assert_int_equal(f->len, len);
  assert_memory_equal(f->data, data, len);
}

static void test_channel_descriptors_are_not_inherited(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  struct pollfd fds[2];
  int count;
  channel_events(c, fds, &count);
  assert_int_equal(count, 1);
  assert_int_equal(fcntl(fds[0].fd, F_GETFD), FD_CLOEXEC);
  channel_close(c);
  close(peer);
}

static void test_channel_frames_arrive_in_order(void **state) {
  (void)state;
  Channel *both[2];
  open_both(both);
  OK(channel_send(both[0], 7, "first", 5));
  OK(channel_send(both[0], 255, NULL, 0));
  OK(channel_send(both[0], 1, "third", 5));
  OK(channel_advance(both[0]));
  assert_int_equal(channel_unsent(both[0]), 0);
  Frame f;
  OK(await_frame(both[1], &f));
  assert_frame(&f, 7, "first", 5);
  OK(await_frame(both[1], &f));
  assert_frame(&f, 255, "", 0);
  OK(await_frame(both[1], &f));
  assert_frame(&f, 1, "third", 5);
  assert_false(channel_next(both[1], &f));
  channel_close(both[0]);
  channel_close(both[1]);
}

static void test_channel_frame_split_into_bytes_arrives_whole(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  const uint8_t wire[] = {6, 0, 0, 0, 9, 's', 'p', 'l', 'i', 't'};
  Frame f;
  for (size_t i = 0; i < sizeof wire; i++) {
    assert_false(channel_next(c, &f));
    write_all(peer, wire + i, 1);
    OK(channel_advance(c));
  }
  assert_true(channel_next(c, &f));
  assert_frame(&f, 9, "split", 5);
  close(peer);
  channel_close(c);
}

static void test_channel_two_frames_in_one_write_are_separated(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  const uint8_t wire[] = {2, 0, 0, 0, 1, 'a', 3, 0, 0, 0, 2, 'b', 'c'};
  write_all(peer, wire, sizeof wire);
  OK(channel_advance(c));
  Frame f;
  assert_true(channel_next(c, &f));
  assert_frame(&f, 1, "a", 1);
  assert_true(channel_next(c, &f));
  assert_frame(&f, 2, "bc", 2);
  close(peer);
  channel_close(c);
}

/* Frames of many lengths up to the largest, in total more than the socket buffer holds. */
static void test_channel_frames_of_all_sizes_arrive_unchanged(void **state) {
  (void)state;
  enum { COUNT = 24 };
  Channel *both[2];
  open_both(both);
  uint8_t *bytes;
  OK(mem_alloc(&bytes, CHANNEL_FRAME_MAX, 1));
  for (size_t i = 0; i < CHANNEL_FRAME_MAX; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 13);
  for (int i = 0; i < COUNT; i++)
    OK(channel_send(both[0], (uint8_t)(1 + i), bytes,
                    i < 20 ? (size_t)1 << i : CHANNEL_FRAME_MAX));
  int arrived = 0;
  while (arrived < COUNT) {
    OK(channel_advance(both[0]));
    OK(channel_advance(both[1]));
    for (Frame f; channel_next(both[1], &f); arrived++)
      assert_frame(&f, (uint8_t)(1 + arrived), bytes,
                   arrived < 20 ? (size_t)1 << arrived : CHANNEL_FRAME_MAX);
  }
  assert_int_equal(channel_unsent(both[0]), 0);
  mem_free(bytes);
  channel_close(both[0]);
  channel_close(both[1]);
}

static void test_channel_oversize_frame_is_refused_before_memory_is_taken(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  const uint8_t first[] = {1, 0, 0, 0, 1};
  write_all(peer, first, sizeof first);
  /* Allocates the receive buffer, so that later growth can be measured. */
  OK(channel_advance(c));
  const uint8_t length[] = {2, 0, 16, 0}; /* length 0x100002: one more than allowed */
  write_all(peer, length, sizeof length);
  uint64_t before = mem_count();
  assert_int_equal(channel_advance(c), ERR_WORK);
  assert_int_equal(mem_count(), before);
  assert_says("host b sent a frame of 1048578 bytes, where 1 to 1048577 are possible");
  assert_int_equal(channel_advance(c), ERR_WORK); /* the error is permanent */
  assert_says("a frame of 1048578 bytes");
  assert_int_equal(channel_send(c, 1, "x", 1), ERR_WORK);
  assert_says("a frame of 1048578 bytes");
  close(peer);
  channel_close(c);
}

static void test_channel_frame_without_type_is_refused(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  write_all(peer, "\0\0\0\0", 4);
  assert_int_equal(channel_advance(c), ERR_WORK);
  assert_says("sent a frame of 0 bytes");
  close(peer);
  channel_close(c);
}

static void test_channel_unknown_control_frame_is_refused(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  write_all(peer, "\2\0\0\0\0\7", 6);
  assert_int_equal(channel_advance(c), ERR_WORK);
  assert_says("unknown control frame (1 bytes, first 7)");
  close(peer);
  channel_close(c);
}

static void test_channel_frames_before_a_bad_one_are_delivered(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  write_all(peer, "\2\0\0\0\1a\xff\xff\xff\xff", 10);
  assert_int_equal(channel_advance(c), ERR_WORK);
  Frame f;
  assert_true(channel_next(c, &f));
  assert_frame(&f, 1, "a", 1);
  assert_false(channel_next(c, &f));
  close(peer);
  channel_close(c);
}

static void test_channel_send_own_type_or_oversize_is_an_error(void **state) {
  (void)state;
  Channel *both[2];
  open_both(both);
  static uint8_t bytes[CHANNEL_FRAME_MAX + 1];
  assert_int_equal(channel_send(both[0], 0, "x", 1), ERR_WORK);
  assert_int_equal(channel_send(both[0], 1, bytes, sizeof bytes), ERR_WORK);
  assert_says("internal error: a frame of 1048577 bytes");
  assert_int_equal(channel_unsent(both[0]), 0);
  OK(channel_send(both[0], 1, "y", 1)); /* the channel works after a refused frame */
  OK(channel_advance(both[0]));
  Frame f;
  OK(await_frame(both[1], &f));
  assert_frame(&f, 1, "y", 1);
  channel_close(both[0]);
  channel_close(both[1]);
}

static void test_channel_queue_is_bounded_when_the_peer_does_not_read(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  static uint8_t bytes[CHANNEL_FRAME_MAX];
  Err err = ERR_OK;
  int sent = 0;
  while (!err && sent < 100) {
    err = channel_send(c, 1, bytes, sizeof bytes);
    if (!err) sent++;
  }
  assert_int_equal(err, ERR_WORK);
  assert_int_equal(sent, 63); /* 64 payloads of 1 MB with their headers would exceed 64 MB */
  assert_says("host b does not read: 66060603 bytes wait to be sent, the limit is 67108864");
  OK(channel_advance(c)); /* a full queue is not an error of the channel */
  assert_between(channel_unsent(c), 1, CHANNEL_QUEUE_MAX);
  OK(channel_send(c, 1, "small", 5));
  close(peer);
  channel_close(c);
}

/* The receiver stops reading when its buffer holds as much as the largest frame. */
static void test_channel_unread_frames_stop_the_reading(void **state) {
  (void)state;
  Channel *both[2];
  open_both(both);
  static uint8_t bytes[CHANNEL_FRAME_MAX / 4];
  for (int i = 0; i < 40; i++) OK(channel_send(both[0], 1, bytes, sizeof bytes));
  struct pollfd fds[2];
  int count = 1;
  for (int i = 0; i < 1000 && count > 0; i++) {
    OK(channel_advance(both[0]));
    OK(channel_advance(both[1]));
    channel_events(both[1], fds, &count);
  }
  assert_int_equal(count, 0);
  assert_true(channel_unsent(both[0]) > 20 * sizeof bytes);
  Frame f;
  assert_true(channel_next(both[1], &f));
  channel_events(both[1], fds, &count);
  assert_int_equal(count, 1);
  channel_close(both[0]);
  channel_close(both[1]);
}

static void test_channel_closed_peer_is_an_error_after_its_last_frames(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  write_all(peer, "\5\0\0\0\3last", 9);
  close(peer);
  Frame f;
  OK(await_frame(c, &f));
  assert_frame(&f, 3, "last", 4);
  assert_int_equal(await_frame(c, &f), ERR_WORK);
  assert_says("host b closed the connection (its process has ended)");
  assert_false(channel_is_ended(c));
  channel_close(c);
}

/* A peer's last message is delivered although the peer has closed and writing to it fails. */
static void test_channel_last_frames_are_delivered_when_writing_fails(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  write_all(peer, "\4\0\0\0\3why", 8);
  close(peer);
  OK(channel_send(c, 1, "hello", 5));
  Frame f;
  OK(await_frame(c, &f));
  assert_frame(&f, 3, "why", 3);
  assert_int_equal(await_frame(c, &f), ERR_WORK);
  assert_says("host b closed the connection");
  channel_close(c);
}

static void test_channel_closed_in_the_middle_of_a_frame_is_reported(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  write_all(peer, "\5\0\0\0\3la", 7);
  close(peer);
  Frame f;
  assert_int_equal(await_frame(c, &f), ERR_WORK);
  assert_says("closed the connection in the middle of a frame");
  channel_close(c);
}

static void test_channel_peer_that_reads_no_more_is_an_error(void **state) {
  (void)state;
  int to[2], from[2];
  assert_int_equal(pipe(to), 0);
  assert_int_equal(pipe(from), 0);
  Channel *c;
  OK(channel_open(&c, from[0], to[1], "host b"));
  close(to[0]); /* the peer closes its reading end; the other pipe stays open */
  OK(channel_send(c, 1, "x", 1));
  Frame f;
  assert_int_equal(await_frame(c, &f), ERR_WORK);
  assert_says("lost the connection to host b: Broken pipe");
  channel_close(c);
  close(from[1]);
}

static void test_channel_over_pipes_polls_both_descriptors(void **state) {
  (void)state;
  int to[2], from[2];
  assert_int_equal(pipe(to), 0);
  assert_int_equal(pipe(from), 0);
  Channel *a, *b;
  OK(channel_open(&a, from[0], to[1], "host b"));
  OK(channel_open(&b, to[0], from[1], "host a"));
  struct pollfd fds[2];
  int count;
  channel_events(a, fds, &count);
  assert_int_equal(count, 1); /* nothing is queued, so a closed reader must not wake poll() */
  assert_int_equal(fds[0].fd, from[0]);
  OK(channel_send(a, 1, "x", 1));
  channel_events(a, fds, &count);
  assert_int_equal(count, 2);
  assert_int_equal(fds[1].fd, to[1]);
  assert_int_equal(fds[1].events, POLLOUT);
  OK(channel_advance(a));
  Frame f;
  OK(await_frame(b, &f));
  assert_frame(&f, 1, "x", 1);
  channel_close(a);
  channel_close(b);
}

/* A half-open connection: the peer is gone or stopped, and the kernel does not report it. */
static void test_channel_silent_peer_is_an_error_after_the_limit(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  channel_set_heartbeat(c, 0.01, 0.1);
  assert_between(channel_wait_ms(c), 0, 11);
  Frame f;
  assert_int_equal(await_frame(c, &f), ERR_WORK);
  assert_says("host b: no message for 0 s (its process is stopped");
  close(peer);
  channel_close(c);
}

static void test_channel_closed_while_this_process_was_stopped_says_so(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  channel_set_heartbeat(c, 0, 0.3);
  OK(channel_advance(c));
  usleep(200000); /* stands for SIGSTOP: nothing calls channel_advance */
  write_all(peer, "\5\0\0\0\3last", 9);
  close(peer);
  Frame f;
  OK(await_frame(c, &f));
  assert_int_equal(await_frame(c, &f), ERR_WORK);
  assert_says(
      "host b closed the connection: this process was stopped, or could not run, for 0 s");
  channel_close(c);
}

/* The receiver is served only when bytes have arrived, so it waits longer than its limit only if
 * heartbeats do not count as messages. */
static void test_channel_heartbeats_keep_an_idle_channel_alive(void **state) {
  (void)state;
  Channel *both[2];
  open_both(both);
  channel_set_heartbeat(both[0], 0.005, 60);
  channel_set_heartbeat(both[1], 0, 0.05);
  Frame f;
  int count;
  double start = progress_clock();
  while (progress_clock() - start < 0.2) {
    struct pollfd fds[2];
    channel_events(both[1], fds, &count);
    while (poll(fds, 1, channel_wait_ms(both[0])) == 0) {
      OK(channel_advance(both[0]));
      assert_true(progress_clock() - start < 60);
    }
    OK(channel_advance(both[1]));
    assert_false(channel_next(both[1], &f)); /* heartbeats are not passed to the owner */
  }
  channel_close(both[0]);
  channel_close(both[1]);
}

static void test_channel_without_heartbeat_waits_for_ever(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  assert_int_equal(channel_wait_ms(c), -1);
  close(peer);
  channel_close(c);
}

/* While bytes wait for a peer that does not read, poll must not return at once for a heartbeat
 * that is not sent. */
static void test_channel_with_unsent_bytes_waits_for_no_heartbeat(void **state) {
  (void)state;
  static const char bytes[1 << 16];
  int peer;
  Channel *c = open_with_peer(&peer);
  channel_set_heartbeat(c, 1e-9, 60);
  for (int i = 0; i < 32; i++) OK(channel_send(c, 1, bytes, sizeof bytes));
  OK(channel_advance(c));
  assert_true(channel_unsent(c) > 0);
  assert_between(channel_wait_ms(c), 1, 60000);
  close(peer);
  channel_close(c);
}

static void test_channel_orderly_end_is_told_from_a_loss(void **state) {
  (void)state;
  Channel *both[2];
  open_both(both);
  OK(channel_send(both[0], 1, "last", 4));
  OK(channel_end(both[0]));
  assert_int_equal(channel_send(both[0], 1, "late", 4), ERR_WORK);
  assert_says("after channel_end");
  OK(channel_advance(both[0]));
  channel_close(both[0]);
  Frame f;
  OK(await_frame(both[1], &f));
  assert_frame(&f, 1, "last", 4);
  assert_int_equal(await_frame(both[1], &f), ERR_WORK);
  assert_says("host a ended the connection");
  assert_true(channel_is_ended(both[1]));
  channel_close(both[1]);
}

static void test_channel_frame_after_the_end_mark_is_refused(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  write_all(peer, "\2\0\0\0\0\1\2\0\0\0\1a", 12);
  Frame f;
  assert_int_equal(await_frame(c, &f), ERR_WORK);
  assert_says("sent a frame after its end mark");
  close(peer);
  channel_close(c);
}

static void test_channel_open_takes_the_descriptors_also_after_an_error(void **state) {
  (void)state;
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  Channel *c;
  mem_fail_after(1);
  assert_int_equal(channel_open(&c, fds[0], fds[1], "host b"), ERR_WORK);
  mem_fail_after(0);
  assert_null(c);
  assert_int_equal(fcntl(fds[0], F_GETFD), -1);
  assert_int_equal(fcntl(fds[1], F_GETFD), -1);
  channel_close(NULL);
}

static void test_channel_without_memory_fails_and_frees(void **state) {
  (void)state;
  int peer;
  Channel *c = open_with_peer(&peer);
  mem_fail_after(1);
  assert_int_equal(channel_send(c, 1, "x", 1), ERR_WORK);
  assert_int_equal(channel_advance(c), ERR_WORK);
  mem_fail_after(0);
  assert_int_equal(channel_advance(c), ERR_WORK);
  assert_says("out of memory");
  close(peer);
  channel_close(c);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_channel_descriptors_are_not_inherited),
      cmocka_unit_test(test_channel_frames_arrive_in_order),
      cmocka_unit_test(test_channel_frame_split_into_bytes_arrives_whole),
      cmocka_unit_test(test_channel_two_frames_in_one_write_are_separated),
      cmocka_unit_test(test_channel_frames_of_all_sizes_arrive_unchanged),
      cmocka_unit_test(test_channel_oversize_frame_is_refused_before_memory_is_taken),
      cmocka_unit_test(test_channel_frame_without_type_is_refused),
      cmocka_unit_test(test_channel_unknown_control_frame_is_refused),
      cmocka_unit_test(test_channel_frames_before_a_bad_one_are_delivered),
      cmocka_unit_test(test_channel_send_own_type_or_oversize_is_an_error),
      cmocka_unit_test(test_channel_queue_is_bounded_when_the_peer_does_not_read),
      cmocka_unit_test(test_channel_unread_frames_stop_the_reading),
      cmocka_unit_test(test_channel_closed_peer_is_an_error_after_its_last_frames),
      cmocka_unit_test(test_channel_last_frames_are_delivered_when_writing_fails),
      cmocka_unit_test(test_channel_closed_in_the_middle_of_a_frame_is_reported),
      cmocka_unit_test(test_channel_peer_that_reads_no_more_is_an_error),
      cmocka_unit_test(test_channel_over_pipes_polls_both_descriptors),
      cmocka_unit_test(test_channel_silent_peer_is_an_error_after_the_limit),
      cmocka_unit_test(test_channel_closed_while_this_process_was_stopped_says_so),
      cmocka_unit_test(test_channel_heartbeats_keep_an_idle_channel_alive),
      cmocka_unit_test(test_channel_without_heartbeat_waits_for_ever),
      cmocka_unit_test(test_channel_with_unsent_bytes_waits_for_no_heartbeat),
      cmocka_unit_test(test_channel_orderly_end_is_told_from_a_loss),
      cmocka_unit_test(test_channel_frame_after_the_end_mark_is_refused),
      cmocka_unit_test(test_channel_open_takes_the_descriptors_also_after_an_error),
      cmocka_unit_test(test_channel_without_memory_fails_and_frees),
  };
  return cmocka_run_group_tests_name("launch channel", tests, NULL, NULL);
}
