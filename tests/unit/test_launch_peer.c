/* In-memory copies on a second machine (launch/peer.h): two agents, with the test as the
 * head. */
#include "launch/peer.h"

#include <dirent.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

typedef struct {
  PeerAgent peer;
  Channel *agent, *head; /* both ends of the agent's connection to the head */
} Side;

static void open_side(Side *s, const char *name) {
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  OK(channel_open(&s->agent, fds[0], fds[0], "the head"));
  OK(channel_open(&s->head, fds[1], fds[1], name));
  OK(file_mkdirs(at(name)));
  OK(peer_open(&s->peer, at(name)));
}

static void close_side(Side *s) {
  peer_close(&s->peer);
  channel_close(s->agent);
  channel_close(s->head);
}

/* Transfers bytes in both directions until none is left, while the agent handles messages of
 * the head. Returns the head's next frame, if there is one. */
static bool exchange(Side *s, Frame *f) {
  Frame task;
  for (int idle = 0; idle < 2; idle++) {
    OK(channel_advance(s->head));
    OK(channel_advance(s->agent));
    while (channel_next(s->agent, &task)) OK(peer_handle(&s->peer, s->agent, &task));
    OK(channel_advance(s->agent));
    OK(channel_advance(s->head));
    if (channel_next(s->head, f)) return true;
    if (channel_unsent(s->head) || channel_unsent(s->agent)) idle = -1;
  }
  return false;
}

static void send_json(Side *s, uint8_t type, json_t *body) {
  OK(protocol_send(s->head, type, body));
}

static void send_part(Side *s, uint8_t id, uint8_t kind, const void *bytes, size_t len) {
  uint8_t part[1024] = {id, 0, 0, 0, kind};
  assert_true(len <= sizeof part - PEER_HEADER);
  memcpy(part + PEER_HEADER, bytes, len);
  OK(channel_send(s->head, PEER_PART, part, PEER_HEADER + len));
}

static void send_file(Side *s, uint8_t id, uint64_t size, const char *name) {
  uint8_t bytes[256];
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(size >> (8 * i));
  memcpy(bytes + 8, name, strlen(name));
  send_part(s, id, PART_FILE, bytes, 8 + strlen(name));
}

static void write_text(const char *path, const char *text, size_t len) {
  OK(file_write(path, text, len));
}

/* Makes a copy with `bytes` bytes of weights in DIR/run-1/checkpoints/STEP. */
static void make_copy(const char *dir, const char *step, size_t bytes) {
  char path[FILE_PATH_MAX], *text = malloc(bytes + 1);
  for (size_t i = 0; i < bytes; i++) text[i] = (char)(i * 7 + bytes);
  snprintf(path, sizeof path, "%s/run-1/checkpoints/%s", at(dir), step);
  OK(file_mkdirs(path));
  snprintf(path, sizeof path, "%s/run-1/checkpoints/%s/weights.safetensors", at(dir), step);
  write_text(path, text, bytes);
  snprintf(path, sizeof path, "%s/run-1/checkpoints/%s/training.json", at(dir), step);
  write_text(path, step, strlen(step));
  snprintf(path, sizeof path, "%s/run-1/checkpoints/%s/empty", at(dir), step);
  write_text(path, "", 0);
  snprintf(path, sizeof path, "%s/run-1/checkpoints/latest", at(dir));
  unlink(path);
  assert_int_equal(symlink(step, path), 0);
  free(text);
}

static void compare_files(const char *a, const char *b) {
  Str one = {0}, two = {0};
  OK(file_read(at(a), (size_t)1 << 30, &one));
  OK(file_read(at(b), (size_t)1 << 30, &two));
  assert_int_equal(one.len, two.len);
  if (one.len) assert_memory_equal(one.s, two.s, one.len);
  str_free(&one);
  str_free(&two);
}

/* Transfers the copy in `dir` from one agent to the other, part by part; returns the type of
 * the last message. */
