/* Bottom-k sampling with a heap. Depends on base. */
#include "data/sample.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

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

void sample_free(Sample *s) {
  for (size_t i = 0; i < s->size; i++) mem_free(s->entry[i].text);
  mem_free(s->entry);
  *s = (Sample){0};
}
