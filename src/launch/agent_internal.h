/* Types and functions shared by the files of the agent: agent.c (loop and messages),
 * agent_worker.c (workers and their output), agent_stub.c (connections of stubs). */
#ifndef LAUNCH_AGENT_INTERNAL_H
#define LAUNCH_AGENT_INTERNAL_H

#include <jansson.h>
#include <poll.h>
#include <sys/types.h>

#include "launch/agent.h"
#include "launch/agent_dir.h"
#include "launch/channel.h"
#include "launch/network_proof.h"
#include "launch/peer.h"
#include "launch/protocol.h"
#include "launch/signals.h"

#define AGENT_PROCESSES_MAX \
  4096 /* largest number of workers and daemons on a machine; limits the stubs */

typedef enum { OF_WORKER, OF_DAEMON } ProcessKind;

/* A worker, mpirun or one of its daemons. */
typedef struct {
  ProcessKind kind;
  pid_t pid;
  uint32_t rank;     /* rank of a worker */
  int64_t id;        /* id of a daemon in MSG_START */
  int out, err;      /* the agent's ends of its output pipes; -1: closed */
  int event;         /* the agent's end of the pipe for its reports (base/event.h) */
  int start;         /* descriptor for process_check_start; -1: the result of exec is known */
  bool has_failed;   /* exec failed and this was reported, so its end is not reported */
  char report[2048]; /* incomplete line of its reports */
  size_t report_len;
  uint8_t err_stream; /* stream of its standard error: OUTPUT_STDERR or OUTPUT_TERMINAL */
  double abandoned;   /* time when its stub disconnected; 0: connected, or no stub */
} AgentProcess;

/* A connection from `launch --worker` or `launch --rsh`. */
typedef struct {
  Channel *channel;
  pid_t worker; /* process that the agent started for the stub; 0: none */
  int64_t rsh;  /* id of the MSG_RSH that was sent for the stub; 0: none */
} AgentStub;

typedef struct {
  Channel *head;
  AgentDir dir;
  char program[FILE_PATH_MAX];
  char host[256];
  int listener;     /* Unix socket to which stubs connect */
  double accept_at; /* accept no stub before this time, because no descriptor was free */
  int signals;      /* signalfd for SIGCHLD, SIGINT, SIGTERM, SIGHUP */

  uint32_t generation; /* number of the current generation; 0: none */
  json_t *begin;       /* MSG_BEGIN of the current generation */
  AgentProcess *process;
  size_t processes, process_capacity;
  AgentStub *stub;
  size_t stubs, stub_capacity;
  int64_t last_rsh;
  PeerAgent peer;       /* transfers of in-memory checkpoint copies */
  NetworkPeer *network; /* a running network test; NULL: none */

  bool is_stopping;  /* MSG_STOP has arrived: workers that start later are stopped too */
  double kill_since; /* time when MSG_KILL arrived; 0: not killing */
  bool is_stuck;     /* a process that cannot be killed has been reported */
  int demands;       /* number of SIGINT and SIGTERM */
  int leaving;       /* result of the last signals_note; 0: no signal has arrived */
  AgentOrigin origin;
  bool is_over;   /* MSG_END has arrived */
  Err end;        /* its status: how the launch has ended */
  char why[1024]; /* its text: why the launch has failed */
  struct pollfd *fds;
  size_t fd_count, fd_capacity;
} Agent;

/* Functions of agent_worker.c: */
/* Starts the worker of a rank without blocking: agent_forward_output reports to the head whether
 * exec succeeded. `env`: `len` bytes of NUL-terminated strings set by MPI; NULL:
 * the environment of this process. */
NODISCARD Err agent_start_worker(Agent *a, uint32_t rank, const char *env, size_t len,
                                 pid_t *pid);
/* Starts mpirun or one of its daemons, without blocking, as agent_start_worker does. */
NODISCARD Err agent_start_daemon(Agent *a, int64_t id, const json_t *argv);
/* Reports processes that have started, or could not, and forwards the output of all processes to
 * the head. */
NODISCARD Err agent_forward_output(Agent *a);
/* Reports to the head that a worker or a daemon has ended, and removes it from the list. Other
 * processes are ignored. */
NODISCARD Err agent_note_end(Agent *a, pid_t pid, int wait_status);
/* Reports to the head that this generation cannot continue, with the current error. */
NODISCARD Err agent_report_failure(Agent *a);
void agent_signal_workers(Agent *a, int signal_number);
void agent_kill_abandoned(Agent *a, double now);
/* Removes all processes from the list; they must have ended. */
void agent_forget_processes(Agent *a);

/* Functions of agent_stub.c: */
NODISCARD Err agent_listen(Agent *a);
/* Accepts connections and handles messages of stubs. */
NODISCARD Err agent_serve_stubs(Agent *a, double now);
/* Lets the stub of this worker, or of this MSG_RSH, exit with `status`. */
void agent_end_stub(Agent *a, pid_t worker, int64_t rsh, int status);
void agent_close_stubs(Agent *a);

#endif
