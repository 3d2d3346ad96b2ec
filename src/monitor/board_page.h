/* The files of the board's page, which are part of the plug-in. No dependencies. */
#ifndef MONITOR_BOARD_PAGE_H
#define MONITOR_BOARD_PAGE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
  const char *type; /* its Content-Type */
  const char *bytes;
  size_t len;
} BoardPage;

/* Finds the file for a path of a request, such as "/board.js". Returns false if there is none. */
bool board_page(const char *path, BoardPage *page);

#endif