static uint8_t transfer(Side *from, Side *to, int id, const char *dir) {
  Frame f;
  send_json(from, PEER_SEND, json_pack("{s:i, s:s}", "id", id, "dir", dir));
  for (;;) {
    send_json(from, PEER_READ, json_pack("{s:i}", "id", id));
    if (!exchange(from, &f) || f.type != PEER_PART) return f.type;
    bool is_end = f.data[4] == PART_END;
    OK(channel_send(to->head, PEER_PART, f.data, f.len));
    bool is_answered = exchange(to, &f);
    if (is_answered || is_end) return is_answered ? f.type : 0;
  }
}

static void test_peer_copy_arrives_whole_and_replaces_the_one_before(void **state) {
  (void)state;
  Side a, b;
  open_side(&a, "a");
  open_side(&b, "b");
  make_copy("a", "step-00000010", 3 * PEER_BYTES + 17);
  assert_int_equal(transfer(&a, &b, 1, at("a/run-1")), PEER_STORED);
  compare_files("a/run-1/checkpoints/step-00000010/weights.safetensors",
                "b/run-1/checkpoints/latest/weights.safetensors");
  compare_files("a/run-1/checkpoints/step-00000010/training.json",
                "b/run-1/checkpoints/latest/training.json");
  compare_files("a/run-1/checkpoints/step-00000010/empty", "b/run-1/checkpoints/latest/empty");
  make_copy("a", "step-00000020", PEER_BYTES);
  assert_int_equal(transfer(&a, &b, 2, at("a/run-1")), PEER_STORED);
  compare_files("a/run-1/checkpoints/step-00000020/weights.safetensors",
                "b/run-1/checkpoints/latest/weights.safetensors");
  assert_false(file_exists(at("b/run-1/checkpoints/step-00000010")));
  assert_false(file_exists(at("b/incoming")));
  close_side(&a);
  close_side(&b);
}

static void test_peer_copy_removed_while_it_is_sent_arrives_whole(void **state) {
  (void)state;
  Side a, b;
  Frame f;
  open_side(&a, "removed-a");
  open_side(&b, "removed-b");
  make_copy("removed-a", "step-00000010", 2 * PEER_BYTES);
  make_copy("same", "step-00000010", 2 * PEER_BYTES);
  send_json(&a, PEER_SEND, json_pack("{s:i, s:s}", "id", 1, "dir", at("removed-a/run-1")));
  assert_false(exchange(&a, &f));
  OK(file_remove_all(at("removed-a/run-1")));
  for (bool is_end = false; !is_end;) {
    send_json(&a, PEER_READ, json_pack("{s:i}", "id", 1));
    assert_true(exchange(&a, &f));
    assert_int_equal(f.type, PEER_PART);
    is_end = f.data[4] == PART_END;
    OK(channel_send(b.head, PEER_PART, f.data, f.len));
    bool is_answered = exchange(&b, &f);
    assert_int_equal(is_answered, is_end);
  }
  assert_int_equal(f.type, PEER_STORED);
  compare_files("same/run-1/checkpoints/latest/weights.safetensors",
                "removed-b/run-1/checkpoints/latest/weights.safetensors");
  close_side(&a);
  close_side(&b);
}

/* Asserts that the agent answers with a failure whose text contains `why`. */
static void expect_failure(Side *s, const char *why) {
  Frame f;
  json_t *body;
  assert_true(exchange(s, &f));
  assert_int_equal(f.type, PEER_FAILED);
  OK(protocol_parse(&f, "agent", &body));
  if (!strstr(protocol_text(body, "text"), why))
    fail_msg("\"%s\" lacks \"%s\"", protocol_text(body, "text"), why);
  json_decref(body);
}

