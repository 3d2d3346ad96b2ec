/* One function per command: reads the options, calls other modules, prints results. Depends on
 * base/opt. */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include "base/err.h"
#include "base/opt.h"
#include "cmd/option_table.h"
#include "comm/comm.h"

extern const OptAlias cmd_aliases[]; /* other names of options (aliases.c) */

NODISCARD Err cmd_prepare(OptSet *opts);
NODISCARD Err cmd_inspect(OptSet *opts);
NODISCARD Err cmd_train(OptSet *opts);
NODISCARD Err cmd_translate(OptSet *opts);
NODISCARD Err cmd_classify(OptSet *opts);
NODISCARD Err cmd_import(OptSet *opts);
NODISCARD Err cmd_export(OptSet *opts);
NODISCARD Err cmd_score(OptSet *opts);
NODISCARD Err cmd_bench(OptSet *opts);
NODISCARD Err cmd_doctor(OptSet *opts);
NODISCARD Err cmd_plan(OptSet *opts);
NODISCARD Err cmd_launch(OptSet *opts);
NODISCARD Err cmd_cluster(OptSet *opts);
NODISCARD Err cmd_report(OptSet *opts);
NODISCARD Err cmd_board(OptSet *opts);
NODISCARD Err cmd_watch(OptSet *opts);
NODISCARD Err cmd_help(OptSet *opts);

#define CLUSTER_OPERANDS 10000 /* largest number of words of a command for `cluster run` */

/* On ranks other than 0: waits some seconds, in which rank 0 reports an error that all ranks have
 * and mpirun ends them; under srun they report it after that time. Does nothing without a
 * launcher. */
void cmd_let_rank0_fail(void);
/* Fails if this process is one of several ranks; for commands that run in a single process,
 * because the ranks would write the same files. Reads only environment variables: MPI_Init
 * would block if a script runs the command on one rank only. `remedy`: advice for the user in
 * the error. */
NODISCARD Err cmd_refuse_ranks(const char *what, const char *remedy);
/* Prefixes warnings and errors with the rank, and lets only rank 0 print other messages. */
void cmd_introduce(const Comm *comm);

#endif
