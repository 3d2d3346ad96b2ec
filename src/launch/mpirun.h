/* The command line of Open MPI's mpirun. Depends on Jansson. */
#ifndef LAUNCH_MPIRUN_H
#define LAUNCH_MPIRUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct {
  const char *address; /* on the chosen network */
  int ranks;
} MpirunHost;

typedef struct {
  const MpirunHost *host;
  size_t hosts;
  const char
      *include; /* value of btl_tcp_if_include and oob_tcp_if_include; NULL: one machine */
  bool is_root;
} MpirunSpec;

/* A new array of words. mpirun starts `launch --worker` for each rank and, for its daemons on other
 * machines, `launch --rsh`; it binds no cores and does not judge exit statuses, which the
 * supervisor does. NULL: out of memory. */
json_t *mpirun_command(const MpirunSpec *spec);

#endif
