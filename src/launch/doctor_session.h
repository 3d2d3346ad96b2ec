/* The doctor's connections to the agents on the hosts (doctor_agent.h), through ssh or on this
 * machine. Several hosts are asked in parallel. Depends on ssh, channel. */
#ifndef LAUNCH_DOCTOR_SESSION_H
#define LAUNCH_DOCTOR_SESSION_H

#include "launch/doctor_agent.h"
#include "launch/hosts.h"
#include "launch/ssh.h"

typedef struct {
  Host host;
  bool is_local; /* this machine, which is reached without ssh */
  /* The host takes part in the run; false: this machine, if it only starts the run. */
  bool is_member;
  bool is_ready;
  bool is_reported; /* the loss of this host has been added to the findings */
  SshAgent *ssh;
  pid_t pid;              /* process of the agent on this machine; 0: none */
  Channel *channel;       /* channel to the agent; NULL: not connected */
  bool is_asked;          /* a question was sent and its answer has not arrived */
  double asked, answered; /* progress_clock() at the last question and at its answer */
  int64_t id;             /* id of the last question */
  json_t *answer;         /* answer to the last question; NULL: not received */
  char problem[1024];     /* why the agent could not be started or was lost */
} Session;

typedef struct {
  Session *list;
  size_t count;
  SshOptions ssh;
} Sessions;

/* Starts an agent on every host in parallel, and one on this machine if it is not among them.
 * Blocks until each has answered or failed (is_ready, problem). Call sessions_close also after
 * an error. */
NODISCARD Err sessions_open(Sessions *s, const HostList *hosts, const SshOptions *ssh);
void sessions_close(Sessions *s);

/* Sends a question to a host, and frees `question`. Adds its id. Does nothing if the host is
 * not ready. */
void session_ask(Session *s, json_t *question);
/* Blocks until all answers have arrived or `seconds` have passed. Hosts that have not answered
 * then count as lost. */
void sessions_wait(Sessions *s, double seconds);

#endif
