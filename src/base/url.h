/* Masks the secrets in URLs, for messages and for files that are kept. Depends on sha256. */
#ifndef BASE_URL_H
#define BASE_URL_H

#include <stddef.h>

#define URL_SHOWN_MAX 1024

/* Masks a URL for messages: "user:password@" becomes "***@", and the value of every query
 * parameter becomes "***", because signatures and tokens have many parameter names. A URL longer
 * than the buffer is truncated with "...". Returns `shown`. */
const char *url_mask(const char *url, char shown[URL_SHOWN_MAX]);
/* Masks a path that contains "://" like a URL. Returns any other path unchanged. */
const char *url_mask_path(const char *path, char shown[URL_SHOWN_MAX]);
/* Computes the SHA-256 of the URL without "user:password@", which distinguishes URLs that are
 * equal after masking. */
void url_identify(const char *url, char hex[65]);

#endif
