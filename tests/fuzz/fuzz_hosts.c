/* Lists of hosts as hostile bytes: whatever is accepted is safe as an argument of ssh, and no host
 * is listed twice. The first byte selects the parser. Depends on launch/hosts. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launch/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_safe(const char *text) {
  for (const char *c = text; *c; c++)
    if (*c <= ' ' || *c > '~' || strchr("\"'`$\\;&|<>()*?@[]{}~!#,/=", *c)) abort();
  if (*text == '-') abort();
}

static void check_list(const HostList *list) {
  if (list->count == 0 || list->count > HOSTS_MAX) abort();
  for (size_t i = 0; i < list->count; i++) {
    const Host *h = &list->host[i];
    if (!h->address[0] || h->slots < 0 || h->slots > HOSTS_SLOTS) abort();
    require_safe(h->address);
    require_safe(h->user);
    require_safe(h->name);
    for (size_t j = 0; j < i; j++)
      if (strcmp(h->address, list->host[j].address) == 0) abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const char *text = (const char *)data + 1;
  HostList list = {0};
  Err err;
  switch (data[0] % 3) {
    case 0:
      err = hosts_parse_list(&list, text, size - 1);
      break;
    case 1:
      err = hosts_parse_file(&list, text, size - 1, "fuzz");
      break;
    default:
      err = hosts_parse_aws(&list, text, size - 1, "fuzz");
      break;
  }
  if (!err) check_list(&list);
  hosts_free(&list);
  return 0;
}
