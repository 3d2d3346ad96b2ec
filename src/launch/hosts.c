/* Reads the list of machines from the options. Depends on hosts_text, hosts_aws, base. */
#include "launch/hosts.h"

#include <arpa/inet.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "launch/hosts_internal.h"

/* Largest file in bytes; 1,024 instances of AWS need about 8 MB. */
#define FILE_LIMIT ((size_t)16 << 20)

static Err read_file(HostList *list, const char *path,
                     Err (*parse)(HostList *, const char *, size_t, const char *)) {
  Str text = {0};
  Err err = file_read(path, FILE_LIMIT, &text);
  if (!err) err = parse(list, str_text(&text), text.len, path);
  str_free(&text);
  return err;
}

static Err set_user(HostList *list, const char *user) {
  if (strlen(user) >= HOSTS_USER_MAX || !hosts_is_word(user, "._-"))
    return err_set(
        ERR_USAGE,
        "--ssh-user '%.60s' is not a user name; use letters, digits, '.', '-' and '_'", user);
  for (size_t i = 0; i < list->count; i++) {
    Host *host = &list->host[i];
    if (!host->user[0]) snprintf(host->user, sizeof host->user, "%s", user);
  }
  return ERR_OK;
}

static Err read_source(HostList *list, const HostSource *source) {
  if (source->hosts) return hosts_parse_list(list, source->hosts, strlen(source->hosts));
  if (source->hostfile) return read_file(list, source->hostfile, hosts_parse_file);
  if (source->inventory) return read_file(list, source->inventory, hosts_parse_aws);
  return ERR_OK;
}

Err hosts_read(HostList *list, const HostSource *source) {
  *list = (HostList){0};
  int given = !!source->hosts + !!source->hostfile + !!source->inventory;
  if (given > 1)
    return err_set(ERR_USAGE,
                   "--hosts, --hostfile and --inventory exclude each other; pass one");
  TRY(read_source(list, source));
  return source->user ? set_user(list, source->user) : ERR_OK;
}

void hosts_free(HostList *list) {
  mem_free(list->host);
  *list = (HostList){0};
}

bool hosts_is_local(const Host *host) {
  char own[HOSTS_NAME_MAX] = "";
  const char *address = host->address;
  if (strcasecmp(address, "localhost") == 0 || strcmp(address, "::1") == 0) return true;
  struct in_addr parsed;
  if (inet_pton(AF_INET, address, &parsed) == 1) return (ntohl(parsed.s_addr) >> 24) == 127;
  if (gethostname(own, sizeof own - 1) != 0 || !own[0]) return false;
  /* Compare up to the first dot if one of the names has no domain: "n1" and "n1.example.org"
   * are the same machine, "n1.a.org" and "n1.b.org" are not. */
  if (!strchr(address, '.')) own[strcspn(own, ".")] = '\0';
  size_t len = strlen(own);
  return strncasecmp(address, own, len) == 0 &&
         (!address[len] || (!strchr(own, '.') && address[len] == '.'));
}

bool hosts_is_own_user(const Host *host) {
  struct passwd me, *found = NULL;
  char text[4096];
  if (!host->user[0]) return true;
  return getpwuid_r(getuid(), &me, text, sizeof text, &found) == 0 && found &&
         strcmp(me.pw_name, host->user) == 0;
}