static void test_peer_send_refuses_what_is_no_copy(void **state) {
  (void)state;
  Side a;
  open_side(&a, "refusing");
  OK(file_mkdirs(at("outside/checkpoints")));
  OK(file_mkdirs(at("refusing/bad/checkpoints")));
  assert_int_equal(symlink("../outside", at("refusing/bad/checkpoints/latest")), 0);
  OK(file_mkdirs(at("refusing/gone/checkpoints")));
  assert_int_equal(symlink("step-1", at("refusing/gone/checkpoints/latest")), 0);
  static const struct {
    const char *dir, *why; /* below the scratch directory */
  } cases[] = {{"outside", "is not in the directory for copies"},
               {"refusing", "is not in the directory for copies"},
               {"refusing/../outside", "is not in the directory for copies"},
               {"refusing/none", "latest: No such file or directory"},
               {"refusing/bad", "points to ../outside"},
               {"refusing/gone", "step-1: No such file or directory"},
               {"", "is not in the directory for copies"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *dir = *cases[i].dir ? at(cases[i].dir) : "";
    send_json(&a, PEER_SEND, json_pack("{s:i, s:s}", "id", 7, "dir", dir));
    expect_failure(&a, cases[i].why);
  }
  close_side(&a);
}

/* The copy in `dir` has three files; so many more are allowed. */
static void test_peer_send_refuses_files_of_no_checkpoint(void **state) {
  (void)state;
  Side a;
  Frame f;
  char path[FILE_PATH_MAX];
  open_side(&a, "files");
  make_copy("files", "step-1", 10);
  write_text(at("files/run-1/checkpoints/step-1/.hidden"), "x", 1);
  send_json(&a, PEER_SEND, json_pack("{s:i, s:s}", "id", 1, "dir", at("files/run-1")));
  expect_failure(&a, "step-1 is not a checkpoint: it contains .hidden");
  assert_int_equal(unlink(at("files/run-1/checkpoints/step-1/.hidden")), 0);
  OK(file_mkdirs(at("files/run-1/checkpoints/step-1/folder")));
  send_json(&a, PEER_SEND, json_pack("{s:i, s:s}", "id", 2, "dir", at("files/run-1")));
  expect_failure(&a, "folder is a directory, not a regular file");
  OK(file_remove_all(at("files/run-1/checkpoints/step-1/folder")));
  for (int i = 3; i < PEER_FILES; i++) {
    snprintf(path, sizeof path, "%s/run-1/checkpoints/step-1/file-%d", at("files"), i);
    write_text(path, "x", 1);
  }
  send_json(&a, PEER_SEND, json_pack("{s:i, s:s}", "id", 3, "dir", at("files/run-1")));
  assert_false(exchange(&a, &f));
  write_text(at("files/run-1/checkpoints/step-1/file-16"), "x", 1);
  send_json(&a, PEER_SEND, json_pack("{s:i, s:s}", "id", 4, "dir", at("files/run-1")));
  expect_failure(&a, "step-1 is not a checkpoint: it contains ");
  close_side(&a);
}

static void test_peer_send_reports_a_file_that_was_truncated(void **state) {
  (void)state;
  Side a;
  Frame f;
  open_side(&a, "cut");
  make_copy("cut", "step-1", 10);
  send_json(&a, PEER_SEND, json_pack("{s:i, s:s}", "id", 1, "dir", at("cut/run-1")));
  assert_false(exchange(&a, &f));
  assert_int_equal(truncate(at("cut/run-1/checkpoints/step-1/weights.safetensors"), 0), 0);
  for (;;) {
    send_json(&a, PEER_READ, json_pack("{s:i}", "id", 1));
    assert_true(exchange(&a, &f));
    if (f.type != PEER_PART) break;
    assert_int_not_equal(f.data[4], PART_END);
  }
  json_t *body;
  assert_int_equal(f.type, PEER_FAILED);
  OK(protocol_parse(&f, "agent", &body));
  assert_string_equal(protocol_text(body, "text"),
                      "weights.safetensors of the copy was truncated");
  json_decref(body);
  close_side(&a);
}

static void test_peer_part_of_no_copy_is_refused(void **state) {
  (void)state;
  Side b;
  Frame f;
  open_side(&b, "parts");
  static const uint8_t part[] = {1, 0, 0, 0, PART_FILE, 1, 0, 0, 0, 0, 0, 0, 0, 'w'};
  for (size_t cut = 0; cut < sizeof part; cut++) { /* a message cut at every byte */
    OK(channel_send(b.head, PEER_PART, part, cut));
    OK(channel_advance(b.head));
    OK(channel_advance(b.agent));
    assert_true(channel_next(b.agent, &f));
    Err err = peer_handle(&b.peer, b.agent, &f);
    assert_int_equal(err, cut < PEER_HEADER ? ERR_WORK : ERR_OK);
    if (err) assert_says("invalid part of a copy");
    if (!err) expect_failure(&b, "a file with a wrong name");
    b.peer.in.refused = 0;
  }
  static const struct {
    uint8_t id, kind;
    const char *why; /* NULL: an error that ends the agent */
  } cases[] = {{2, PART_FILE - 1, NULL},
               {2, PART_END + 1, NULL},
               {2, 255, NULL},
               {2, PART_BYTES, "the copy has no beginning"},
               {3, PART_END, "the copy has no beginning"},
               {4, PART_FILE, "a file with a wrong name"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    send_part(&b, cases[i].id, cases[i].kind, "", 0);
    if (cases[i].why) {
      expect_failure(&b, cases[i].why);
      continue;
    }
    OK(channel_advance(b.head));
    OK(channel_advance(b.agent));
    assert_true(channel_next(b.agent, &f));
    assert_int_equal(peer_handle(&b.peer, b.agent, &f), ERR_WORK);
    assert_says("invalid part of a copy");
  }
  send_file(&b, 5, 0, "weights");
  send_part(&b, 5, PART_END, "no-slash", 8);
  expect_failure(&b, "the copy ended without its name");
  close_side(&b);
}

/* Sends parts until one is refused; asserts that nothing is stored. */
static void expect_refused(Side *s, const char *dir) {
  Frame f;
  assert_true(exchange(s, &f));
  assert_int_equal(f.type, PEER_FAILED);
  char path[FILE_PATH_MAX];
  snprintf(path, sizeof path, "%s/run-1", at(dir));
  assert_false(file_exists(path));
  snprintf(path, sizeof path, "%s/incoming", at(dir));
  assert_false(file_exists(path));
}

static void test_peer_store_refuses_names_with_a_path(void **state) {
  (void)state;
  static const char *const names[] = {"../x", "/tmp/x", "a/b", "..", ".hidden", "", "x\ny"};
  Side b;
  open_side(&b, "names");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    send_file(&b, (uint8_t)(i + 1), 1, names[i]);
    expect_refused(&b, "names");
  }
  assert_false(file_exists(at("x")));
  close_side(&b);
}

static void test_peer_store_refuses_a_place_outside(void **state) {
  (void)state;
  static const char *const places[] = {"../run/step-1", "run-1/../step-1", "run-1/other",
                                       "run-1",         "/step-1",         "run-1/step-1/x"};
  Side b;
  open_side(&b, "places");
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    send_file(&b, (uint8_t)(i + 1), 1, "weights");
    send_part(&b, (uint8_t)(i + 1), PART_BYTES, "x", 1);
    send_part(&b, (uint8_t)(i + 1), PART_END, places[i], strlen(places[i]));
    expect_refused(&b, "places");
  }
  close_side(&b);
}

