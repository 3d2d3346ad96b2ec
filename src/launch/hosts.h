/* The machines of a launch, as given by the user:
 *   --hosts LIST         such as a:2,user@b:2,[fe80::1%eth0]:1
 *   --hostfile FILE      an Open MPI host file: HOST [slots=N] [max_slots=N]
 *   --inventory FILE     the JSON printed by `aws ec2 describe-instances`
 * All three are untrusted. Names become arguments of ssh, so only the characters of host
 * names, addresses and users are accepted, and no name may begin with '-'. Depends on base,
 * Jansson. */
#ifndef LAUNCH_HOSTS_H
#define LAUNCH_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define HOSTS_MAX      1024 /* largest number of machines of a launch */
#define HOSTS_SLOTS    4096 /* largest number of ranks on a machine */
#define HOSTS_NAME_MAX 254  /* size of a buffer for a host name (DNS allows 253 bytes) */
#define HOSTS_USER_MAX 33   /* size of a buffer for a user name (Linux allows 32 bytes) */

typedef struct {
  char user[HOSTS_USER_MAX]; /* user for ssh; "": ssh's own choice */
  /* Address to connect to: a name, IPv4, or IPv6 without brackets. */
  char address[HOSTS_NAME_MAX];
  /* Name in messages: the tag Name of an inventory, otherwise the address. */
  char name[HOSTS_NAME_MAX];
  /* Number of ranks; 0: not given, so it depends on the GPUs or cores of the machine. */
  int slots;
  int max_slots; /* largest number of ranks; 0: no limit */
} Host;

typedef struct {
  Host *host;
  size_t count, capacity;
} HostList;

/* The options that list the machines. At most one of the first three may be set. */
typedef struct {
  const char *hosts;     /* value of --hosts */
  const char *hostfile;  /* path of the host file */
  const char *inventory; /* path of the inventory */
  const char *user;      /* value of --ssh-user, for machines without a user of their own */
} HostSource;

/* Reads the machines. If no option is set the list is empty, which means this machine only.
 * Fails with ERR_USAGE, naming file and line or the JSON path. Call hosts_free also after an
 * error. */
NODISCARD Err hosts_read(HostList *list, const HostSource *source);
void hosts_free(HostList *list);

/* The parsers of the three formats. `where` is the name of the text in errors. */
NODISCARD Err hosts_parse_list(HostList *list, const char *text, size_t len);
NODISCARD Err hosts_parse_file(HostList *list, const char *text, size_t len, const char *where);
NODISCARD Err hosts_parse_aws(HostList *list, const char *text, size_t len, const char *where);

/* Returns true if the host is this machine: localhost, 127.0.0.0/8, ::1, or this machine's host
 * name, with or without its domain. Other names are not resolved. */
bool hosts_is_local(const Host *host);
/* Returns true if the host names no user, or the user of this process. */
bool hosts_is_own_user(const Host *host);

#endif
