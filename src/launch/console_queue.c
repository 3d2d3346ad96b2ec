/* A list of lines. Depends on base/mem. */
#include "launch/console_queue.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void line_queue_init(LineQueue *q) {
  q->first = NULL;
  q->end = &q->first;
  q->bytes = 0;
}

LineItem *line_queue_make_item(int stream, const char *name, const char *bytes, size_t len) {
  LineItem *item;
  if (mem_alloc(&item, 1, sizeof *item + len)) return NULL;
  item->stream = stream;
  snprintf(item->name, sizeof item->name, "%s", name);
  item->len = len;
  memcpy(item->bytes, bytes, len);
  return item;
}

void line_queue_push(LineQueue *q, LineItem *item) {
  item->next = NULL;
  *q->end = item;
  q->end = &item->next;
  q->bytes += sizeof *item + item->len;
}

LineItem *line_queue_pop(LineQueue *q) {
  LineItem *item = q->first;
  if (!item) return NULL;
  q->first = item->next;
  if (!q->first) q->end = &q->first;
  q->bytes -= sizeof *item + item->len;
  return item;
}

void line_queue_clear(LineQueue *q) {
  for (LineItem *item; (item = line_queue_pop(q));) mem_free(item);
}

uint64_t line_queue_count_lines(const char *bytes, size_t len) {
  uint64_t lines = 0;
  for (size_t i = 0; i < len; i++) lines += bytes[i] == '\n';
  return lines;
}
