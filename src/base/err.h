/* Errors: a function that can fail returns Err and stores a message in this thread's error
 * record. Only main() prints it and exits. Depends on utf8. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>

typedef enum {
  ERR_OK = 0,      /* success */
  ERR_WORK = 1,    /* the work failed */
  ERR_USAGE = 2,   /* the command line or a config file is wrong */
  ERR_STOPPED = 3, /* stopped by a signal after saving; can be resumed */
} Err;

#define NODISCARD               __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))

/* Records the message and returns `code`: return err_set(ERR_WORK, "…"); Arguments may come from
 * untrusted files: terminal control characters are escaped (utf8_visible). */
Err err_set(Err code, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Records "WHAT PATH: strerror(errno)", with a remedy for the common causes. */
Err err_errno(const char *what, const char *path);
/* Puts "context: " before the recorded message and returns its code. */
Err err_context(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* The recorded message; never NULL. */
const char *err_message(void);

/* Passes an error between threads: the worker calls err_take, the thread that joins it calls
 * err_give. */
typedef struct {
  Err code;
  char text[1024];
} ErrRecord;
ErrRecord err_take(Err code);
Err err_give(const ErrRecord *record);
/* Copies this thread's record, to restore it with err_give after calls that may overwrite it. */
ErrRecord err_copy(void);

#define TRY(call)                  \
  do {                             \
    Err try_err_ = (call);         \
    if (try_err_) return try_err_; \
  } while (0)

/* For functions that clean up: needs a local `Err err` and a label `done`. */
#define TRY_DONE(call)  \
  do {                  \
    err = (call);       \
    if (err) goto done; \
  } while (0)

#endif
