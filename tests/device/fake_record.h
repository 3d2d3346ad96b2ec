/* Recordings of the GPU that is none; see fake_record.c. */
#ifndef FAKE_RECORD_H
#define FAKE_RECORD_H

#include "backend/backend.h"

/* Puts itself before the operations of the table and fills its part that records. */
void fake_record_fill(Backend *b);
/* Ends the program if the call, which no recording can hold, comes in the middle of one. */
void fake_record_refuses(const char *what);
/* How many there were, were replayed, and are still there. */
void fake_record_count(unsigned long count[3]);

#endif
