/* `trireme cluster` prepares existing machines over ssh, and undoes that. Each host is handled
 * by its own thread, so that a slow or unreachable host does not delay the others. A host that
 * fails stops at the failed step; the others continue. The script cluster.sh runs on the hosts.
 * Depends on hosts, ssh, base. */
#ifndef LAUNCH_CLUSTER_H
#define LAUNCH_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/file.h"
#include "launch/hosts.h"
#include "launch/ssh.h"

/* A network drive, as a line of /etc/fstab. None of the texts contains blanks. */
typedef struct {
  char type[8]; /* file system: "nfs" or "cifs" */
  char source[1024];
  char point[1024];
  char options[1024];
  char server[256];
} ClusterMount;

#define CLUSTER_MOUNTS 8

/* A file of the program that is copied to the hosts. */
typedef struct {
  char path[128];
  char sum[65]; /* SHA-256 of the file in hexadecimal */
  Str bytes;
} ClusterFile;

#define CLUSTER_FILES   4
#define CLUSTER_DIR_MAX 512

typedef struct {
  ClusterFile file[CLUSTER_FILES];
  size_t files;
  const char *arch; /* processor architecture, as printed by `uname -m` */
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
  double timeout; /* seconds without an answer after which a host has failed */
} ClusterSpec;

/* Parses the value of --mount, TYPE://SERVER/PATH:/MOUNT-POINT. `more`: further mount options,
 * or NULL. Errors do not show passwords. */
NODISCARD Err cluster_parse_mount(ClusterMount *m, const char *text, const char *more);
/* Reads the credentials file for CIFS, with the lines username=, password= and domain=. Fails
 * if other users can read the file. Errors do not show its contents. */
NODISCARD Err cluster_read_credentials(Str *into, const char *path);
/* Checks a program directory: it may contain only characters that no shell interprets, and must
 * not be a system directory. */
NODISCARD Err cluster_check_dir(const char *dir);
/* Reads the files of the running program and its plug-ins into memory. */
NODISCARD Err cluster_read_program(ClusterProgram *p);
void cluster_free(ClusterSpec *spec);

/* Each function prints a table with one row per host and fails if a host has failed. `dir`
 * receives the absolute path of the program directory, or "" if it differs between the
 * hosts. */
NODISCARD Err cluster_up(const ClusterSpec *spec, char dir[CLUSTER_DIR_MAX]);
NODISCARD Err cluster_down(const ClusterSpec *spec);
NODISCARD Err cluster_status(const ClusterSpec *spec);
/* Runs a command on every host and prefixes its output with the host's name. A single word is a
 * command line for sh; several words are executed without a shell. */
NODISCARD Err cluster_run(const ClusterSpec *spec, const char *const *words, size_t count);
/* Replaces this process with an interactive ssh to the host with the given number (from 1) or
 * name. Returns only on failure. */
NODISCARD Err cluster_ssh(const ClusterSpec *spec, const char *which);
/* Runs this program with the given words (`doctor …`); its output is not captured. Fails if its
 * exit status is not 0. */
NODISCARD Err cluster_run_self(const char *const *words, size_t count);
/* Prints which ports must be open between which machines. `inventory`: path of the AWS JSON
 * from which the security groups are read, or NULL. */
NODISCARD Err cluster_print_rules(const ClusterSpec *spec, const char *inventory);

#endif
