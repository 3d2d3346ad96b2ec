/* Messages of a launch (launch/protocol.h): cut at every byte, too long, and with numbers out of
 * range. */
#include "launch/protocol.h"

#include <sys/socket.h>
#include <unistd.h>

#include "support.h"

enum { BODY_LIMIT = 64 << 10 };

typedef struct {
  Channel *from, *to;
} Pair;

static void open_pair(Pair *p) {
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  OK(channel_open(&p->from, fds[0], fds[0], "the head"));
  OK(channel_open(&p->to, fds[1], fds[1], "the agent"));
}

static void close_pair(Pair *p) {
  channel_close(p->from);
  channel_close(p->to);
}

/* Moves one frame. */
static Frame move_frame(Pair *p) {
  Frame f;
  for (int i = 0; i < 1000; i++) {
    OK(channel_advance(p->from));
    OK(channel_advance(p->to));
    if (channel_next(p->to, &f)) return f;
  }
  fail_msg("no frame");
  return f;
}

static Err parse_text(const char *text, size_t len, json_t **body) {
  Frame f = {MSG_BEGIN, (const uint8_t *)text, len};
  return protocol_parse(&f, "the head", body);
}

static void test_protocol_message_cut_at_any_byte_is_refused(void **state) {
  (void)state;
  static const char text[] = "{\"generation\":12,\"text\":\"caf\xc3\xa9\",\"list\":[1,2]}";
  json_t *body;
  OK(parse_text(text, sizeof text - 1, &body));
  assert_int_equal(protocol_int(body, "generation", 0), 12);
  json_decref(body);
  for (size_t cut = 0; cut < sizeof text - 1; cut++) {
    assert_int_equal(parse_text(text, cut, &body), ERR_WORK);
    assert_null(body);
    assert_says("the head");
  }
}

static void test_protocol_message_of_another_form_is_refused(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"[1]", "not a JSON object"},      {"\"text\"", "not JSON"},
      {"{\"a\":1,\"a\":2}", "not JSON"}, {"{\"a\":1}x", "not JSON"},
      {"{\"a\":\"\xff\"}", "the head"},  {"{a:1}", "not JSON"},
      {"{\"a\":1e}", "not JSON"},        {"", "not JSON"}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    json_t *body;
    assert_int_equal(parse_text(texts[i][0], strlen(texts[i][0]), &body), ERR_WORK);
    assert_null(body);
    assert_says(texts[i][1]);
  }
}

static void test_protocol_message_of_64_kib_is_the_longest(void **state) {
  (void)state;
  static char text[BODY_LIMIT + 2];
  json_t *body;
  memset(text, ' ', sizeof text);
  memcpy(text, "{}", 2);
  OK(parse_text(text, BODY_LIMIT, &body));
  json_decref(body);
  assert_int_equal(parse_text(text, BODY_LIMIT + 1, &body), ERR_WORK);
  assert_says("65537 bytes, at most 65536 are allowed");
  Pair p;
  open_pair(&p);
  for (size_t len = BODY_LIMIT; len <= BODY_LIMIT + 1; len++) {
    size_t n = len - strlen("{\"a\":\"\"}");
    memset(text, 'x', n);
    Err err = protocol_send(p.from, MSG_BEGIN, json_pack("{s:s%}", "a", text, n));
    assert_int_equal(err, len > BODY_LIMIT ? ERR_WORK : ERR_OK);
    if (err) assert_says("a launch message of 65537 bytes exceeds 65536");
    if (!err) assert_int_equal(move_frame(&p).len, BODY_LIMIT);
    /* 4 KiB are kept for members that are added later. */
    body = json_pack("{s:s%}", "a", text, n - 4096);
    err = protocol_check_size(body);
    json_decref(body);
    assert_int_equal(err, len > BODY_LIMIT ? ERR_WORK : ERR_OK);
  }
  assert_int_equal(protocol_send(p.from, MSG_BEGIN, NULL), ERR_WORK);
  assert_says("out of memory for a launch message");
  close_pair(&p);
}

static void test_protocol_number_out_of_range_is_replaced(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t any, between; /* protocol_int, and protocol_between 2 and 5 */
  } cases[] = {{"{\"n\":1}", 1, 9},     {"{\"n\":2}", 2, 2},    {"{\"n\":5}", 5, 5},
               {"{\"n\":6}", 6, 9},     {"{\"n\":-3}", -3, 9},  {"{\"n\":3.0}", 7, 9},
               {"{\"n\":\"3\"}", 7, 9}, {"{\"n\":null}", 7, 9}, {"{\"n\":[3]}", 7, 9},
               {"{\"n\":true}", 7, 9},  {"{\"m\":3}", 7, 9}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *body;
    OK(parse_text(cases[i].text, strlen(cases[i].text), &body));
    assert_int_equal(protocol_int(body, "n", 7), cases[i].any);
    assert_int_equal(protocol_between(body, "n", 2, 5, 9), cases[i].between);
    assert_string_equal(protocol_text(body, "n"), i == 6 ? "3" : "");
    json_decref(body);
  }
}

static void test_output_header_and_bytes_arrive_unchanged(void **state) {
  (void)state;
  static uint8_t bytes[OUTPUT_MAX + 1];
  Pair p;
  open_pair(&p);
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 31);
  const OutputHeader sent = {
      .generation = 0x81020304, .rank = 0xf5060708, .stream = OUTPUT_TERMINAL};
  OK(output_send(p.from, &sent, bytes, OUTPUT_MAX));
  Frame f = move_frame(&p);
  OutputHeader got;
  const uint8_t *data;
  size_t len;
  assert_int_equal(f.type, MSG_OUTPUT);
  assert_true(output_parse(&f, &got, &data, &len));
  assert_int_equal(got.generation, sent.generation);
  assert_int_equal(got.rank, sent.rank);
  assert_int_equal(got.stream, sent.stream);
  assert_int_equal(len, OUTPUT_MAX);
  assert_memory_equal(data, bytes, len);
  assert_int_equal(output_send(p.from, &sent, bytes, OUTPUT_MAX + 1), ERR_WORK);
  close_pair(&p);
}

static void test_output_that_is_cut_or_of_another_stream_is_refused(void **state) {
  (void)state;
  uint8_t bytes[OUTPUT_HEADER_BYTES + 1] = {0};
  OutputHeader header;
  const uint8_t *data;
  size_t len;
  for (int stream = 0; stream < 256; stream++) {
    bytes[8] = (uint8_t)stream;
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
      Frame f = {MSG_OUTPUT, bytes, cut};
      bool is_good =
          cut >= OUTPUT_HEADER_BYTES && stream >= OUTPUT_STDOUT && stream <= OUTPUT_TERMINAL;
      assert_int_equal(output_parse(&f, &header, &data, &len), is_good);
      if (is_good) assert_int_equal(len, cut - OUTPUT_HEADER_BYTES);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_protocol_message_cut_at_any_byte_is_refused),
      cmocka_unit_test(test_protocol_message_of_another_form_is_refused),
      cmocka_unit_test(test_protocol_message_of_64_kib_is_the_longest),
      cmocka_unit_test(test_protocol_number_out_of_range_is_replaced),
      cmocka_unit_test(test_output_header_and_bytes_arrive_unchanged),
      cmocka_unit_test(test_output_that_is_cut_or_of_another_stream_is_refused),
  };
  return cmocka_run_group_tests_name("launch protocol", tests, NULL, NULL);
}
