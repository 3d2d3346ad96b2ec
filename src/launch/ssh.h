/* ssh, called as a program: the arguments of a call, the start of an agent, and what ssh's failures
 * mean. Host-key checking is never off: a setting of "no" in the user's configuration becomes
 * "yes", every other setting is kept. Nothing asks for a password or a confirmation. Depends on
 * base, hosts, process, OpenSSH. */
#ifndef LAUNCH_SSH_H
#define LAUNCH_SSH_H

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "launch/hosts.h"

#define SSH_WORDS 40 /* arguments of one call */

typedef struct {
  int port;            /* --ssh-port; 0: ssh's own choice */
  const char *key;     /* --ssh-key, a file; NULL: ssh's own choice */
  const char *program; /* trireme on the other machines; NULL: the path of this program here */
  const char *command; /* whose --agent is started; NULL: launch */
} SshOptions;

/* ---- the arguments ---- */

/* The arguments of a call, NULL-terminated: a program to start without a shell. */
typedef struct {
  char *word[SSH_WORDS + 1];
  size_t words;
} SshCall;

/* Makes the call that runs `remote` (NULL-terminated words) on the host. Its words are quoted once,
 * for the login shell of the host, and are one argument of ssh. `must_check` adds
 * StrictHostKeyChecking=yes. ssh_call_free also after an error. */
NODISCARD Err ssh_call_command(SshCall *call, const Host *host, const SshOptions *options,
                               const char *const *remote, bool must_check);
/* Makes the call `ssh -G`, which prints the settings for this host and connects to nothing. */
NODISCARD Err ssh_call_settings(SshCall *call, const Host *host, const SshOptions *options);
/* The path of trireme on the other machines; `own` is room for it. */
const char *ssh_program(const SshOptions *options, char own[FILE_PATH_MAX]);
/* Does the output of `ssh -G` say that host keys are not checked? */
bool ssh_is_check_off(const char *settings);
void ssh_call_free(SshCall *call);

/* ---- failures ---- */

typedef enum {
  SSH_OTHER,
  SSH_KEY_REFUSED,
  SSH_KEY_FILE, /* the file of --ssh-key is missing, unreadable or readable by others */
  SSH_HOST_KEY_UNKNOWN,
  SSH_HOST_KEY_CHANGED,
  SSH_REFUSED,
  SSH_TIMED_OUT,
  SSH_UNREACHABLE,
  SSH_NAME_UNKNOWN,
  SSH_CLOSED,
  SSH_NO_PROGRAM,
  SSH_WRONG_PROGRAM, /* it is there, but cannot be executed */
  SSH_OTHER_VERSION,
  SSH_FAILURES
} SshFailure;

/* One word for each failure, for JSON: "key-refused". */
extern const char *const ssh_failure_id[SSH_FAILURES];

/* Judges the exit status of ssh (255: its own failure; -1: not known; else that of the remote
 * command) and what was printed to standard error. */
SshFailure ssh_judge(int exit_status, const char *said);
/* Sets an error: the host, the failure in plain words with ssh's own last line, and the remedy.
 * Returns ERR_WORK. */
Err ssh_explain(SshFailure failure, const Host *host, const SshOptions *options,
                const char *said);

/* ---- an agent ---- */

/* The start of `trireme launch --agent` (or of another command) on one host. Nothing blocks; one thread. */
typedef struct SshAgent SshAgent;

typedef enum {
  SSH_STARTING,
  SSH_READY, /* the agent runs: take its descriptors */
  SSH_FAILED /* err_message() says why; ssh_agent_failure which kind */
} SshState;

/* Begins the start; `host` and `options` must outlive it. */
NODISCARD Err ssh_agent_start(SshAgent **agent, const Host *host, const SshOptions *options,
                              double now);
/* Adds what to poll for and returns how many (0 to 2). */
int ssh_agent_poll_for(const SshAgent *agent, struct pollfd fds[2]);
/* Does what is possible now. `now` is progress_clock(). Call it also after SSH_READY: it stores what
 * ssh and the agent print to standard error. */
SshState ssh_agent_advance(SshAgent *agent, double now);
SshFailure ssh_agent_failure(const SshAgent *agent);
/* Gives away the descriptors to the agent's standard output and input, once, after SSH_READY. */
void ssh_agent_take(SshAgent *agent, int *from_agent, int *to_agent);
/* Copies the lines printed to standard error since the last call that the user should see. */
void ssh_agent_take_lines(SshAgent *agent, Str *lines);
/* Has ssh ended? */
bool ssh_agent_has_ended(SshAgent *agent);
/* Kills ssh if it still runs. The agent then ends by itself, as its input closes. */
void ssh_agent_close(SshAgent *agent);

/* The agent's side: writes the line that marks the beginning of its messages, with this program's
 * version. What the host's start-up files print before it is ignored. */
NODISCARD Err ssh_greet(int fd);

#endif
