/* URLs without their secrets, for messages and for files that stay. Depends on sha256. */
#ifndef BASE_URL_H
#define BASE_URL_H

#include <stddef.h>

#define URL_SHOWN_MAX 1024

/* The URL as it may be shown: "user:password@" becomes "***@", and the value of every query
 * parameter "***", as signatures and tokens stand there under many names. Cut off with "..."
 * where it is longer than `shown` holds. Returns `shown`. */
const char *url_mask(const char *url, char shown[URL_SHOWN_MAX]);
/* A path as it may be shown: masked like a URL where it has a "://", else `path` itself. */
const char *url_mask_path(const char *path, char shown[URL_SHOWN_MAX]);
/* SHA-256 of the URL without "user:password@": tells URLs apart that look the same masked. */
void url_identify(const char *url, char hex[65]);

#endif
