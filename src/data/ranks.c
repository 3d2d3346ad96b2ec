/* Collectives for the ranks of prepare; with one process they do nothing. Depends on base. */
#include "data/ranks.h"

#include <string.h>

#include "base/mem.h"

int ranks_count(const Ranks *r) {
  return r ? r->count : 1;
}

bool ranks_is_first(const Ranks *r) {
  return !r || r->rank == 0;
}

void ranks_report(const Ranks *r, const char *place) {
  if (r) r->report(r->context, place);
}

void ranks_broadcast(const Ranks *r, const char *name, void *bytes, size_t n) {
  if (r) r->broadcast(r->context, name, bytes, n);
}

Err ranks_gather(const Ranks *r, const char *name, const void *mine, size_t n, void *all) {
  size_t rank = r ? (size_t)r->rank : 0;
  memcpy((char *)all + rank * n, mine, n);
  if (!r) return ERR_OK;
  size_t *off;
  TRY(mem_alloc(&off, (size_t)r->count + 1, sizeof *off));
  for (size_t i = 0; i <= (size_t)r->count; i++) off[i] = i * n;
  r->allgather(r->context, name, all, off);
  mem_free(off);
  return ERR_OK;
}

/* Copies the error record of rank `from` to every rank. */
static Err share_record(const Ranks *r, int from, ErrRecord *record) {
  size_t *off;
  TRY(mem_alloc(&off, (size_t)r->count + 1, sizeof *off));
  for (int i = 0; i <= r->count; i++) off[i] = i > from ? sizeof *record : 0;
  r->allgather(r->context, "error", record, off);
  mem_free(off);
  return ERR_OK;
}

Err ranks_agree(Ranks *r, Err err) {
  if (!r) return err;
  ErrRecord record = err ? err_copy() : (ErrRecord){0};
  uint8_t mine = (uint8_t)err, *all;
  TRY(mem_alloc(&all, (size_t)r->count, sizeof *all));
  Err wrong = ranks_gather(r, "results of the ranks", &mine, sizeof mine, all);
  int from = 0;
  while (from < r->count && !all[from]) from++;
  if (!wrong && from < r->count) wrong = share_record(r, from, &record);
  mem_free(all);
  if (wrong) return wrong;
  if (from == r->count) return ERR_OK;
  r->has_agreed_error = true;
  record.text[sizeof record.text - 1] = '\0';
  return err_set(record.code, "rank %d on %s: %s", from, r->host(r->context, from),
                 record.text);
}
