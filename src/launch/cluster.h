/* `trireme cluster`: prepares machines that exist, over ssh, and undoes that. Each host is handled
 * by a thread of its own, so a slow or dead host delays no other; a host that fails stops at the
 * failed step and the others go on. What runs on a host is cluster.sh. Depends on hosts, ssh, base. */
#ifndef LAUNCH_CLUSTER_H
#define LAUNCH_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/file.h"
#include "launch/hosts.h"
#include "launch/ssh.h"

/* A drive, as a line of /etc/fstab. None of the texts has blanks. */
typedef struct {
  char type[8]; /* "nfs" or "cifs" */
  char source[1024];
  char point[1024];
  char options[1024];
  char server[256];
} ClusterMount;

#define CLUSTER_MOUNTS 8

/* A file of the program that is copied: its place below the program directory, and its bytes. */
typedef struct {
  char path[128];
  char sum[65]; /* SHA-256 */
  Str bytes;
} ClusterFile;

#define CLUSTER_FILES   4
#define CLUSTER_DIR_MAX 512

typedef struct {
  ClusterFile file[CLUSTER_FILES];
  size_t files;
  const char *arch; /* as `uname -m` names it */
} ClusterProgram;

typedef struct {
  const HostList *hosts;
  SshOptions ssh;
  const char *dir; /* program directory on the hosts; may be relative to the home directory */
  ClusterProgram program;
  ClusterMount mount[CLUSTER_MOUNTS];
  size_t mounts;
  Str credentials; /* contents of the credentials file for CIFS; never printed */
  bool may_install;
} ClusterSpec;

/* Parses the value of --mount: TYPE://SERVER/PATH:/MOUNT-POINT; `more` are further mount options,
 * or NULL. Errors show no password. */
NODISCARD Err cluster_parse_mount(ClusterMount *m, const char *text, const char *more);
/* Reads the credentials file of CIFS: lines username=, password=, domain=. It must not be readable
 * by others. Errors show nothing of its contents. */
NODISCARD Err cluster_read_credentials(Str *into, const char *path);
/* Checks a program directory: characters that no shell interprets, and not one of the system's. */
NODISCARD Err cluster_check_dir(const char *dir);
/* Reads the running program and its plug-ins into memory. */
NODISCARD Err cluster_read_program(ClusterProgram *p);
void cluster_free(ClusterSpec *spec);

/* Each prints a table with one row per host and fails if a host failed. `dir` receives the program
 * directory as an absolute path, or "" if the hosts have different ones below their homes. */
NODISCARD Err cluster_up(const ClusterSpec *spec, char dir[CLUSTER_DIR_MAX]);
NODISCARD Err cluster_down(const ClusterSpec *spec);
NODISCARD Err cluster_status(const ClusterSpec *spec);
/* Runs the words as a command on every host and prefixes its output with the host. One word is a
 * command line for sh; several are the words of a command, which no shell interprets. */
NODISCARD Err cluster_run(const ClusterSpec *spec, const char *const *words, size_t count);
/* Replaces this process by an interactive ssh to the host with that number (from 1) or name.
 * Returns only if that fails. */
NODISCARD Err cluster_ssh(const ClusterSpec *spec, const char *which);
/* Runs this program with the words, `doctor …`, and passes its output on. Fails if
 * its exit status is not 0. */
NODISCARD Err cluster_run_self(const char *const *words, size_t count);
/* Prints which ports must be open between which machines. `inventory` is the path of the AWS JSON
 * from which the security groups are read, or NULL. */
NODISCARD Err cluster_print_rules(const ClusterSpec *spec, const char *inventory);

#endif
