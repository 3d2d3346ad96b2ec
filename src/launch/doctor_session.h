/* The doctor's connections to the agents on the hosts (doctor_agent.h), through ssh or on this
 * machine. Questions are asked of several hosts at the same time. Depends on ssh, channel. */
#ifndef LAUNCH_DOCTOR_SESSION_H
#define LAUNCH_DOCTOR_SESSION_H

#include "launch/doctor_agent.h"
#include "launch/hosts.h"
#include "launch/ssh.h"

typedef struct {
  Host host;
  bool is_local;  /* this machine, reached without ssh */
  bool is_member; /* a host of the run; false: this machine, if it only starts the run */
  bool is_ready;
  bool is_reported; /* the doctor has a finding for its loss */
  SshAgent *ssh;
  pid_t pid;              /* of the agent on this machine; 0: none */
  Channel *channel;       /* NULL: not ready */
  bool is_asked;          /* an answer is awaited */
  double asked, answered; /* progress_clock() of the last question and its answer */
  int64_t id;             /* of the last question */
  json_t *answer;         /* of the last question; NULL: none came */
  char problem[1024];     /* why it could not be started, or was lost */
} Session;

typedef struct {
  Session *list;
  size_t count;
  SshOptions ssh;
} Sessions;

/* Starts an agent on every host at the same time, and on this machine, which starts the run, if it
 * is not one of them; blocks until each has answered or failed (is_ready and problem).
 * sessions_close also after an error. */
NODISCARD Err sessions_open(Sessions *s, const HostList *hosts, const SshOptions *ssh);
void sessions_close(Sessions *s);

/* Sends a question to a host that is ready; takes `question`, which has no id yet. A host that is
 * not ready is not asked. */
void session_ask(Session *s, json_t *question);
/* Blocks until all answers are there, or `seconds` have passed: then the hosts that have not
 * answered are lost. */
void sessions_wait(Sessions *s, double seconds);

#endif
