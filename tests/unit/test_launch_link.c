/* Measured connections over the loopback device: ports, tokens, and clients without a token. */
#include "launch/link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/progress.h"
#include "support.h"

/* A byte longer than a token, for the NUL. */
static const uint8_t token[LINK_TOKEN + 1] = "0123456789abcdef";
static const uint8_t wrong[LINK_TOKEN + 1] = "0123456789abcdeF";

static LinkServer *listen_one(uint16_t wanted, uint16_t *port) {
  LinkServer *server;
  OK(link_listen(&server, "127.0.0.1", &wanted, 1, token, port));
  return server;
}

static void test_link_measures_latency_and_both_directions(void **state) {
  (void)state;
  uint16_t port;
  LinkResult r;
  LinkServer *server = listen_one(0, &port);
  link_measure(&r, "127.0.0.1", port, token, 0.05);
  link_close(server);
  assert_string_equal(r.why, "");
  assert_true(r.latency > 0);
  assert_true(r.rate_out > 0);
  assert_true(r.rate_in > 0);
}

static void test_link_serves_one_visitor_after_the_other(void **state) {
  (void)state;
  uint16_t port;
  LinkResult r;
  LinkServer *server = listen_one(0, &port);
  for (int i = 0; i < 3; i++) {
    link_measure(&r, "127.0.0.1", port, token, 0.01);
    assert_string_equal(r.why, "");
  }
  link_close(server);
}

static void test_link_wrong_token_gets_nothing(void **state) {
  (void)state;
  uint16_t port;
  LinkResult r;
  LinkServer *server = listen_one(0, &port);
  link_measure(&r, "127.0.0.1", port, wrong, 0.01);
  assert_non_null(strstr(r.why, "broke"));
  /* The server still serves clients with the token. */
  link_measure(&r, "127.0.0.1", port, token, 0.01);
  assert_string_equal(r.why, "");
  link_close(server);
}

static int connect_to(uint16_t port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  return fd;
}

/* Connects from another loopback address. */
static int connect_from_other(uint16_t port) {
  struct sockaddr_in own = {.sin_family = AF_INET}, a = own;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(port);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  return fd;
}

static void test_link_silent_connections_do_not_delay_one_with_the_token(void **state) {
  (void)state;
  enum { SILENT = 7 };
  uint16_t port;
  LinkResult r;
  int fd[SILENT];
  LinkServer *server = listen_one(0, &port);
  for (int i = 0; i < SILENT; i++) fd[i] = connect_to(port);
  assert_int_equal(write(fd[0], token, 5), 5); /* an incomplete token */
  link_measure(&r, "127.0.0.1", port, token, 0.01);
  assert_string_equal(r.why, "");
  for (int i = 0; i < SILENT; i++) close(fd[i]);
  link_close(server);
}

static void test_link_many_silent_connections_of_an_address_are_closed(void **state) {
  (void)state;
  enum { SILENT = 100 };
  uint16_t port;
  LinkResult r;
  char byte;
  int fd[SILENT];
  LinkServer *server = listen_one(0, &port);
  for (int i = 0; i < SILENT; i++) fd[i] = connect_from_other(port);
  link_measure(&r, "127.0.0.1", port, token, 0.01);
  assert_string_equal(r.why, "");
  assert_int_equal(read(fd[SILENT - 1], &byte, 1), 0);
  for (int i = 0; i < SILENT; i++) close(fd[i]);
  link_close(server);
}

static void test_link_unknown_request_ends_the_connection(void **state) {
  (void)state;
  uint16_t port;
  char byte;
  LinkServer *server = listen_one(0, &port);
  int fd = connect_to(port);
  assert_int_equal(write(fd, token, LINK_TOKEN), LINK_TOKEN);
  assert_int_equal(write(fd, "?", 1), 1);
  assert_int_equal(read(fd, &byte, 1), 0);
  close(fd);
  link_close(server);
}

static void test_link_wanted_port_in_use_takes_the_next(void **state) {
  (void)state;
  uint16_t first, second;
  LinkServer *one = listen_one(0, &first);
  LinkServer *two = listen_one(first, &second);
  assert_true(second > first);
  assert_true(second < first + 100);
  link_close(two);
  link_close(one);
}

static void test_link_listen_on_foreign_address_is_an_error(void **state) {
  (void)state;
  LinkServer *server;
  uint16_t wanted = 0, port;
  assert_int_equal(link_listen(&server, "192.0.2.200", &wanted, 1, token, &port), ERR_WORK);
  assert_null(server);
}

static void test_link_closed_port_is_refused(void **state) {
  (void)state;
  uint16_t port;
  LinkResult r;
  link_close(listen_one(0, &port));
  link_measure(&r, "127.0.0.1", port, token, 0.01);
  assert_string_equal(r.why, "Connection refused");
}

static void test_link_address_that_is_none_is_reported(void **state) {
  (void)state;
  LinkResult r;
  link_measure(&r, "host name", 1, token, 0.01);
  assert_string_equal(r.why, "'host name' is no address");
}

static void test_link_try_tells_open_from_closed_ports(void **state) {
  (void)state;
  uint16_t open_port, closed_port;
  LinkServer *server = listen_one(0, &open_port);
  link_close(listen_one(0, &closed_port));
  LinkTarget targets[3] = {{.address = "127.0.0.1", .port = open_port},
                           {.address = "127.0.0.1", .port = closed_port},
                           {.address = "nowhere", .port = 1}};
  link_try(targets, 3);
  assert_string_equal(targets[0].why, "");
  assert_string_equal(targets[1].why, "Connection refused");
  assert_string_equal(targets[2].why, "'nowhere' is no address");
  link_close(server);
}

static void test_link_try_more_targets_than_at_once(void **state) {
  (void)state;
  static LinkTarget targets[300];
  uint16_t port;
  LinkServer *server = listen_one(0, &port);
  for (int i = 0; i < 300; i++) {
    snprintf(targets[i].address, sizeof targets[i].address, "127.0.0.1");
    targets[i].port = port;
  }
  link_try(targets, 300);
  assert_string_equal(targets[0].why, "");
  assert_string_equal(targets[299].why, "");
  link_close(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_link_measures_latency_and_both_directions),
      cmocka_unit_test(test_link_serves_one_visitor_after_the_other),
      cmocka_unit_test(test_link_wrong_token_gets_nothing),
      cmocka_unit_test(test_link_silent_connections_do_not_delay_one_with_the_token),
      cmocka_unit_test(test_link_many_silent_connections_of_an_address_are_closed),
      cmocka_unit_test(test_link_unknown_request_ends_the_connection),
      cmocka_unit_test(test_link_wanted_port_in_use_takes_the_next),
      cmocka_unit_test(test_link_listen_on_foreign_address_is_an_error),
      cmocka_unit_test(test_link_closed_port_is_refused),
      cmocka_unit_test(test_link_address_that_is_none_is_reported),
      cmocka_unit_test(test_link_try_tells_open_from_closed_ports),
      cmocka_unit_test(test_link_try_more_targets_than_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
