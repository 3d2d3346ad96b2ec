/* Reads the Slurm allocation, and encodes the line that tells the agents how to reach the head.
 * Depends on slurm.h, base. */
#include "launch/slurm.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

/* Step ids of a batch script and of an interactive shell (salloc with use_interactive_step).
 * These are not tasks of srun. They are SLURM_BATCH_SCRIPT and SLURM_INTERACTIVE_STEP in
 * slurm.h. */
static const char *const shell_steps[] = {"4294967291", "4294967290"};

bool slurm_has_allocation(void) {
  const char *job = getenv("SLURM_JOB_ID");
  const char *step = getenv("SLURM_STEP_ID");
  if (!job || !*job) return false;
  if (!step || !*step) return true;
  for (size_t i = 0; i < sizeof shell_steps / sizeof *shell_steps; i++)
    if (strcmp(step, shell_steps[i]) == 0) return true;
  return false;
}

static Err refuse_variable(const char *name, const char *value) {
  return err_set(
      ERR_WORK,
      "%s is '%.60s', which is not understood; start the launch inside an allocation "
      "of sbatch or salloc, or name the machines with --hosts",
      name, value ? value : "");
}

Err slurm_parse_tasks(SlurmAllocation *a, const char *text) {
  static const char name[] = "SLURM_TASKS_PER_NODE";
  int node = 0;
  const char *at = text;
  while (*at) {
    int tasks = 0;
    int times = 1;
    int len = 0;
    if (sscanf(at, "%4d%n", &tasks, &len) != 1 || tasks < 1 || *at < '0' || *at > '9')
      return refuse_variable(name, text);
    at += len;
    if (*at == '(') {
      len = 0;
      if (sscanf(at, "(x%4d)%n", &times, &len) != 1 || !len || times < 1)
        return refuse_variable(name, text);
      at += len;
    }
    if (node + times > a->nodes) return refuse_variable(name, text);
    while (times-- > 0) a->tasks[node++] = tasks;
    if (*at == ',' && at[1])
      at++;
    else if (*at)
      return refuse_variable(name, text);
  }
  return node == a->nodes ? ERR_OK : refuse_variable(name, text);
}

Err slurm_read_allocation(SlurmAllocation *a) {
  *a = (SlurmAllocation){0};
  const char *nodes = getenv("SLURM_JOB_NUM_NODES");
  const char *tasks = getenv("SLURM_TASKS_PER_NODE");
  int64_t count;
  if (!nodes || str_count(nodes, &count) || count < 1 || count > SLURM_NODES_MAX)
    return refuse_variable("SLURM_JOB_NUM_NODES", nodes);
  a->nodes = (int)count;
  /* Without --ntasks or --ntasks-per-node Slurm assumes one task per core, which is not a
   * request of the user. */
  return getenv("SLURM_NTASKS") && tasks ? slurm_parse_tasks(a, tasks) : ERR_OK;
}

static const char mark[] = "trireme-slurm-1";

void slurm_print_meeting(const SlurmMeeting *m, char line[SLURM_LINE_MAX]) {
  char key[KEY_TEXT];
  key_to_text(&m->key, key);
  int used = snprintf(line, SLURM_LINE_MAX, "%s %s %d", mark, key, m->port);
  for (int i = 0; i < m->addresses; i++)
    used += snprintf(line + used, SLURM_LINE_MAX - (size_t)used, " %s", m->address[i]);
  snprintf(line + used, SLURM_LINE_MAX - (size_t)used, "\n");
}

static bool is_address(const char *text) {
  unsigned char bytes[16];
  return inet_pton(strchr(text, ':') ? AF_INET6 : AF_INET, text, bytes) == 1;
}

Err slurm_parse_meeting(SlurmMeeting *m, const char *line) {
  char found[32] = "";
  char key[KEY_TEXT] = "";
  char address[52];
  int len = 0;
  *m = (SlurmMeeting){0};
  bool is_right = sscanf(line, "%31s %64s %5d%n", found, key, &m->port, &len) == 3 &&
                  strcmp(found, mark) == 0 && key_from_text(key, &m->key) && m->port > 0 &&
                  m->port < 65536;
  for (const char *at = line + len;
       is_right && m->addresses < SLURM_ADDRESSES && sscanf(at, "%51s%n", address, &len) == 1;
       at += len) {
    is_right = is_address(address);
    memcpy(m->address[m->addresses++], address, sizeof address);
  }
  if (is_right && m->addresses) return ERR_OK;
  return err_set(
      ERR_WORK,
      "standard input does not name the head of a launch; 'trireme launch' starts this "
      "agent itself, inside an allocation of Slurm");
}
