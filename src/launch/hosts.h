/* The machines of a launch, as the user names them:
 *   --hosts a:2,user@b:2,[fe80::1%eth0]:1    a list
 *   --hostfile FILE                          an Open MPI host file: HOST [slots=N] [max_slots=N]
 *   --inventory FILE                         the JSON of `aws ec2 describe-instances`
 * All three are untrusted: names become arguments of ssh, so only the characters of host names,
 * addresses and users are accepted, and none may begin with '-'. Depends on base, Jansson. */
#ifndef LAUNCH_HOSTS_H
#define LAUNCH_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define HOSTS_MAX      1024 /* machines of one launch */
#define HOSTS_SLOTS    4096 /* ranks on one machine */
#define HOSTS_NAME_MAX 254  /* bytes of a host name with its NUL (DNS allows 253) */
#define HOSTS_USER_MAX 33   /* bytes of a user name with its NUL (Linux allows 32) */

typedef struct {
  char user[HOSTS_USER_MAX];    /* "": ssh's own choice */
  char address[HOSTS_NAME_MAX]; /* what to connect to: a name, IPv4, or IPv6 without brackets */
  char name[HOSTS_NAME_MAX]; /* for messages: the tag Name of an inventory, else the address */
  int slots;                 /* ranks; 0: not given, decided from the machine's GPUs or cores */
  int max_slots;             /* upper bound of ranks; 0: none */
} Host;

typedef struct {
  Host *host;
  size_t count, capacity;
} HostList;

/* Where the machines are listed. At most one of the first three may be set. */
typedef struct {
  const char *hosts;     /* text of --hosts */
  const char *hostfile;  /* path */
  const char *inventory; /* path */
  const char *user;      /* --ssh-user: of the machines for which the source names none */
} HostSource;

/* Reads the machines of the source that is set. With none set the list is empty: one machine,
 * this one. ERR_USAGE with file and line or JSON path. hosts_free also after an error. */
NODISCARD Err hosts_read(HostList *list, const HostSource *source);
void hosts_free(HostList *list);

/* The three parsers. `where` names the text in errors. */
NODISCARD Err hosts_parse_list(HostList *list, const char *text, size_t len);
NODISCARD Err hosts_parse_file(HostList *list, const char *text, size_t len, const char *where);
NODISCARD Err hosts_parse_aws(HostList *list, const char *text, size_t len, const char *where);

/* Is the host this machine? True for localhost, 127.0.0.0/8, ::1, and this machine's host name,
 * with or without its domain. Other names are not resolved. */
bool hosts_is_local(const Host *host);

#endif
