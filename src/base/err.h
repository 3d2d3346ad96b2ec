/* Errors: a function that can fail returns Err and leaves one sentence in this
 * thread's error record. Only main() prints it and exits. Relies on utf8. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>

typedef enum {
  ERR_OK = 0,      /* done */
  ERR_WORK = 1,    /* the work failed */
  ERR_USAGE = 2,   /* the call was wrong */
  ERR_STOPPED = 3, /* a signal ended the work; it is saved and can go on */
} Err;

#define NODISCARD               __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))

/* Records the sentence and returns `code`: return err_set(ERR_WORK, "…"); Names and texts in
 * it may be anything: what a terminal would obey is made visible (utf8_visible). */
Err err_set(Err code, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* "WHAT PATH: strerror(errno)", with a remedy for the common causes. */
Err err_errno(const char *what, const char *path);
/* Puts "context: " before the recorded sentence and returns its code. */
Err err_context(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* The recorded sentence; never NULL. */
const char *err_message(void);

/* A worker's error travels to its master: copy it out there, set it here. */
typedef struct {
  Err code;
  char text[1024];
} ErrRecord;
ErrRecord err_take(Err code);
Err err_give(const ErrRecord *record);
/* This thread's record with its code, for err_give after calls that may replace it. */
ErrRecord err_copy(void);

#define TRY(call)                  \
  do {                             \
    Err try_err_ = (call);         \
    if (try_err_) return try_err_; \
  } while (0)

/* For functions that clean up: wants a local `Err err` and a label `done`. */
#define TRY_DONE(call)  \
  do {                  \
    err = (call);       \
    if (err) goto done; \
  } while (0)

#endif
