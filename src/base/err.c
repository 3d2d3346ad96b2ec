/* The per-thread error record: a message and a code. Depends on utf8. */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/url.h"
#include "base/utf8.h"

static _Thread_local ErrRecord record;

Err err_set(Err code, const char *fmt, ...) {
  /* Formats into a second buffer, because an argument may be the text of the record itself. */
  char text[2 * sizeof record.text];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  utf8_visible(text, record.text, sizeof record.text);
  record.code = code;
  return code;
}

static const char *find_remedy(int error) {
  switch (error) {
    case ENOSPC:
      return "; free some space or choose another disk";
    case EDQUOT:
      return "; your disk quota is used up";
    case EACCES:
    case EPERM:
      return "; check the permissions";
    case EROFS:
      return "; choose a place that can be written";
    case EFBIG:
      return "; the file size limit is reached: raise it with 'ulimit -f'";
    case EMFILE:
      return "; the limit of open files is reached: raise it with 'ulimit -n'";
    default:
      return "";
  }
}

Err err_errno(const char *what, const char *path) {
  int error = errno;
  /* `path` may be a URL with a password, which must not appear in a message. */
  char shown[URL_SHOWN_MAX];
  return err_set(ERR_WORK, "%s %s: %s%s", what, url_mask_path(path, shown), strerror(error),
                 find_remedy(error));
}

Err err_context(const char *fmt, ...) {
  char context[sizeof record.text];
  va_list args;
  va_start(args, fmt);
  vsnprintf(context, sizeof context, fmt, args);
  va_end(args);
  return err_set(record.code, "%s: %s", context, record.text);
}

const char *err_message(void) {
  return record.text;
}

ErrRecord err_copy(void) {
  return record;
}

ErrRecord err_take(Err code) {
  ErrRecord copy = record;
  copy.code = code;
  return copy;
}

Err err_give(const ErrRecord *given) {
  record = *given;
  return record.code;
}