static void test_peer_store_refuses_a_file_longer_than_announced(void **state) {
  (void)state;
  Side b;
  open_side(&b, "long");
  send_file(&b, 1, 3, "weights");
  send_part(&b, 1, PART_BYTES, "abcd", 4);
  expect_refused(&b, "long");
  close_side(&b);
}

static void test_peer_store_refuses_a_file_shorter_than_announced(void **state) {
  (void)state;
  Side b;
  open_side(&b, "short");
  send_file(&b, 1, 3, "weights");
  send_part(&b, 1, PART_BYTES, "ab", 2);
  send_part(&b, 1, PART_END, "run-1/step-1", 12);
  expect_refused(&b, "short");
  close_side(&b);
}

static void test_peer_store_refuses_a_file_for_which_there_is_no_room(void **state) {
  (void)state;
  Side b;
  Frame f;
  json_t *body;
  open_side(&b, "room");
  send_file(&b, 1, (uint64_t)1 << 60, "weights");
  assert_true(exchange(&b, &f));
  assert_int_equal(f.type, PEER_FAILED);
  OK(protocol_parse(&f, "agent", &body));
  assert_non_null(strstr(protocol_text(body, "text"), "do not fit into "));
  assert_non_null(strstr(protocol_text(body, "text"), "--shm-size SIZE"));
  json_decref(body);
  assert_false(file_exists(at("room/incoming")));
  send_file(&b, 2, 1, "weights"); /* a later copy that fits is stored */
  send_part(&b, 2, PART_BYTES, "x", 1);
  send_part(&b, 2, PART_END, "run-1/step-2", 12);
  assert_true(exchange(&b, &f));
  assert_int_equal(f.type, PEER_STORED);
  close_side(&b);
}

