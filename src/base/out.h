/* Standard output, with write errors detected and reported. Depends on err, utf8. */
#ifndef BASE_OUT_H
#define BASE_OUT_H

#include <stdbool.h>

#include "base/err.h"

/* Opens /dev/null on each of the descriptors 0 to 2 that is closed, so that no file opened later
 * becomes standard output. Writing to such a descriptor still fails. */
void out_reserve(void);
/* Redirects standard output to a file. A regular file is written beside it, as PATH.partial, and gets
 * its name in out_finish; devices, pipes, and files in a directory that cannot be written are written
 * directly. Fails if another process is writing PATH.partial, or if it is the file `input` ("-": standard
 * input). Later errors name the file. */
NODISCARD Err out_to(const char *path, const char *input);
/* Ends the file of out_to: flushes it and gives it its name. Does nothing without out_to. */
NODISCARD Err out_finish(void);
/* After an error: removes the unfinished file if it is empty, and unlocks it. */
void out_give_up(void);
/* Returns the path of the unfinished file; NULL if there is none. */
const char *out_partial(void);
/* Fails if an earlier write to stdout failed. Call it directly after the write, while errno is
 * valid. */
NODISCARD Err out_check(void);
NODISCARD Err out_print(const char *text);
/* Prints text from a file or an archive with terminal control characters escaped. */
void out_visible(const char *text);
/* Flushes stdout. Fails if this or an earlier write failed. */
NODISCARD Err out_flush(void);
/* Returns true if output was lost because the reader of the pipe has ended, as in `trireme help |
 * head -1`. */
bool out_is_reader_gone(void);

#endif
