/* A queue of lines for a thread that writes them. Not thread-safe: the owner must lock it.
 * Depends on base. */
#ifndef LAUNCH_CONSOLE_QUEUE_H
#define LAUNCH_CONSOLE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LineItem LineItem;
struct LineItem {
  LineItem *next;
  int stream;    /* output stream; set and read by the owner */
  char name[64]; /* name of a log file; set and read by the owner */
  size_t len;
  char bytes[];
};

typedef struct {
  LineItem *first, **end;
  size_t bytes; /* bytes of memory that the items use */
} LineQueue;

void line_queue_init(LineQueue *q);
/* Makes an item with a copy of the bytes; NULL: out of memory. */
LineItem *line_queue_make_item(int stream, const char *name, const char *bytes, size_t len);
void line_queue_push(LineQueue *q, LineItem *item);
/* Removes the first item, which the caller frees with mem_free; NULL if the queue is empty. */
LineItem *line_queue_pop(LineQueue *q);
void line_queue_clear(LineQueue *q);
/* Returns the number of line breaks. */
uint64_t line_queue_count_lines(const char *bytes, size_t len);

#endif
