/* Writes the shards of this rank in a thread, and appends the shards of all ranks to the
 * manifest. Depends on ranks, prepare_encode. */
#include "data/prepare_shards.h"

#include <inttypes.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/prepare_finish.h"

Err shards_open(RankShards *s, Prepare *p) {
  *s = (RankShards){.p = p, .ranks = p->spec.ranks};
  s->count = (size_t)s->ranks->count;
  s->rank = (size_t)s->ranks->rank;
  p->share = s;
  TRY(shard_begin_pairs(&s->full, (uint32_t)p->tokenizer.vocab, p->tokenizer.sha256));
  TRY(mem_alloc(&s->send, s->count, sizeof *s->send));
  TRY(mem_alloc(&s->recv, s->count, sizeof *s->recv));
  TRY(mem_alloc(&s->send_n, s->count, sizeof *s->send_n));
  return mem_alloc(&s->recv_n, s->count, sizeof *s->recv_n);
}

void shards_close(RankShards *s) {
  if (s->is_writing) pthread_join(s->thread, NULL);
  shard_builder_free(&s->full);
  mem_free(s->written);
  mem_free(s->open);
  mem_free(s->report);
  mem_free((void *)s->send);
  mem_free(s->recv);
  mem_free(s->send_n);
  mem_free(s->recv_n);
}

bool shards_is_writer(const RankShards *s, size_t number) {
  return number % s->count == s->rank;
}

static void *write_full_shard(void *argument) {
  RankShards *s = argument;
  Err err = prepare_write_shard(s->p, &s->full, &s->entry);
  fault_point("prepare-shard-written");
  s->result = err_take(err);
  atomic_store(&s->is_on_disk, true);
  return NULL;
}

Err shards_collect(RankShards *s, ShardsCollect how) {
  if (!s->is_writing || (how == SHARDS_POLL && !atomic_load(&s->is_on_disk))) return ERR_OK;
  pthread_join(s->thread, NULL);
  s->is_writing = false;
  if (s->result.code) return err_give(&s->result);
  TRY(mem_grow(&s->written, &s->written_cap, s->written_n + 1, sizeof *s->written));
  WrittenShard *w = &s->written[s->written_n++];
  w->number = s->number;
  w->bytes = s->entry.file.bytes;
  memcpy(w->sha256, s->entry.file.sha256, sizeof w->sha256);
  return ERR_OK;
}

/* Starts the thread that writes the full shard builder. The main thread continues with the
 * builder that the thread has emptied before. */
static Err start_writing(RankShards *s, size_t number, const ManifestEntry *e) {
  TRY(shards_collect(s, SHARDS_WAIT));
  ShardBuilder empty = s->full;
  s->full = s->p->builder;
  s->p->builder = empty;
  s->entry = *e;
  s->number = number;
  atomic_store(&s->is_on_disk, false);
  s->is_writing = thread_start(&s->thread, write_full_shard, s);
  return s->is_writing ? ERR_OK
                       : err_set(ERR_WORK,
                                 "cannot start a thread to write shards; raise the limit of "
                                 "processes (ulimit -u)");
}

Err shards_end(Prepare *p) {
  RankShards *s = p->share;
  size_t number = p->train_shards;
  ManifestEntry e = prepare_next_entry(p);
  if (s->rank == 0) {
    TRY(mem_grow(&s->open, &s->open_cap, s->open_n + 1, sizeof *s->open));
    s->open[s->open_n++] = e;
  }
  return shards_is_writer(s, number) ? start_writing(s, number, &e) : ERR_OK;
}

/* ---- rank 0 ---- */

/* Stores the size and hash that a rank reported for its shard. */
static Err complete_entry(RankShards *s, const WrittenShard *w) {
  size_t recorded = s->p->meta->split[SPLIT_TRAIN].shards;
  if (w->number < recorded || w->number - recorded >= s->open_n)
    return err_set(ERR_WORK, "bug: shard %" PRIu64 " was written twice; please report it",
                   w->number);
  MetaFile *file = &s->open[w->number - recorded].file;
  file->bytes = w->bytes;
  memcpy(file->sha256, w->sha256, sizeof file->sha256);
  return ERR_OK;
}

/* Appends the completed shards to the manifest in order, up to the first one that is not on disk
 * yet. */
static Err record_shards(RankShards *s) {
  Prepare *p = s->p;
  size_t n = 0;
  Err err = ERR_OK;
  while (n < s->open_n && s->open[n].file.sha256[0] && !err) {
    err = prepare_record_shard(p, &s->open[n]);
    if (err) break;
    n++;
    fault_point("prepare-shard");
    err = prepare_check_windows(&p->meta->split[SPLIT_TRAIN], p->spec.window_pairs);
  }
  s->open_n -= n;
  memmove(s->open, s->open + n, s->open_n * sizeof *s->open);
  return err;
}

static Err take_reports(RankShards *s, size_t n) {
  for (size_t i = 0; i < n; i++) TRY(complete_entry(s, &s->report[i]));
  return record_shards(s);
}

Err shards_report(RankShards *s, const uint64_t *count, Err *failure) {
  size_t all = 0;
  for (size_t r = 0; r < s->count; r++) all += count[r];
  if (all == 0) return ERR_OK;
  memset(s->send_n, 0, s->count * sizeof *s->send_n);
  memset(s->recv_n, 0, s->count * sizeof *s->recv_n);
  if (s->rank == 0) {
    TRY(mem_grow(&s->report, &s->report_cap, all, sizeof *s->report));
    size_t at = 0;
    for (size_t r = 0; r < s->count; r++) {
      s->recv[r] = s->report + at;
      s->recv_n[r] = r ? count[r] * sizeof *s->report : 0;
      at += count[r];
    }
    if (s->written_n) memcpy(s->report, s->written, s->written_n * sizeof *s->report);
  } else {
    s->send[0] = s->written;
    s->send_n[0] = s->written_n * sizeof *s->written;
  }
  s->ranks->exchange(s->ranks->context, "shards on disk", s->send, s->send_n, s->recv,
                     s->recv_n);
  s->written_n = 0;
  if (s->rank == 0) *failure = take_reports(s, all);
  return ERR_OK;
}
