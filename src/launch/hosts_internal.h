/* What the parsers of hosts share. Depends on hosts. */
#ifndef LAUNCH_HOSTS_INTERNAL_H
#define LAUNCH_HOSTS_INTERNAL_H

#include "launch/hosts.h"

/* Is the text made of letters, digits and `others`, and does it not begin with '-' or '.'? */
bool hosts_is_word(const char *text, const char *others);
/* Is the text safe and sensible to connect to: a host name, an IPv4 or an IPv6 address? */
bool hosts_is_address(const char *text);
/* Appends a host; ERR_USAGE if its address is already in the list or the list is full. `where` is
 * the file and line, or JSON path, for errors. */
NODISCARD Err hosts_add(HostList *list, const Host *host, const char *where);

#endif
