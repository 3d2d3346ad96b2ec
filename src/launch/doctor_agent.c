/* Answers the doctor's questions, one at a time, in one thread. Depends on doctor_agent.h. */
#include "launch/doctor_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "launch/link.h"
#include "launch/network.h"
#include "launch/probe.h"

#define TEXT_MAX 256 /* largest file in bytes that the question `read` returns */

typedef struct {
  Channel *head;
  LinkServer *server; /* started by the last `listen` */
} ProbeAgent;

static bool parse_token(const char *hex, uint8_t token[LINK_TOKEN]) {
  if (strlen(hex) != 2 * LINK_TOKEN || hex[strspn(hex, "0123456789abcdef")]) return false;
  for (size_t i = 0; i < LINK_TOKEN; i++) {
    unsigned byte;
    sscanf(hex + 2 * i, "%2x", &byte);
    token[i] = (uint8_t)byte;
  }
  return true;
}

static double get_real(const json_t *question, const char *name) {
  return json_number_value(json_object_get(question, name));
}

static json_t *answer_clock(ProbeAgent *a, const json_t *question) {
  (void)a;
  (void)question;
  return json_pack("{s:f}", "clock", probe_clock());
}

static json_t *answer_facts(ProbeAgent *a, const json_t *question) {
  (void)a;
  (void)question;
  MachineFacts *facts;
  NetworkList *list;
  json_t *answer = NULL;
  if (mem_alloc(&facts, 1, sizeof *facts)) return NULL;
  if (mem_alloc(&list, 1, sizeof *list)) {
    mem_free(facts);
    return NULL;
  }
  probe_machine(facts);
  probe_try_gpus(facts);
  if (network_list(list)) list->count = 0;
  answer =
      json_pack("{s:o, s:o}", "facts", facts_to_json(facts), "networks", network_to_json(list));
  mem_free(list);
  mem_free(facts);
  return answer;
}

static json_t *answer_directory(ProbeAgent *a, const json_t *question) {
  (void)a;
  DirectoryFacts d;
  int64_t bytes = protocol_int(question, "bytes", 0);
  probe_directory(&d, protocol_text(question, "path"), bytes > 0 ? (uint64_t)bytes : 0,
                  get_real(question, "seconds"));
  return json_pack("{s:o}", "directory", facts_directory_to_json(&d));
}

static const char *describe_errno(bool is_good) {
  return is_good ? "" : strerror(errno);
}

