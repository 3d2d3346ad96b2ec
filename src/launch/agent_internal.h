/* Shared by the files of the agent: agent.c (loop and messages), agent_worker.c (workers and their
 * output), agent_stub.c (connections of stubs). */
#ifndef LAUNCH_AGENT_INTERNAL_H
#define LAUNCH_AGENT_INTERNAL_H

#include <jansson.h>
#include <poll.h>
#include <sys/types.h>

#include "launch/agent_dir.h"
#include "launch/channel.h"
#include "launch/network_proof.h"
#include "launch/peer.h"
#include "launch/protocol.h"

#define AGENT_PROCESSES_MAX 4096 /* workers and daemons on one machine */

typedef enum { OF_WORKER, OF_DAEMON } ProcessKind;

/* A worker, or mpirun or one of its daemons. */
typedef struct {
  ProcessKind kind;
  pid_t pid;
  uint32_t rank;     /* of a worker */
  int64_t id;        /* of a daemon: the id in MSG_START */
  int out, err;      /* our ends of its output; -1: closed */
  int event;         /* our end of its reports (base/event.h) */
  char report[2048]; /* the line that is not yet complete */
  size_t report_len;
  uint8_t err_stream; /* OUTPUT_STDERR or OUTPUT_TERMINAL */
  double abandoned;   /* when its stub went away; 0: it is there, or there is none */
} AgentProcess;

/* A connection of `launch --worker` or `launch --rsh`. */
typedef struct {
  Channel *channel;
  pid_t worker; /* the process that the agent started for it; 0: none */
  int64_t rsh;  /* id of its MSG_RSH; 0: none */
} AgentStub;

typedef struct {
  Channel *head;
  AgentDir dir;
  char program[FILE_PATH_MAX];
  char host[256];
  int listener; /* Unix socket of the stubs */
  int signals;  /* signalfd: SIGCHLD, SIGINT, SIGTERM */

  uint32_t generation; /* 0: none */
  json_t *begin;       /* the MSG_BEGIN of the generation */
  AgentProcess *process;
  size_t processes, process_capacity;
  AgentStub *stub;
  size_t stubs, stub_capacity;
  int64_t last_rsh;
  PeerAgent peer;       /* in-memory copies */
  NetworkPeer *network; /* a test of the network in progress; NULL: none */

  bool is_stopping;  /* MSG_STOP arrived: workers that start later stop too */
  double kill_since; /* when MSG_KILL arrived; 0: not killing */
  bool is_stuck;     /* a process that cannot be killed has been reported */
  int leaving;       /* signals received */
  bool is_over;      /* MSG_END arrived */
  struct pollfd *fds;
  size_t fd_count, fd_capacity;
} Agent;

/* agent_worker.c */
/* Starts the worker of a rank. `env`: NUL-terminated strings of `len` bytes that MPI has set, or
 * NULL for this process's own environment. */
NODISCARD Err agent_start_worker(Agent *a, uint32_t rank, const char *env, size_t len,
                                 pid_t *pid);
/* Starts mpirun or one of its daemons. */
NODISCARD Err agent_start_daemon(Agent *a, int64_t id, const json_t *argv);
/* Forwards what the processes have printed. */
NODISCARD Err agent_forward_output(Agent *a);
/* Reports a process that has ended, if it is a worker or a daemon, and forgets it. */
NODISCARD Err agent_note_end(Agent *a, pid_t pid, int wait_status);
/* Tells the head that this generation cannot go on, with the recorded error. */
NODISCARD Err agent_report_failure(Agent *a);
void agent_signal_workers(Agent *a, int signal_number);
void agent_kill_abandoned(Agent *a, double now);
/* Forgets all processes, which have ended. */
void agent_forget_processes(Agent *a);

/* agent_stub.c */
NODISCARD Err agent_listen(Agent *a);
/* Accepts connections and handles what stubs have sent. */
NODISCARD Err agent_serve_stubs(Agent *a, double now);
/* Lets the stub of this worker, or of this MSG_RSH, exit with a status. */
void agent_end_stub(Agent *a, pid_t worker, int64_t rsh, int status);
void agent_close_stubs(Agent *a);

#endif
