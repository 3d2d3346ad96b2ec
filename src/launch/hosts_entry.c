/* Checks one host of a list: the characters of its name, and that it is listed once. Depends on
 * base. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "launch/hosts_internal.h"

bool hosts_is_word(const char *text, const char *others) {
  for (const char *c = text; *c; c++) {
    bool is_alnum =
        (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
    if (!is_alnum && !strchr(others, *c)) return false;
  }
  return *text && *text != '-' && *text != '.';
}

/* Returns true for an IPv6 address, with or without an interface (fe80::1%eth0). */
static bool is_ipv6(const char *text) {
  char address[HOSTS_NAME_MAX];
  struct in6_addr parsed;
  snprintf(address, sizeof address, "%s", text);
  char *scope = strchr(address, '%');
  if (scope) {
    *scope = '\0';
    if (!hosts_is_word(scope + 1, "._-") || strlen(scope + 1) > 15) return false;
  }
  return inet_pton(AF_INET6, address, &parsed) == 1;
}

/* A text of digits and dots only must be a complete IPv4 address. ssh and getaddrinfo would
 * read 10.1 as 10.0.0.1, which is certainly a mistake. */
static bool is_ipv4_or_name(const char *text) {
  struct in_addr parsed;
  if (text[strspn(text, "0123456789.")] == '\0') return inet_pton(AF_INET, text, &parsed) == 1;
  return hosts_is_word(text, "._-");
}

bool hosts_is_address(const char *text) {
  return strlen(text) < HOSTS_NAME_MAX &&
         (strchr(text, ':') ? is_ipv6(text) : is_ipv4_or_name(text));
}

Err hosts_add(HostList *list, const Host *host, const char *where) {
  if (list->count == HOSTS_MAX)
    return err_set(ERR_USAGE, "%s: more than %d hosts; one launch has at most %d", where,
                   HOSTS_MAX, HOSTS_MAX);
  for (size_t i = 0; i < list->count; i++) {
    if (strcasecmp(list->host[i].address, host->address) != 0) continue;
    return err_set(ERR_USAGE, "%s: host %s is listed twice; list it once", where,
                   host->address);
  }
  TRY(mem_grow(&list->host, &list->capacity, list->count + 1, sizeof *list->host));
  list->host[list->count++] = *host;
  return ERR_OK;
}
