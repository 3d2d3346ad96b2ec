/* Functions shared by the parsers of hosts. Depends on hosts. */
#ifndef LAUNCH_HOSTS_INTERNAL_H
#define LAUNCH_HOSTS_INTERNAL_H

#include "launch/hosts.h"

/* Returns true if the text consists of letters, digits and `others`, and does not begin with
 * '-' or '.'. */
bool hosts_is_word(const char *text, const char *others);
/* Returns true if the text is a host name, an IPv4 or an IPv6 address, and is safe as an
 * argument of ssh. */
bool hosts_is_address(const char *text);
/* Appends a host. Fails with ERR_USAGE if its address is already in the list or the list is
 * full. `where`: file and line, or JSON path, for errors. */
NODISCARD Err hosts_add(HostList *list, const Host *host, const char *where);

#endif
