/* Bottom-k sampling with a heap: keeps the k pairs with the smallest hashes. Depends on base,
 * ranks. */
#include "data/sample.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

void sample_begin(Sample *s, uint64_t seed, size_t most) {
  *s = (Sample){.seed = seed, .most = most};
}

static void swap_entries(SampleEntry *a, SampleEntry *b) {
  SampleEntry t = *a;
  *a = *b;
  *b = t;
}

static void sift_up(SampleEntry *e, size_t i) {
  for (; i && e[i].hash > e[(i - 1) / 2].hash; i = (i - 1) / 2)
    swap_entries(&e[i], &e[(i - 1) / 2]);
}

static void sift_down(SampleEntry *e, size_t n, size_t i) {
  for (;;) {
    size_t largest = i, left = 2 * i + 1;
    if (left < n && e[left].hash > e[largest].hash) largest = left;
    if (left + 1 < n && e[left + 1].hash > e[largest].hash) largest = left + 1;
    if (largest == i) return;
    swap_entries(&e[i], &e[largest]);
    i = largest;
  }
}

Err sample_add(Sample *s, uint64_t line, const char *const text[2], const size_t len[2]) {
  SampleEntry e = {.hash = rng_mix(s->seed, line),
                   .line = line,
                   .len = {(uint32_t)len[0], (uint32_t)len[1]}};
  if (s->size == s->most && e.hash >= s->entry[0].hash) return ERR_OK;
  TRY(mem_grow(&s->entry, &s->cap, s->size + 1, sizeof *s->entry));
  TRY(mem_alloc(&e.text, len[0] + len[1] + 1, 1));
  memcpy(e.text, text[0], len[0]);
  memcpy(e.text + len[0], text[1], len[1]);
  if (s->size < s->most) {
    s->entry[s->size] = e;
    sift_up(s->entry, s->size++);
  } else {
    mem_free(s->entry[0].text);
    s->entry[0] = e;
    sift_down(s->entry, s->size, 0);
  }
  return ERR_OK;
}

static int by_line(const void *a, const void *b) {
  uint64_t x = ((const SampleEntry *)a)->line, y = ((const SampleEntry *)b)->line;
  return (x > y) - (x < y);
}

void sample_sort(Sample *s) {
  if (s->size) qsort(s->entry, s->size, sizeof *s->entry, by_line);
  s->next = 0;
}

bool sample_line(void *sample, const char **line, size_t *len) {
  Sample *s = sample;
  if (s->next / 2 >= s->size) return false;
  const SampleEntry *e = &s->entry[s->next / 2];
  int side = (int)(s->next++ % 2);
  *line = e->text + (side ? e->len[0] : 0);
  *len = e->len[side];
  return true;
}

/* ---- several ranks ----
 * A pair that is among the `most` smallest hashes of all ranks is also among the `most` smallest
 * hashes of its own rank. */

static int compare_hashes(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Computes *limit, the largest hash in the sample of all ranks. size: (count) sizes of the ranks'
 * samples. */
static Err find_limit(const Sample *s, const Ranks *r, const uint64_t *size, uint64_t *limit) {
  size_t count = (size_t)r->count, *off;
  uint64_t *hash = NULL;
  TRY(mem_alloc(&off, count + 1, sizeof *off));
  for (size_t i = 0; i < count; i++) off[i + 1] = off[i] + size[i] * sizeof *hash;
  size_t all = off[count] / sizeof *hash;
  Err err = mem_alloc(&hash, all, sizeof *hash);
  if (!err) {
    uint64_t *mine = hash + off[r->rank] / sizeof *hash;
    for (size_t i = 0; i < s->size; i++) mine[i] = s->entry[i].hash;
    r->allgather(r->context, "hashes of the sample", hash, off);
    *limit = UINT64_MAX;
    if (all > s->most) {
      qsort(hash, all, sizeof *hash, compare_hashes);
      *limit = hash[s->most - 1];
    }
  }
  mem_free(hash);
  mem_free(off);
  return err;
}

/* Header that is sent before the text of a pair. */
typedef struct {
  uint64_t line;
  uint32_t len[2];
} SentPair;

static Err write_pairs(const Sample *s, uint64_t limit, Str *out) {
  for (size_t i = 0; i < s->size; i++) {
    const SampleEntry *e = &s->entry[i];
    if (e->hash > limit) continue;
    SentPair head = {e->line, {e->len[0], e->len[1]}};
    str_addn(out, (const char *)&head, sizeof head);
    str_addn(out, e->text, (size_t)e->len[0] + e->len[1]);
  }
  return str_check(out);
}

static Err read_pairs(Sample *s, const char *bytes, size_t n) {
  for (size_t at = 0; at < n;) {
    SentPair head;
    memcpy(&head, bytes + at, sizeof head);
    at += sizeof head;
    const char *text[2] = {bytes + at, bytes + at + head.len[0]};
    size_t len[2] = {head.len[0], head.len[1]};
    TRY(sample_add(s, head.line, text, len));
    at += len[0] + len[1];
  }
  return ERR_OK;
}

/* Sends the pairs of rank `from` to rank 0. Called for one rank at a time, to bound the
 * memory. */
static Err send_pairs(Sample *s, const Ranks *r, int from, uint64_t bytes, Str *mine) {
  size_t count = (size_t)r->count;
  const void **send;
  void **recv;
  size_t *n;
  char *buffer = NULL;
  TRY(mem_alloc(&send, 2 * count, sizeof *send));
  recv = (void **)(send + count);
  Err err;
  TRY_DONE(mem_alloc(&n, 2 * count, sizeof *n));
  if (r->rank == 0) {
    TRY_DONE(mem_alloc(&buffer, bytes + 1, 1));
    recv[from] = buffer;
    n[count + (size_t)from] = bytes;
  } else if (r->rank == from) {
    send[0] = mine->s;
    n[0] = bytes;
  }
  r->exchange(r->context, "sample", send, n, recv, n + count);
  if (r->rank == 0) err = read_pairs(s, buffer, bytes);
done:
  mem_free(buffer);
  mem_free(n);
  mem_free(send);
  return err;
}

Err sample_gather(Sample *s, Ranks *r) {
  if (ranks_count(r) == 1) return ERR_OK;
  uint64_t size = s->size, *all, limit;
  Str mine = {0};
  TRY(mem_alloc(&all, (size_t)r->count, sizeof *all));
  Err err;
  TRY_DONE(ranks_gather(r, "sizes of the sample", &size, sizeof size, all));
  TRY_DONE(find_limit(s, r, all, &limit));
  TRY_DONE(ranks_agree(r, r->rank ? write_pairs(s, limit, &mine) : ERR_OK));
  size = mine.len;
  TRY_DONE(ranks_gather(r, "sizes of the sample", &size, sizeof size, all));
  for (int from = 1; from < r->count; from++)
    TRY_DONE(send_pairs(s, r, from, all[from], &mine));
  if (r->rank) sample_free(s);
done:
  str_free(&mine);
  mem_free(all);
  return err;
}

void sample_free(Sample *s) {
  for (size_t i = 0; i < s->size; i++) mem_free(s->entry[i].text);
  mem_free(s->entry);
  *s = (Sample){0};
}
