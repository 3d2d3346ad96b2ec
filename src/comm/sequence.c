/* That all ranks run the same collectives in the same order. Each is numbered and remembered with
 * its name and size. In shared memory a rank compares before it reads. By messages, number, name
 * and size select the tag, so that a wrong message is never received, and the heartbeats carry the
 * last HISTORY collectives, so that a difference is found within EVERY (watchdog.c) seconds.
 * Relies on comm_internal.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "comm/comm_internal.h"

void op_begin(Comm *c, OpKind kind, const char *name, uint64_t bytes, uint64_t layout) {
  c->seq++;
  c->in_op = true;
  Op *op = &c->op[c->seq % HISTORY];
  *op = (Op){.seq = c->seq, .bytes = bytes, .kind = (int32_t)kind};
  snprintf(op->name, sizeof op->name, "%s", name);
  uint64_t hash = rng_mix(rng_hash(name, strlen(name), 0), (uint64_t)kind);
  op->hash = rng_mix(rng_mix(hash, bytes), layout);
}

void op_end(Comm *c) {
  c->in_op = false;
  c->expected = NULL;
  c->progress++;
}

const Op *op_current(const Comm *c) {
  return &c->op[c->seq % HISTORY];
}

int op_tag(const Comm *c, size_t bytes) {
  uint64_t hash = rng_mix(op_current(c)->hash ^ c->seq, bytes);
  return TAG_FIRST + (int)(hash % (uint64_t)(c->info.tag_max - TAG_FIRST));
}

char *op_describe(char *text, size_t size, const Op *op) {
  static const char *const kinds[] = {"broadcast", "allgather", "exchange", "sum",
                                      "gradient sum"};
  char bytes[32];
  bool known = op->kind >= 0 && (size_t)op->kind < sizeof kinds / sizeof *kinds;
  snprintf(text, size, "'%.*s' (%s%s%s)", OP_NAME - 1, op->name,
           known ? kinds[op->kind] : "unknown kind", op->bytes ? ", " : "",
           op->bytes ? str_of_bytes(bytes, op->bytes) : "");
  return text;
}

#define REMEDY                                                                               \
  "Start all ranks from the same build with the same options and data; if they are, report " \
  "this "                                                                                    \
  "as a bug"

void op_compare(Comm *c, int r, const Op *theirs) {
  const Op *mine = &c->op[theirs->seq % HISTORY];
  char a[96], b[96];
  if (!theirs->seq || mine->seq != theirs->seq || mine->hash == theirs->hash) return;
  if (c->rank) comm_give_way(c);
  bool alike = mine->kind == theirs->kind && mine->bytes == theirs->bytes &&
               strncmp(mine->name, theirs->name, OP_NAME) == 0;
  comm_die(c,
           "ranks disagree on collective %" PRIu64
           ": rank %d on %s runs %s, rank %d on %s runs "
           "%s%s. " REMEDY,
           theirs->seq, c->rank, comm_host(c, c->rank), op_describe(a, sizeof a, mine), r,
           comm_host(c, r), op_describe(b, sizeof b, theirs),
           alike ? " with other parts for each rank" : "");
}

void op_wrong_size(Comm *c, uint64_t seq, int from, uint64_t sent, int to, uint64_t expected) {
  char what[96];
  if (c->rank) comm_give_way(c);
  comm_die(c,
           "ranks disagree on collective %" PRIu64 ", %s: rank %d on %s sends %" PRIu64
           " bytes to rank %d on %s, which expects %" PRIu64 ". " REMEDY,
           seq, op_describe(what, sizeof what, &c->op[seq % HISTORY]), from, comm_host(c, from),
           sent, to, comm_host(c, to), expected);
}

void op_check_note(Comm *c, int r, const Note *note) {
  for (size_t i = 0; i < HISTORY; i++) op_compare(c, r, &note->op[i]);
  uint64_t seq = note->expect_seq;
  const Op *mine = &c->op[seq % HISTORY];
  if (!seq || mine->seq != seq || mine->kind != OP_EXCHANGE) return;
  uint64_t sent = c->sent[seq % HISTORY * (size_t)c->size + (size_t)r];
  if (sent != note->expect_bytes) op_wrong_size(c, seq, c->rank, sent, r, note->expect_bytes);
}

void op_fill_note(const Comm *c, int r, Note *note) {
  note->progress = c->progress;
  note->doing = c->in_op ? c->seq : 0;
  note->expect_seq = c->expected ? c->seq : 0;
  note->expect_bytes = c->expected ? c->expected[r] : 0;
  memcpy(note->op, c->op, sizeof note->op);
}
