/* What the files of cluster share: a host with its row of the table, and steps. Depends on
 * cluster. */
#ifndef LAUNCH_CLUSTER_INTERNAL_H
#define LAUNCH_CLUSTER_INTERNAL_H

#include "launch/cluster.h"
#include "launch/session.h"

#define CLUSTER_STEPS (CLUSTER_MOUNTS + 4)

/* The script for `sh -s` on the hosts (cluster.sh), NUL-terminated. */
extern const char cluster_script[];

typedef struct Member Member;
/* A column of the table. `run` does the work on one host and writes the cell; an error is the
 * reason of the failure. */
typedef struct {
  const char *title;
  Err (*run)(Member *m, const void *argument);
  const void *argument;
} Step;

/* One host, used by one thread. */
struct Member {
  const ClusterSpec *spec;
  const Host *host;
  const Step *steps;
  size_t count;
  bool has_progress;
  Str cell[CLUSTER_STEPS];
  Str notes;                 /* lines for the user */
  size_t done;               /* steps that succeeded */
  ErrRecord error;           /* of the step that failed */
  char dir[CLUSTER_DIR_MAX]; /* the program directory, absolute */
  bool wants[CLUSTER_FILES];
};

typedef enum { PROGRESS_HIDDEN, PROGRESS_SHOWN } ClusterProgress;
/* Runs the steps on all hosts, prints the table, the notes and the failures; with progress each
 * step as it ends, too. `dir` as in cluster_up; or NULL. */
NODISCARD Err cluster_steps(const ClusterSpec *spec, const Step *steps, size_t count,
                            ClusterProgress progress, char *dir);

/* Makes the arguments of ssh for a host. `command` are words for its login shell, ending with NULL;
 * without any the session is interactive and may ask questions. Host keys are checked even if the
 * user's configuration says otherwise. ssh_call_free also after an error. */
NODISCARD Err cluster_make_call(SshCall *call, const ClusterSpec *spec, const Host *host,
                                const char *const *command);

/* Adds "NAME='VALUE'\n" for a POSIX shell. */
void cluster_set(Str *script, const char *name, const char *value);
/* Adds the word between single quotes, as every POSIX shell reads it. */
void cluster_quote(Str *script, const char *word);
/* Runs a function of cluster.sh on the host; `settings` are its variables, or NULL. The cell of the
 * step is set from its output. */
NODISCARD Err cluster_call(Member *m, const char *function, const Str *settings);
/* Copies bytes to DIR/incoming/NAME on the host. */
NODISCARD Err cluster_send(Member *m, const char *name, const Str *bytes);

#endif
