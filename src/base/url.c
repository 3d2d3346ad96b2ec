/* Masks the secrets in URLs. Depends on sha256. */
#include "base/url.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

/* Returns true if the text after "host:" is not a port number. The text is then the beginning of
 * "user:password@", and the password contains a '/', '?' or '#'. */
static bool has_false_port(const char *host, size_t len) {
  const char *colon = memchr(host, ':', len);
  if (!colon || host[0] == '[') return false;
  size_t port = len - (size_t)(colon + 1 - host);
  return strspn(colon + 1, "0123456789") < port;
}

/* Returns the length of "user:password@" after the "://" of a URL, or 0 if there is none. A
 * password may contain '@', so the last '@' counts. */
static size_t measure_login(const char *host) {
  size_t len = strcspn(host, "/?#");
  for (size_t n = len; n > 0; n--) {
    if (host[n - 1] == '@') return n;
  }
  const char *last = has_false_port(host, len) ? strrchr(host, '@') : NULL;
  return last ? (size_t)(last + 1 - host) : 0;
}

static const char *find_host(const char *url) {
  const char *scheme = strstr(url, "://");
  return scheme ? scheme + 3 : url;
}

typedef struct {
  char *text;
  size_t len;
} Shown;

static void add_shown(Shown *s, const char *text, size_t len) {
  for (size_t i = 0; i < len && s->len < URL_SHOWN_MAX; i++) s->text[s->len++] = text[i];
}

/* Adds a query "?name=value&name=value" with every value replaced by "***". */
static void put_query(Shown *s, const char *query) {
  while (*query && *query != '#') {
    size_t part = 1 + strcspn(query + 1, "&#");
    const char *equals = memchr(query, '=', part);
    add_shown(s, query, equals ? (size_t)(equals + 1 - query) : 1);
    if (part > 1) add_shown(s, "***", 3);
    query += part;
  }
}

const char *url_mask(const char *url, char shown[URL_SHOWN_MAX]) {
  Shown s = {.text = shown};
  const char *host = find_host(url);
  size_t login = measure_login(host);
  add_shown(&s, url, (size_t)(host - url));
  if (login) add_shown(&s, "***@", 4);
  host += login;
  size_t path = strcspn(host, "?#");
  add_shown(&s, host, path);
  put_query(&s, host + path);
  if (s.len >= URL_SHOWN_MAX) {
    memcpy(shown + URL_SHOWN_MAX - 4, "...", 4);
  } else {
    shown[s.len] = '\0';
  }
  return shown;
}

const char *url_mask_path(const char *path, char shown[URL_SHOWN_MAX]) {
  return strstr(path, "://") ? url_mask(path, shown) : path;
}

void url_identify(const char *url, char hex[65]) {
  const char *host = find_host(url);
  const char *rest = host + measure_login(host);
  Sha256 sha;
  sha256_begin(&sha);
  sha256_add(&sha, url, (size_t)(host - url));
  sha256_add(&sha, rest, strlen(rest));
  sha256_end(&sha, hex);
}
