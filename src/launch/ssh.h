/* Calls ssh as a program: its arguments, the start of an agent, and the meaning of its
 * failures. Host keys are always checked: a setting of "no" in the user's configuration is
 * overridden with "yes"; all other settings are kept. ssh never asks for a password or a
 * confirmation. Depends on base, hosts, process, OpenSSH. */
#ifndef LAUNCH_SSH_H
#define LAUNCH_SSH_H

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "launch/hosts.h"

#define SSH_WORDS 40 /* largest number of arguments of a call */

typedef struct {
  int port;        /* value of --ssh-port; 0: ssh's own choice */
  const char *key; /* value of --ssh-key, a file; NULL: ssh's own choice */
  /* Path of trireme on the other machines; NULL: the path of this program. */
  const char *program;
  const char *command; /* command whose --agent is started; NULL: launch */
} SshOptions;

/* Checks the file of --ssh-key before any host is called: it must exist and be readable. NULL is
 * accepted, and names that ssh itself expands (~USER, %d, ${HOME}) are left to ssh. */
NODISCARD Err ssh_check_key(const char *path);

/* Functions that build the arguments of an ssh command: */

/* The arguments of a call, NULL-terminated, to be executed without a shell. */
typedef struct {
  char *word[SSH_WORDS + 1];
  size_t words;
} SshCall;

/* Builds the call that runs `remote` (NULL-terminated words) on the host. The words are quoted
 * for the login shell of the host and passed to ssh as one argument. `must_check` adds
 * StrictHostKeyChecking=yes. Call ssh_call_free also after an error. */
NODISCARD Err ssh_call_command(SshCall *call, const Host *host, const SshOptions *options,
                               const char *const *remote, bool must_check);
/* Builds the call `ssh -G`, which prints the settings for this host without connecting. */
NODISCARD Err ssh_call_settings(SshCall *call, const Host *host, const SshOptions *options);
/* Returns the path of trireme on the other machines; `own` is a buffer for it. */
const char *ssh_program(const SshOptions *options, char own[FILE_PATH_MAX]);
/* Returns true if the output of `ssh -G` shows that host keys are not checked. */
bool ssh_is_check_off(const char *settings);
void ssh_call_free(SshCall *call);

/* Functions that explain failures of ssh: */

typedef enum {
  SSH_OTHER,
  SSH_KEY_REFUSED,
  SSH_KEY_FILE, /* the file of --ssh-key is missing, unreadable, or readable by others */
  SSH_HOST_KEY_UNKNOWN,
  SSH_HOST_KEY_CHANGED,
  SSH_REFUSED,
  SSH_TIMED_OUT,
  SSH_UNREACHABLE,
  SSH_NAME_UNKNOWN,
  SSH_CLOSED,
  SSH_HANGS, /* ssh was called, but the host started no command within the time limit */
  SSH_NO_PROGRAM,
  SSH_WRONG_PROGRAM, /* the program exists on the host, but cannot be executed */
  SSH_OTHER_VERSION,
  SSH_FAILURES
} SshFailure;

/* A word for each failure, such as "key-refused", for JSON. */
extern const char *const ssh_failure_id[SSH_FAILURES];

/* Determines the failure from the exit status of ssh (255: failure of ssh itself; -1: unknown;
 * otherwise that of the remote command) and from its standard error. */
SshFailure ssh_judge(int exit_status, const char *said);
/* Sets the error: the host, the failure with ssh's own last line, and the remedy. Returns
 * ERR_WORK. */
Err ssh_explain(SshFailure failure, const Host *host, const SshOptions *options,
                const char *said);

/* Functions that start an agent through ssh: */

/* The start of `trireme launch --agent` (or of another command) on one host. No function
 * blocks; one thread. */
typedef struct SshAgent SshAgent;

typedef enum {
  SSH_STARTING,
  SSH_READY, /* the agent is running: call ssh_agent_take */
  SSH_FAILED /* err_message() has the reason, ssh_agent_failure() the kind */
} SshState;

/* Starts ssh; `host` and `options` must outlive the agent. */
NODISCARD Err ssh_agent_start(SshAgent **agent, const Host *host, const SshOptions *options,
                              double now);
/* Adds 0 to 2 pollfds and returns their number. */
int ssh_agent_poll_for(const SshAgent *agent, struct pollfd fds[2]);
/* Continues without blocking. `now` is progress_clock(). Must be called also after SSH_READY,
 * to read what ssh and the agent print to standard error. */
SshState ssh_agent_advance(SshAgent *agent, double now);
SshFailure ssh_agent_failure(const SshAgent *agent);
/* Passes the descriptors of the agent's standard output and input to the caller, once, after
 * SSH_READY. */
void ssh_agent_take(SshAgent *agent, int *from_agent, int *to_agent);
/* Copies the lines of standard error since the last call that the user should see. */
void ssh_agent_take_lines(SshAgent *agent, Str *lines);
/* Returns true if ssh has exited. */
bool ssh_agent_has_ended(SshAgent *agent);
/* Kills ssh if it is running. The agent then exits by itself, because its input closes. */
void ssh_agent_close(SshAgent *agent);

/* Called by the agent: writes the greeting line with this program's version, which marks the
 * beginning of its messages. What the host's start-up files print before it is ignored. */
NODISCARD Err ssh_greet(int fd);

#endif
