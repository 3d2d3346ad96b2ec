/* One function per command: reads the options, calls other modules, prints. No numerics here.
 * Depends on base/opt. */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include "base/err.h"
#include "base/opt.h"
#include "comm/comm.h"

/* The one table of options (options.c) and the one table of commands (main.c). */
extern const OptSpec cmd_options[];
extern const OptAlias cmd_aliases[]; /* aliases.c: other names of options */

NODISCARD Err cmd_prepare(OptSet *opts);
NODISCARD Err cmd_inspect(OptSet *opts);
NODISCARD Err cmd_train(OptSet *opts);
NODISCARD Err cmd_translate(OptSet *opts);
NODISCARD Err cmd_score(OptSet *opts);
NODISCARD Err cmd_bench(OptSet *opts);
NODISCARD Err cmd_doctor(OptSet *opts);
NODISCARD Err cmd_launch(OptSet *opts);
NODISCARD Err cmd_cluster(OptSet *opts);
NODISCARD Err cmd_help(OptSet *opts);

#define CLUSTER_OPERANDS 10000 /* words of a command for `cluster run` */

/* The index of an option's value in a list "a|b|c". */
int cmd_choice(const OptSet *opts, const char *name, const char *names);
/* Refuses to run as one of several ranks, for commands of one process: the ranks would write the
 * same files. Reads only the environment, because MPI_Init would wait for all ranks and a script may
 * run the command on one of them. `remedy`: what the error tells the user to do. */
NODISCARD Err cmd_refuse_ranks(const char *what, const char *remedy);
/* From now on warnings and errors begin with the rank, and only rank 0 prints other messages. */
void cmd_introduce(const Comm *comm);

#endif
