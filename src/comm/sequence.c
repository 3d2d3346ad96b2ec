/* Numbers the collectives of a rank and stores the last ones. Depends on base. */
#include "comm/sequence.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

Err sequence_init(Sequence *s, int ranks, int tag_max) {
  *s = (Sequence){.ranks = ranks, .tag_max = tag_max};
  return mem_alloc(&s->sent, SEQUENCE_HISTORY * (size_t)ranks, sizeof *s->sent);
}

void sequence_free(Sequence *s) {
  mem_free(s->sent);
}

void sequence_begin(Sequence *s, OpKind kind, const char *name, uint64_t bytes,
                    uint64_t layout) {
  s->seq++;
  s->is_running = true;
  Op *op = &s->op[s->seq % SEQUENCE_HISTORY];
  *op = (Op){.seq = s->seq, .bytes = bytes, .kind = (int32_t)kind};
  snprintf(op->name, sizeof op->name, "%s", name);
  uint64_t hash = rng_mix(rng_hash(name, strlen(name), 0), (uint64_t)kind);
  op->hash = rng_mix(rng_mix(hash, bytes), layout);
}

void sequence_set_sizes(Sequence *s, const size_t *sent, const size_t *received) {
  uint64_t *kept = s->sent + s->seq % SEQUENCE_HISTORY * (size_t)s->ranks;
  for (int r = 0; r < s->ranks; r++) kept[r] = sent[r];
  s->expected = received;
}

void sequence_end(Sequence *s) {
  s->is_running = false;
  s->expected = NULL;
  s->progress++;
}

const Op *sequence_current(const Sequence *s) {
  return &s->op[s->seq % SEQUENCE_HISTORY];
}

int sequence_tag(const Sequence *s, size_t bytes) {
  uint64_t hash = rng_mix(sequence_current(s)->hash ^ s->seq, bytes);
  return TAG_FIRST + (int)(hash % (uint64_t)(s->tag_max - TAG_FIRST));
}

const Op *sequence_find(const Sequence *s, uint64_t seq) {
  const Op *op = &s->op[seq % SEQUENCE_HISTORY];
  return seq && op->seq == seq ? op : NULL;
}

bool sequence_differs(const Sequence *s, const Op *theirs) {
  const Op *mine = sequence_find(s, theirs->seq);
  return mine && mine->hash != theirs->hash;
}

bool sequence_sent_wrong_size(const Sequence *s, int r, const SequenceReport *report,
                              uint64_t *sent) {
  uint64_t seq = report->expect_seq;
  const Op *mine = sequence_find(s, seq);
  if (!mine || mine->kind != OP_EXCHANGE) return false;
  *sent = s->sent[seq % SEQUENCE_HISTORY * (size_t)s->ranks + (size_t)r];
  return *sent != report->expect_bytes;
}

void sequence_report(const Sequence *s, int r, SequenceReport *report) {
  report->progress = s->progress;
  report->running = s->is_running ? s->seq : 0;
  report->expect_seq = s->expected ? s->seq : 0;
  report->expect_bytes = s->expected ? s->expected[r] : 0;
  memcpy(report->op, s->op, sizeof report->op);
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
