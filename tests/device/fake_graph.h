/* Graphs of the fake GPU; see fake_graph.c. */
#ifndef FAKE_GRAPH_H
#define FAKE_GRAPH_H

#include "backend/backend.h"

/* Wraps the operations of the table so that they can be captured, and fills in graph_begin and so
 * on. */
void fake_graph_fill(Backend *b);
/* Aborts the program if a graph is being captured: `what` cannot be part of one. */
void fake_graph_refuses(const char *what);
/* The numbers of graphs captured, launched and not yet freed. */
void fake_graph_count(unsigned long count[3]);

#endif
