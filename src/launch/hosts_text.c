/* The parsers of --hosts and of Open MPI's host files. Depends on hosts_entry, base. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "launch/hosts_internal.h"

/* A part of the parsed text; not NUL-terminated. */
typedef struct {
  const char *at;
  size_t len;
} Span;

static Span trim_blanks(Span s) {
  while (s.len && isspace((unsigned char)s.at[0])) {
    s.at++;
    s.len--;
  }
  while (s.len && isspace((unsigned char)s.at[s.len - 1])) s.len--;
  return s;
}

/* Returns the number of bytes of a span that a message prints, at most 60. */
static int shown_length(Span s) {
  return s.len < 60 ? (int)s.len : 60;
}

/* Splits at the first `mark`; *rest is empty if there is none. */
static Span split_at(Span s, char mark, Span *rest) {
  const char *found = s.len ? memchr(s.at, mark, s.len) : NULL;
  size_t len = found ? (size_t)(found - s.at) : s.len;
  *rest = found ? (Span){found + 1, s.len - len - 1} : (Span){s.at + s.len, 0};
  return (Span){s.at, len};
}

static bool copy_span(char *out, size_t room, Span s) {
  if (s.len == 0 || s.len >= room || memchr(s.at, '\0', s.len)) return false;
  memcpy(out, s.at, s.len);
  out[s.len] = '\0';
  return true;
}

static Err parse_count(Span s, const char *what, const char *where, int *value) {
  char text[8];
  int n = 0;
  bool is_number = copy_span(text, sizeof text, s) && text[strspn(text, "0123456789")] == '\0';
  if (is_number) sscanf(text, "%d", &n);
  if (n < 1 || n > HOSTS_SLOTS)
    return err_set(ERR_USAGE, "%s: %s '%.*s' is not a whole number from 1 to %d", where, what,
                   shown_length(s), s.at, HOSTS_SLOTS);
  *value = n;
  return ERR_OK;
}

/* Parses "user@" at the beginning of the span and removes it. */
static Err parse_user(Host *host, Span *s, const char *where) {
  Span rest;
  Span user = split_at(*s, '@', &rest);
  if (user.len == s->len) return ERR_OK;
  if (!copy_span(host->user, sizeof host->user, user) || !hosts_is_word(host->user, "._-"))
    return err_set(ERR_USAGE, "%s: '%.*s' is not a user name; write USER@HOST", where,
                   shown_length(user), user.at);
  *s = rest;
  return ERR_OK;
}

static Err set_address(Host *host, Span s, const char *where) {
  if (!copy_span(host->address, sizeof host->address, s) || !hosts_is_address(host->address))
    return err_set(ERR_USAGE,
                   "%s: '%.*s' is not a host name or an IP address (letters, digits, '.', '-' "
                   "and '_'; IPv6 as [fe80::1%%eth0])",
                   where, shown_length(s), s.at);
  memcpy(host->name, host->address, sizeof host->name);
  return ERR_OK;
}

/* Parses an address, [IPv6] or plain. *rest is the text after the ':' that follows the
 * address, if any. A text with several ':' and no brackets is an IPv6 address without a
 * number of ranks. */
static Err parse_address(Host *host, Span s, const char *where, Span *rest) {
  *rest = (Span){0};
  if (s.len && s.at[0] == '[') {
    Span after;
    Span inside = split_at((Span){s.at + 1, s.len - 1}, ']', &after);
    bool is_closed = inside.len < s.len - 1;
    if (!is_closed || (after.len && after.at[0] != ':'))
      return err_set(ERR_USAGE,
                     "%s: '%.*s' has no ']' after the address, or text after it; write "
                     "[ADDRESS] or [ADDRESS]:N",
                     where, shown_length(s), s.at);
    if (after.len) *rest = (Span){after.at + 1, after.len - 1};
    if (!memchr(inside.at, ':', inside.len))
      return err_set(ERR_USAGE,
                     "%s: '%.*s' is in brackets but is not an IPv6 address; write [fe80::1], "
                     "or the name without brackets",
                     where, shown_length(inside), inside.at);
    return set_address(host, inside, where);
  }
  Span slots;
  Span name = split_at(s, ':', &slots);
  bool has_one = name.len < s.len && (!slots.len || !memchr(slots.at, ':', slots.len));
  if (has_one) *rest = slots;
  return set_address(host, has_one ? name : s, where);
}

