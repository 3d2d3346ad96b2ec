/* Types shared by the files of cluster: a host with its row of the table, and a step. Depends
 * on cluster. */
#ifndef LAUNCH_CLUSTER_INTERNAL_H
#define LAUNCH_CLUSTER_INTERNAL_H

#include "launch/cluster.h"
#include "launch/session.h"

#define CLUSTER_STEPS (CLUSTER_MOUNTS + 4)

/* The script that `sh -s` runs on the hosts (cluster.sh), NUL-terminated. */
extern const char cluster_script[];

typedef struct Member Member;
/* A step, which is a column of the table. `run` does the work on one host and writes the cell,
 * or fails. */
typedef struct {
  const char *title;
  Err (*run)(Member *m, const void *argument);
  const void *argument;
} Step;

/* A host; used by one thread. */
struct Member {
  const ClusterSpec *spec;
  const Host *host;
  const Step *steps;
  size_t count;
  bool has_progress;
  Str cell[CLUSTER_STEPS];
  Str notes;                 /* lines that are printed below the table */
  size_t done;               /* number of steps that succeeded */
  ErrRecord error;           /* error of the step that failed */
  char dir[CLUSTER_DIR_MAX]; /* absolute path of the program directory */
  bool wants[CLUSTER_FILES];
};

typedef enum { PROGRESS_HIDDEN, PROGRESS_SHOWN } ClusterProgress;
/* Runs the steps on all hosts and prints the table, notes and failures. With `progress`, also
 * prints each step when it is complete. `dir`: as in cluster_up, or NULL. */
NODISCARD Err cluster_steps(const ClusterSpec *spec, const Step *steps, size_t count,
                            ClusterProgress progress, char *dir);

/* Returns true if the host is this machine and the user is the caller: steps run without ssh. */
bool cluster_is_here(const Host *host);
/* Finds the port of a host's ssh daemon: --ssh-port, or that of the user's ssh configuration. */
NODISCARD Err cluster_read_port(const ClusterSpec *spec, const Host *host, int *port);

/* Makes the arguments of ssh for a host, or of the command itself if cluster_is_here(). `command` (ends with NULL) are words for its login
 * shell; if there are none, the session is interactive and ssh may ask questions. Host keys are
 * checked even if the user's configuration turns that off. Call ssh_call_free also after an
 * error. */
NODISCARD Err cluster_make_call(SshCall *call, const ClusterSpec *spec, const Host *host,
                                const char *const *command);

/* Line that scripts print first: the login shell of the host has started them. */
#define CLUSTER_BEGIN "trireme-begin"
/* Sets the error of a session that reached --host-timeout. */
Err cluster_explain_timeout(const ClusterSpec *spec, const Host *host, const SessionEnd *end);
/* Fails if the session ended with status 0 but its script was never started: a login shell such as
 * /bin/true, or a forced command, ignores the command of ssh. */
Err cluster_check_begin(const Host *host, const SessionEnd *end);

/* Appends "NAME='VALUE'
 * " for a POSIX shell. */
void cluster_set(Str *script, const char *name, const char *value);
/* Appends a word in single quotes for a POSIX shell. */
void cluster_quote(Str *script, const char *word);
/* Runs a function of cluster.sh on the host and sets the cell of the step from its output.
 * `settings`: shell variables, or NULL. */
NODISCARD Err cluster_call(Member *m, const char *function, const Str *settings);
/* Copies `bytes` to the file DIR/incoming/NAME on the host. */
NODISCARD Err cluster_send(Member *m, const char *name, const Str *bytes);

#endif
