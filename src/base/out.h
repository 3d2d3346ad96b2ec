/* Standard output, with write errors detected and reported. Depends on err, utf8. */
#ifndef BASE_OUT_H
#define BASE_OUT_H

#include <stdbool.h>

#include "base/err.h"

/* Opens /dev/null in place of those of the descriptors 0 to 2 that are closed, so that no
 * file the program opens can become standard output. Writing to one of these still fails. */
void out_reserve(void);
/* Replaces standard output by a file, which is emptied first. Errors then name the file. */
NODISCARD Err out_to(const char *path);
/* Reports an earlier write to stdout that failed; call it right after the write. */
NODISCARD Err out_check(void);
NODISCARD Err out_print(const char *text);
/* Prints text from a file or an archive with terminal control characters escaped. */
void out_visible(const char *text);
/* Flushes stdout and reports a failed write, as out_check does. */
NODISCARD Err out_flush(void);
/* Was output lost because the reader of the pipe has ended, as in `trireme help | head -1`? */
bool out_is_reader_gone(void);

#endif