static void test_peer_canceled_copy_is_removed(void **state) {
  (void)state;
  Side b;
  Frame f;
  open_side(&b, "canceled");
  send_file(&b, 1, 3, "weights");
  send_part(&b, 1, PART_BYTES, "ab", 2);
  assert_false(exchange(&b, &f));
  assert_true(file_exists(at("canceled/incoming/weights")));
  peer_cancel(&b.peer);
  assert_false(file_exists(at("canceled/incoming")));
  close_side(&b);
}

static void test_peer_store_ignores_the_rest_of_a_refused_copy(void **state) {
  (void)state;
  Side b;
  Frame f;
  open_side(&b, "rest");
  send_file(&b, 1, 3, "../x");
  expect_refused(&b, "rest");
  send_file(&b, 1, 1, "weights");
  send_part(&b, 1, PART_BYTES, "x", 1);
  send_part(&b, 1, PART_END, "run-1/step-1", 12);
  assert_false(exchange(&b, &f));
  assert_false(file_exists(at("rest/run-1")));
  close_side(&b);
}

static void test_peer_store_refuses_too_many_files(void **state) {
  (void)state;
  Side b;
  char name[16];
  open_side(&b, "many");
  for (int i = 0; i <= PEER_FILES; i++) {
    snprintf(name, sizeof name, "file-%d", i);
    send_file(&b, 1, 0, name);
  }
  expect_refused(&b, "many");
  close_side(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_peer_copy_arrives_whole_and_replaces_the_one_before),
      cmocka_unit_test(test_peer_copy_removed_while_it_is_sent_arrives_whole),
      cmocka_unit_test(test_peer_send_refuses_what_is_no_copy),
      cmocka_unit_test(test_peer_send_refuses_files_of_no_checkpoint),
      cmocka_unit_test(test_peer_send_reports_a_file_that_was_truncated),
      cmocka_unit_test(test_peer_part_of_no_copy_is_refused),
      cmocka_unit_test(test_peer_store_refuses_names_with_a_path),
      cmocka_unit_test(test_peer_store_refuses_a_place_outside),
      cmocka_unit_test(test_peer_store_refuses_a_file_longer_than_announced),
      cmocka_unit_test(test_peer_store_refuses_a_file_shorter_than_announced),
      cmocka_unit_test(test_peer_store_refuses_a_file_for_which_there_is_no_room),
      cmocka_unit_test(test_peer_canceled_copy_is_removed),
      cmocka_unit_test(test_peer_store_ignores_the_rest_of_a_refused_copy),
      cmocka_unit_test(test_peer_store_refuses_too_many_files),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
