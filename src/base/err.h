/* Errors: a function that can fail returns Err and stores a message in this thread's error
 * record. Only main() prints it and exits. Depends on utf8. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>

typedef enum {
  ERR_OK = 0,      /* The function succeeded. */
  ERR_WORK = 1,    /* The function failed. */
  ERR_USAGE = 2,   /* The command line or a config file is wrong. */
  ERR_STOPPED = 3, /* A signal stopped the job after it saved; --resume continues it. */
} Err;

#define NODISCARD               __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))

/* Stores the message in the error record and returns `code`, as in: return err_set(ERR_WORK,
 * "…"); Arguments may come from untrusted files: terminal control characters are escaped
 * (utf8_visible). */
Err err_set(Err code, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Stores the message "WHAT PATH: strerror(errno)", with a remedy for the common causes. */
Err err_errno(const char *what, const char *path);
/* Inserts "context: " before the stored message and returns the stored code. */
Err err_context(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Returns the stored message; never NULL. */
const char *err_message(void);

/* Passes an error between threads: the worker calls err_take, the thread that joins it calls
 * err_give. */
typedef struct {
  Err code;
  char text[1024];
} ErrRecord;
ErrRecord err_take(Err code);
Err err_give(const ErrRecord *record);
/* Returns a copy of this thread's error record. err_give restores it after calls that may
 * overwrite it. */
ErrRecord err_copy(void);

#define TRY(call)                  \
  do {                             \
    Err try_err_ = (call);         \
    if (try_err_) return try_err_; \
  } while (0)

/* Jumps to the label `done` after an error, for functions that clean up. Requires a local
 * variable `Err err`. */
#define TRY_DONE(call)  \
  do {                  \
    err = (call);       \
    if (err) goto done; \
  } while (0)

#endif
