/* The command line of Open MPI's mpirun. Depends on Jansson. */
#ifndef LAUNCH_MPIRUN_H
#define LAUNCH_MPIRUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct {
  const char *address; /* address on the selected network */
  int ranks;
} MpirunHost;

typedef struct {
  const MpirunHost *host;
  size_t hosts;
  /* Value of btl_tcp_if_include and oob_tcp_if_include; NULL if there is one machine. */
  const char *include;
  bool is_root;
} MpirunSpec;

/* Returns a new array of words; NULL: out of memory. mpirun starts `launch --worker` for each
 * rank and `launch --rsh` for its daemons on other machines. It does not bind cores and does
 * not react to exit statuses; the supervisor does both. */
json_t *mpirun_command(const MpirunSpec *spec);

#endif