static json_t *answer_write(ProbeAgent *a, const json_t *question) {
  (void)a;
  const char *text = protocol_text(question, "text");
  int fd = open(protocol_text(question, "path"), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool is_good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  if (is_good) is_good = fsync(fd) == 0;
  json_t *answer = json_pack("{s:s}", "why", describe_errno(is_good));
  if (fd >= 0) close(fd);
  return answer;
}

static json_t *answer_read(ProbeAgent *a, const json_t *question) {
  (void)a;
  char text[TEXT_MAX + 1] = "";
  int fd = open(protocol_text(question, "path"), O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, text, TEXT_MAX) : -1;
  const char *why = describe_errno(n >= 0);
  text[n > 0 ? n : 0] = '\0';
  json_t *answer = json_pack("{s:s, s:s}", "why", why, "text", text);
  if (fd >= 0) close(fd);
  return answer;
}

static json_t *answer_remove(ProbeAgent *a, const json_t *question) {
  (void)a;
  return json_pack("{s:s}", "why",
                   describe_errno(unlink(protocol_text(question, "path")) == 0));
}

static json_t *answer_hash(ProbeAgent *a, const json_t *question) {
  (void)a;
  char hex[65];
  probe_hash_file(protocol_text(question, "path"), hex);
  return json_pack("{s:s}", "sha256", hex);
}

static json_t *answer_listen(ProbeAgent *a, const json_t *question) {
  const json_t *wanted = json_object_get(question, "ports");
  uint16_t want[LINK_PORTS], port[LINK_PORTS];
  uint8_t token[LINK_TOKEN];
  size_t count = json_array_size(wanted);
  link_close(a->server);
  a->server = NULL;
  if (count > LINK_PORTS || !parse_token(protocol_text(question, "token"), token)) return NULL;
  for (size_t i = 0; i < count; i++)
    want[i] = (uint16_t)json_integer_value(json_array_get(wanted, i));
  if (link_listen(&a->server, protocol_text(question, "address"), want, count, token, port))
    return json_pack("{s:s}", "why", err_message());
  json_t *ports = json_array();
  for (size_t i = 0; i < count; i++) json_array_append_new(ports, json_integer(port[i]));
  return json_pack("{s:s, s:o}", "why", "", "ports", ports);
}

static json_t *answer_try(ProbeAgent *a, const json_t *question) {
  (void)a;
  const json_t *list = json_object_get(question, "targets");
  size_t count = json_array_size(list);
  LinkTarget *target;
  if (count > PROBE_TARGETS || mem_alloc(&target, count + 1, sizeof *target)) return NULL;
  for (size_t i = 0; i < count; i++) {
    const json_t *t = json_array_get(list, i);
    snprintf(target[i].address, sizeof target[i].address, "%.45s", protocol_text(t, "address"));
    target[i].port = (uint16_t)protocol_int(t, "port", 0);
  }
  link_try(target, count);
  json_t *why = json_array();
  for (size_t i = 0; i < count; i++) json_array_append_new(why, json_string(target[i].why));
  mem_free(target);
  return json_pack("{s:o}", "why", why);
}

static json_t *answer_measure(ProbeAgent *a, const json_t *question) {
  (void)a;
  LinkResult r;
  uint8_t token[LINK_TOKEN];
  if (!parse_token(protocol_text(question, "token"), token)) return NULL;
  link_measure(&r, protocol_text(question, "address"),
               (uint16_t)protocol_int(question, "port", 0), token,
               get_real(question, "seconds"));
  return json_pack("{s:s, s:f, s:f, s:f}", "why", r.why, "latency", r.latency, "rate_out",
                   r.rate_out, "rate_in", r.rate_in);
}

static const struct {
  const char *ask;
  /* Returns NULL if the question is invalid. */
  json_t *(*answer)(ProbeAgent *a, const json_t *question);
} answers[] = {
    {"clock", answer_clock},     {"facts", answer_facts},   {"directory", answer_directory},
    {"write", answer_write},     {"read", answer_read},     {"remove", answer_remove},
    {"hash", answer_hash},       {"listen", answer_listen}, {"try", answer_try},
    {"measure", answer_measure},
};

static Err answer_question(ProbeAgent *a, const json_t *question) {
  const char *ask = protocol_text(question, "ask");
  json_t *answer = NULL;
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
    if (strcmp(answers[i].ask, ask) == 0) answer = answers[i].answer(a, question);
  if (!answer)
    return err_set(ERR_WORK,
                   "the doctor sent an invalid question '%s'; install the same version of "
                   "trireme on all machines",
                   ask);
  json_object_set_new(answer, "id", json_integer(protocol_int(question, "id", 0)));
  return protocol_send(a->head, PROBE_ANSWER, answer);
}

static Err answer_frame(ProbeAgent *a, const Frame *frame) {
  json_t *question;
  TRY(protocol_parse(frame, "the doctor", &question));
  Err err = answer_question(a, question);
  json_decref(question);
  return err;
}

/* Waits for the next event and handles it. */
static Err serve_once(ProbeAgent *a) {
  struct pollfd fds[2];
  int count;
  Frame frame;
  channel_events(a->head, fds, &count);
  if (count > 0 && poll(fds, (nfds_t)count, channel_wait_ms(a->head)) < 0 && errno != EINTR)
    return err_errno("cannot wait for", "the doctor");
  TRY(channel_advance(a->head));
  while (channel_next(a->head, &frame))
    if (frame.type == PROBE_ASK) TRY(answer_frame(a, &frame));
  return ERR_OK;
}

Err doctor_agent_run(Channel *head) {
  ProbeAgent a = {.head = head};
  Err err;
  do err = serve_once(&a);
  while (!err);
  if (channel_is_ended(head)) err = ERR_OK;
  link_close(a.server);
  channel_close(head);
  return err;
}