/* Parses HOST, HOST:N, USER@HOST:N or [IPV6]:N. */
static Err parse_entry(HostList *list, Span s) {
  static const char where[] = "--hosts";
  Host host = {0};
  Span slots;
  if (!s.len)
    return err_set(ERR_USAGE, "%s: a host is missing between two commas; write a:2,b:2", where);
  TRY(parse_user(&host, &s, where));
  TRY(parse_address(&host, s, where, &slots));
  if (slots.at) TRY(parse_count(slots, "number of ranks", where, &host.slots));
  return hosts_add(list, &host, where);
}

Err hosts_parse_list(HostList *list, const char *text, size_t len) {
  Span rest = trim_blanks((Span){text, len});
  if (!rest.len) return err_set(ERR_USAGE, "--hosts is empty; write a:2,b:2");
  bool is_last = false;
  while (!is_last) {
    Span entry = split_at(rest, ',', &rest);
    is_last = entry.at + entry.len == rest.at;
    TRY(parse_entry(list, trim_blanks(entry)));
  }
  return ERR_OK;
}

static bool is_one_of(Span s, const char *const *names) {
  for (; *names; names++)
    if (strlen(*names) == s.len && memcmp(*names, s.at, s.len) == 0) return true;
  return false;
}

/* Parses one KEY=VALUE of a host file; accepts the keys that Open MPI accepts. */
static Err parse_setting(Host *host, Span s, const char *where) {
  static const char *const slots[] = {"slots", "count", "cpus", NULL};
  static const char *const max_slots[] = {"max_slots", "max-slots", "slots_max", "slots-max",
                                          NULL};
  static const char *const user[] = {"user", "username", "user_name", NULL};
  Span value;
  Span key = split_at(s, '=', &value);
  if (is_one_of(key, slots)) return parse_count(value, "slots", where, &host->slots);
  if (is_one_of(key, max_slots))
    return parse_count(value, "max_slots", where, &host->max_slots);
  if (is_one_of(key, user) && copy_span(host->user, sizeof host->user, value) &&
      hosts_is_word(host->user, "._-"))
    return ERR_OK;
  return err_set(ERR_USAGE,
                 "%s: '%.*s' is not understood; a line is HOST [slots=N] [max_slots=N]", where,
                 shown_length(s), s.at);
}

static Span next_word(Span *line) {
  *line = trim_blanks(*line);
  size_t len = 0;
  while (len < line->len && !isspace((unsigned char)line->at[len])) len++;
  Span word = {line->at, len};
  line->at += len;
  line->len -= len;
  return word;
}

static Err parse_line(HostList *list, Span line, const char *where) {
  Host host = {0};
  Span rest;
  line = split_at(line, '#', &rest);
  Span name = next_word(&line);
  if (!name.len) return ERR_OK;
  TRY(parse_user(&host, &name, where));
  TRY(parse_address(&host, name, where, &rest));
  if (rest.at)
    return err_set(ERR_USAGE, "%s: '%.*s': a host file gives the ranks as 'HOST slots=N'",
                   where, shown_length(name), name.at);
  for (Span word = next_word(&line); word.len; word = next_word(&line))
    TRY(parse_setting(&host, word, where));
  if (host.max_slots && host.slots > host.max_slots)
    return err_set(
        ERR_USAGE,
        "%s: host %s has slots=%d above max_slots=%d; lower slots or raise max_slots", where,
        host.address, host.slots, host.max_slots);
  return hosts_add(list, &host, where);
}

Err hosts_parse_file(HostList *list, const char *text, size_t len, const char *where) {
  Span rest = {text, len};
  for (size_t number = 1; rest.len; number++) {
    char place[FILE_PATH_MAX + 32];
    Span line = split_at(rest, '\n', &rest);
    snprintf(place, sizeof place, "%s:%zu", where, number);
    TRY(parse_line(list, line, place));
  }
  if (list->count) return ERR_OK;
  return err_set(ERR_USAGE, "%s lists no host; write one per line: HOST slots=N", where);
}
